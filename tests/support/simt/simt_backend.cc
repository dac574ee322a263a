#include "tests/support/simt/simt_backend.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "common/base/check.h"
#include "kernels/base/simt.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace helios::testing {
namespace {

/// All device memory of the process: one reservation, given out front to back with poisoned gaps, never reused. Mapped
/// away whenever nobody holds an Access.
class Arena {
 public:
  static Arena& instance() {
    static Arena arena;
    return arena;
  }

  void* allocate(size_t bytes) {
    std::lock_guard lock(mutex_);
    std::byte* data = base_ + used_;
    used_ += (bytes + kGap + kAlignment - 1) / kAlignment * kAlignment;
    HELIOS_CHECK(used_ <= kReserved, "the emulated device is full", used_);
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
    if (holders_ > 0) protect(PROT_READ | PROT_WRITE);
    return data;
  }
  int64_t used() {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(used_);
  }
  bool owns(const void* address) const { return address >= base_ && address < base_ + kReserved; }

  void acquire() {
    std::lock_guard lock(mutex_);
    if (holders_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void release() {
    std::lock_guard lock(mutex_);
    if (--holders_ == 0) protect(PROT_NONE);
  }

 private:
  static constexpr size_t kReserved = size_t{2} << 30, kGap = 64, kAlignment = 64;

  Arena()
      : base_(static_cast<std::byte*>(
            mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    HELIOS_CHECK(base_ != MAP_FAILED);
    ASAN_POISON_MEMORY_REGION(base_, kReserved);
  }
  void protect(int rights) {
    if (used_ > 0) HELIOS_CHECK(mprotect(base_, used_, rights) == 0, rights);
  }

  std::byte* const base_;
  std::mutex mutex_;
  size_t used_ = 0;
  int holders_ = 0;
};

struct Access {
  Access() { Arena::instance().acquire(); }
  ~Access() { Arena::instance().release(); }
  Access(const Access&) = delete;
};

/// Whether some memory of this process lies there.
bool is_mapped(uint64_t address) {
  constexpr uint64_t kPage = 4096;
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address / kPage * kPage), kPage, &resident) == 0;
}

/// A kernel's argument may point into device memory alone. Any of its words that is an address of this process's other
/// memory is taken for a pointer to it, which a GPU could not follow.
void inspect_argument(const void* argument, size_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadows lie where two counts would point
  constexpr uint64_t kLowest = 1u << 16, kHighest = uint64_t{1} << 47;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(argument) + at, sizeof word);
    if (word < kLowest || word >= kHighest || Arena::instance().owns(reinterpret_cast<const void*>(word))) continue;
    HELIOS_CHECK(!is_mapped(word), "a kernel's argument points into host memory: byte", at, "of", bytes);
  }
#else
  static_cast<void>(argument), static_cast<void>(bytes), static_cast<void>(is_mapped);
#endif
}

/// What was captured, as a graph of the stream beneath.
class SimtGraph final : public Graph {
 public:
  explicit SimtGraph(std::unique_ptr<Graph> calls) : calls_(std::move(calls)) {}
  int num_launches() const override { return calls_->num_launches(); }
  const Graph& calls() const { return *calls_; }

 private:
  std::unique_ptr<Graph> calls_;
};

/// The CPU's stream carries it all, and its thread opens the device memory for each piece of work.
class SimtStream final : public Stream {
 public:
  explicit SimtStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  void copy(void* to, const void* from, size_t bytes) override { copy_rows(to, bytes, from, bytes, bytes, 1); }
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override {
    HELIOS_CHECK(!recording_, "only launches can be captured");
    copies_.push_back(make_graph({[=] {
      for (size_t r = 0; r < rows; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + r * to_pitch, static_cast<const std::byte*>(from) + r * from_pitch,
                    row_bytes);
      }
    }}));
    stream_->replay(*copies_.back());
  }
  void record(Event& event) override { stream_->record(event); }
  void wait(Event& event) override { stream_->wait(event); }

  void begin_capture() override {
    HELIOS_CHECK(!recording_);
    recording_ = std::make_unique<simt::Recording>();
    recording_->inspect = inspect_argument;
  }
  void launch(std::function<void(const Launcher&)> call) override {
    HELIOS_CHECK(recording_ != nullptr, "launches are recorded inside a capture");
    call(Launcher::on_stream(recording_.get()));
  }
  std::unique_ptr<Graph> end_capture() override {
    const std::unique_ptr<simt::Recording> recording = std::move(recording_);
    return std::make_unique<SimtGraph>(make_graph(recording->calls));
  }
  void replay(const Graph& graph) override { stream_->replay(static_cast<const SimtGraph&>(graph).calls()); }
  void synchronize() override { stream_->synchronize(); }

  simt::Recording* recording() const { return recording_.get(); }

 private:
  std::unique_ptr<Graph> make_graph(const std::vector<std::function<void()>>& calls) {
    stream_->begin_capture();
    for (const auto& call : calls) {
      stream_->launch([call](const Launcher&) {
        const Access access;
        call();
      });
    }
    return stream_->end_capture();
  }

  std::vector<std::unique_ptr<Graph>> copies_;  // kept for the stream's life: a test's
  std::unique_ptr<simt::Recording> recording_;
  std::unique_ptr<Stream> stream_;  // last: its thread runs what is above
};

class SimtBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }  // what it stands for
  ThreadPool& host_pool() override { return host_->host_pool(); }
  Memory device_memory(size_t bytes) override {
    if (bytes == 0) return {};
    return Memory(Arena::instance().allocate(bytes), bytes,
                  [](void* data, size_t size) { ASAN_POISON_MEMORY_REGION(data, size); });
  }
  // AddressSanitizer may remember a dead thread's stack where this was mapped.
  Memory pinned_memory(size_t bytes) override {
    Memory memory = host_->pinned_memory(bytes);
    ASAN_UNPOISON_MEMORY_REGION(memory.data(), bytes);
    return memory;
  }
  int64_t free_memory() const override { return int64_t{1} << 30; }
  int64_t reserved_memory() const override { return Arena::instance().used(); }
  std::unique_ptr<Stream> make_stream(std::string_view stream_name) override {
    return std::make_unique<SimtStream>(host_->make_stream(stream_name));
  }
  std::unique_ptr<Event> make_event() override { return host_->make_event(); }

 private:
  const std::unique_ptr<Backend> host_ = make_cpu_backend();
};

class SimtCommunicator final : public Communicator {
 public:
  SimtCommunicator(Communicator& inner, Stream& compute, bool adds_rows)
      : inner_(inner), compute_(static_cast<SimtStream&>(compute)), adds_rows_(adds_rows) {}
  Rank rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    const Access access;
    inner_.gather(in, out, rank_stride);
  }
  // The count lies in device memory, where only kernels see it: the captured exchange has the size of a full step.
  void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t* num_rows,
                       int64_t max_rows) override {
    HELIOS_CHECK(compute_.recording() != nullptr, "exchanges of a step are captured");
    HELIOS_CHECK(Arena::instance().owns(in) && Arena::instance().owns(out) && Arena::instance().owns(num_rows),
                 "exchanges are between device memories");
    const size_t bytes = static_cast<size_t>(max_rows) * row_bytes;
    simt::enqueue(compute_.recording(), [&inner = inner_, in, out, bytes] {
      inner.gather({static_cast<const std::byte*>(in), bytes}, static_cast<std::byte*>(out), bytes);
    });
  }
  bool adds_rows() const override { return adds_rows_; }
  void add_rows(const float* in, float* out, size_t row_words, int64_t max_rows) override {
    HELIOS_CHECK(adds_rows_ && compute_.recording() != nullptr, "sums of a step are captured");
    const size_t count = static_cast<size_t>(max_rows) * row_words;
    simt::enqueue(compute_.recording(), [&inner = inner_, in, out, count] {
      const auto world = static_cast<size_t>(inner.world_size());
      std::vector<float> all(world * count);
      inner.all_gather_words<float>({in, count}, all);
      for (size_t i = 0; i < count; ++i) {
        out[i] = all[i];
        for (size_t rank = 1; rank < world; ++rank) out[i] += all[rank * count + i];
      }
    });
  }
  void barrier() override { inner_.barrier(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  Communicator& inner_;
  SimtStream& compute_;
  const bool adds_rows_;
};

}  // namespace

std::unique_ptr<Backend> make_simt_backend() { return std::make_unique<SimtBackend>(); }

Device simt_device() {
  Device device{.backend = make_simt_backend()};
  device.compute = device.backend->make_stream("compute");
  return device;
}

std::unique_ptr<Communicator> make_simt_communicator(Communicator& inner, Stream& compute, bool adds_rows) {
  return std::make_unique<SimtCommunicator>(inner, compute, adds_rows);
}

}  // namespace helios::testing
