#include "worker/cuda/nccl_communicator.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "common/base/check.h"
#include "worker/cuda/cuda_backend.h"

namespace helios::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::chrono::seconds kEndLimit{5};  // a rank in a hurry is ended sooner by its link

/// The library's words for a result, and for what lay behind it.
std::string words_of(ncclResult_t result) {
  const char* const detail = ncclGetLastError(nullptr);
  const bool more = detail && *detail && result != ncclInProgress;
  return fmt::format("{}{}{}", ncclGetErrorString(result), more ? ": " : "", more ? detail : "");
}
std::string cannot(const char* what, ncclResult_t result) {
  return fmt::format("NCCL cannot {}: {}", what, words_of(result));
}

/// The library's communicator. The rank's thread calls it and another may abort it, so every call is made under a lock,
/// and none after the abort. Ending it waits in the library, for the device and for the graphs that captured it to be
/// destroyed: it has a thread of its own, so that whoever aborts can go on to destroy those graphs.
class NcclHandle {
 public:
  explicit NcclHandle(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  ~NcclHandle() { close(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  void abort(const std::string& reason) noexcept { end(ncclCommAbort, reason); }
  /// Destroys the communicator, unless it was aborted, and waits for the end of that. False when it takes too long: it
  /// then ends with the process, and the device may still be at work for it.
  bool close() noexcept {
    end(ncclCommDestroy, "destroyed");
    const auto limit = std::min<std::chrono::milliseconds>(timeout_, kEndLimit);
    return !ended_.valid() || ended_.wait_for(limit) == std::future_status::ready;
  }

  /// Makes a non-blocking call and waits until the library has taken it. Throws CollectiveError, and then has aborted,
  /// so that no kernel of the device waits for a peer.
  template <class Call>
  void settle(const char* what, const Call& call) {
    const auto deadline = Clock::now() + timeout_;
    for (ncclResult_t result = locked(what, call); result != ncclSuccess; result = state(what)) {
      if (result != ncclInProgress) fail(cannot(what, result));
      wait(what, deadline);
    }
  }
  /// Throws what the library's own threads found, and does not abort.
  void check(const char* what) {
    const ncclResult_t result = state(what);
    if (result != ncclSuccess && result != ncclInProgress) throw CollectiveError(cannot(what, result));
  }
  /// A turn of a wait for the device.
  void wait_for_device(const char* what, Clock::time_point deadline) {
    const ncclResult_t result = state(what);
    if (result != ncclSuccess && result != ncclInProgress) fail(cannot(what, result));
    wait(what, deadline);
  }
  Clock::time_point deadline() const { return Clock::now() + timeout_; }

 private:
  template <class Call>
  ncclResult_t locked(const char* what, const Call& call) {
    std::lock_guard lock(mutex_);
    if (!why_ended_.empty()) throw CollectiveError(fmt::format("cannot {}: the group is gone: {}", what, why_ended_));
    return call(&communicator_);
  }
  ncclResult_t state(const char* what) {
    return locked(what, [](ncclComm_t* communicator) {
      ncclResult_t asynchronous = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(*communicator, &asynchronous);
      return asked == ncclSuccess ? asynchronous : asked;
    });
  }
  void wait(const char* what, Clock::time_point deadline) {
    if (Clock::now() > deadline) fail(fmt::format("NCCL did not {} within {} ms", what, timeout_.count()));
    std::this_thread::sleep_for(kPollInterval);
  }
  [[noreturn]] void fail(const std::string& message) {
    abort(message);
    throw CollectiveError(message);
  }

  void end(ncclResult_t (*how)(ncclComm_t), const std::string& why) noexcept try {
    std::lock_guard lock(mutex_);
    if (!why_ended_.empty()) return;
    why_ended_ = why.empty() ? "aborted" : why;
    if (!communicator_) return;
    std::promise<void> done;
    ended_ = done.get_future();
    std::thread([communicator = communicator_, how, done = std::move(done)]() mutable {
      how(communicator);  // frees it, whatever it answers
      done.set_value();
    }).detach();
  } catch (const std::exception&) {  // no memory, no thread: the link ends the process
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;  // guards what follows
  ncclComm_t communicator_ = nullptr;
  std::string why_ended_;
  std::future<void> ended_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const std::string& group_id, Rank rank, int world, Stream& stream, std::chrono::milliseconds timeout,
                   bool adds_rows)
      : rank_(rank), world_(world), stream_(native_stream(stream)), adds_rows_(adds_rows), handle_(timeout) {
    ncclUniqueId id;
    static_assert(sizeof id.internal == kNcclGroupIdBytes);
    if (group_id.size() != sizeof id.internal) {
      throw CollectiveError(
          fmt::format("NCCL group id: expected {} bytes, found {}", sizeof id.internal, group_id.size()));
    }
    std::memcpy(id.internal, group_id.data(), group_id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    handle_.settle("join the group", [&](ncclComm_t* communicator) {
      return ncclCommInitRankConfig(communicator, world, id, rank.value, &config);
    });
    check(cudaMalloc(reinterpret_cast<void**>(&barrier_), static_cast<size_t>(world) + 1),
          "allocate the barrier's bytes");
  }
  ~NcclCommunicator() override {
    if (handle_.close()) cudaFree(barrier_);  // which waits for the device
  }

  Rank rank() const override { return rank_; }
  int world_size() const override { return world_; }

  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    HELIOS_CHECK(rank_stride == in.size(), rank_stride, in.size());
    all_gather_on_stream("all-gather", in.data(), out, in.size());
  }
  // The count lies in device memory, where only kernels see it: the captured exchange has the size of a full step.
  void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t*, int64_t max_rows) override {
    all_gather_on_stream("all-gather rows", in, out, static_cast<size_t>(max_rows) * row_bytes);
  }

  bool adds_rows() const override { return adds_rows_; }
  void add_rows(const float* in, float* out, size_t row_words, int64_t max_rows) override {
    HELIOS_CHECK(adds_rows_);
    const size_t count = static_cast<size_t>(max_rows) * row_words;
    handle_.settle("all-reduce", [&](ncclComm_t* communicator) {
      return ncclAllReduce(in, out, count, ncclFloat32, ncclSum, *communicator, stream_);
    });
  }

  void check_group() override { handle_.check("finish the exchanges of the steps in flight (ncclCommGetAsyncError)"); }

  void barrier() override {
    constexpr const char* kWhat = "meet at a barrier";
    all_gather_on_stream(kWhat, barrier_, barrier_ + 1, 1);
    const auto deadline = handle_.deadline();
    for (;;) {  // never an unbounded wait for the stream: a lost peer would hold it for ever
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check(state, kWhat);
      handle_.wait_for_device(kWhat, deadline);
    }
  }

  void abort(const std::string& reason) noexcept override { handle_.abort(reason); }

 private:
  void all_gather_on_stream(const char* what, const void* in, void* out, size_t bytes) {
    handle_.settle(what, [&](ncclComm_t* communicator) {
      return ncclAllGather(in, out, bytes, ncclUint8, *communicator, stream_);
    });
  }

  const Rank rank_;
  const int world_;
  const cudaStream_t stream_;
  const bool adds_rows_;
  char* barrier_ = nullptr;
  NcclHandle handle_;
};

}  // namespace

std::string make_nccl_group_id() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) throw CollectiveError("NCCL cannot make a group id: " + words_of(result));
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<Communicator> make_nccl_communicator(const std::string& group_id, Rank rank, int world_size,
                                                     Stream& stream, std::chrono::milliseconds timeout,
                                                     bool adds_rows) {
  return std::make_unique<NcclCommunicator>(group_id, rank, world_size, stream, timeout, adds_rows);
}

}  // namespace helios::cuda
