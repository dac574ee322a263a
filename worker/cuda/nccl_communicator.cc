#include "worker/cuda/nccl_communicator.h"

#include <nccl.h>

#include <atomic>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "common/base/check.h"
#include "worker/cuda/cuda_backend.h"

namespace helios::cuda {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const std::string& group_id, Rank rank, int world, Stream& stream, std::chrono::milliseconds timeout,
                   bool adds_rows)
      : rank_(rank), world_(world), stream_(native_stream(stream)), timeout_(timeout), adds_rows_(adds_rows) {
    ncclUniqueId id;
    static_assert(sizeof id.internal == kNcclGroupIdBytes);
    if (group_id.size() != sizeof id.internal) {
      throw CollectiveError(
          fmt::format("NCCL group id: expected {} bytes, found {}", sizeof id.internal, group_id.size()));
    }
    std::memcpy(id.internal, group_id.data(), group_id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(ncclCommInitRankConfig(&communicator_, world, id, rank.value, &config), "join the group");
    check(cudaMalloc(reinterpret_cast<void**>(&barrier_), world + 1), "allocate the barrier's bytes");
  }
  ~NcclCommunicator() override {
    cudaFree(barrier_);
    if (communicator_ && !aborted_.exchange(true)) ncclCommDestroy(communicator_);
  }

  Rank rank() const override { return rank_; }
  int world_size() const override { return world_; }

  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    HELIOS_CHECK(rank_stride == in.size(), rank_stride, in.size());
    settle(ncclAllGather(in.data(), out, in.size(), ncclUint8, communicator_, stream_), "all-gather");
  }
  // The count lies in device memory, where only kernels see it: the captured exchange has the size of a full step.
  void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t*, int64_t max_rows) override {
    const size_t bytes = static_cast<size_t>(max_rows) * row_bytes;
    gather({static_cast<const std::byte*>(in), bytes}, static_cast<std::byte*>(out), bytes);
  }

  bool adds_rows() const override { return adds_rows_; }
  void add_rows(const float* in, float* out, size_t row_words, int64_t max_rows) override {
    HELIOS_CHECK(adds_rows_);
    const size_t count = static_cast<size_t>(max_rows) * row_words;
    settle(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, communicator_, stream_), "all-reduce");
  }

  void barrier() override {
    settle(ncclAllGather(barrier_, barrier_ + 1, 1, ncclUint8, communicator_, stream_), "meet at a barrier");
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    for (;;) {  // never an unbounded wait for the stream: a lost peer would hold it for ever
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check(state, "meet at a barrier");
      poll("meet at a barrier", deadline);
    }
  }

  void abort(const std::string&) noexcept override {
    if (communicator_ && !aborted_.exchange(true)) ncclCommAbort(communicator_);
  }

 private:
  void poll(const char* what, std::chrono::steady_clock::time_point deadline) {
    if (aborted_) throw CollectiveError(fmt::format("cannot {}: the group was aborted", what));
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess ||
        (state != ncclSuccess && state != ncclInProgress)) {
      throw CollectiveError(fmt::format("NCCL cannot {}: {}", what, ncclGetErrorString(state)));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw CollectiveError(fmt::format("NCCL did not {} within {} ms", what, timeout_.count()));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  /// Waits until a non-blocking call has been taken.
  void settle(ncclResult_t result, const char* what) {
    if (aborted_) throw CollectiveError(fmt::format("cannot {}: the group was aborted", what));
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    while (result == ncclInProgress) {
      poll(what, deadline);
      if (ncclCommGetAsyncError(communicator_, &result) != ncclSuccess) result = ncclInternalError;
    }
    if (result != ncclSuccess)
      throw CollectiveError(fmt::format("NCCL cannot {}: {}", what, ncclGetErrorString(result)));
  }

  const Rank rank_;
  const int world_;
  const cudaStream_t stream_;
  const std::chrono::milliseconds timeout_;
  const bool adds_rows_;
  ncclComm_t communicator_ = nullptr;
  char* barrier_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::string make_nccl_group_id() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess)
    throw CollectiveError(fmt::format("NCCL cannot make a group id: {}", ncclGetErrorString(result)));
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<Communicator> make_nccl_communicator(const std::string& group_id, Rank rank, int world_size,
                                                     Stream& stream, std::chrono::milliseconds timeout,
                                                     bool adds_rows) {
  return std::make_unique<NcclCommunicator>(group_id, rank, world_size, stream, timeout, adds_rows);
}

}  // namespace helios::cuda
