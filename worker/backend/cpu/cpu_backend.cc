// The CPU device: a stream is a thread with a bounded queue, a graph is a recorded list of calls.
//
// Streams really run beside the thread that enqueues, so ordering mistakes show as they would on a GPU. A task that
// throws stops its stream: later tasks are skipped, and every event recorded after it carries the exception.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "worker/backend/backend.h"

namespace helios {
namespace {

class CpuEvent final : public Event {
 public:
  /// Returns the number of this record, to be passed to complete().
  uint64_t begin_record() {
    std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  uint64_t last_record() const {
    std::lock_guard lock(mutex_);
    return recorded_;
  }
  void complete(uint64_t record, const std::exception_ptr& failure) {
    // Notified under the lock: whoever waited may destroy the event as soon as it returns.
    std::lock_guard lock(mutex_);
    completed_ = record;
    failure_ = failure;
    reached_.notify_all();
  }
  /// Null when the record was reached in good health.
  std::exception_ptr await(uint64_t record) {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [&] { return completed_ >= record; });
    return failure_;
  }

  void synchronize() override {
    if (const std::exception_ptr failure = await(last_record())) std::rethrow_exception(failure);
  }
  bool query() const override {
    std::lock_guard lock(mutex_);
    return completed_ >= recorded_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable reached_;
  uint64_t recorded_ = 0;
  uint64_t completed_ = 0;
  std::exception_ptr failure_;
};

class CpuGraph final : public Graph {
 public:
  explicit CpuGraph(std::vector<std::function<void(const Launcher&)>> calls) : calls_(std::move(calls)) {}
  int num_launches() const override { return static_cast<int>(calls_.size()); }
  void run(const Launcher& launcher) const {
    for (const auto& call : calls_) call(launcher);
  }

 private:
  std::vector<std::function<void(const Launcher&)>> calls_;
};

struct Task {
  enum class Kind { kCopy, kRecord, kWait, kReplay } kind = Kind::kCopy;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t to_pitch = 0, from_pitch = 0, row_bytes = 0, rows = 0;
  CpuEvent* event = nullptr;
  uint64_t record = 0;
  const CpuGraph* graph = nullptr;
};

class CpuStream final : public Stream {
 public:
  CpuStream(std::string_view name, const Launcher& launcher) : launcher_(launcher), thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), std::string(name.substr(0, 15)).c_str());
  }
  ~CpuStream() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void copy(void* to, const void* from, size_t bytes) override { copy_rows(to, bytes, from, bytes, bytes, 1); }
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override {
    push({.kind = Task::Kind::kCopy,
          .to = static_cast<std::byte*>(to),
          .from = static_cast<const std::byte*>(from),
          .to_pitch = to_pitch,
          .from_pitch = from_pitch,
          .row_bytes = row_bytes,
          .rows = rows});
  }
  void record(Event& event) override {
    auto& e = static_cast<CpuEvent&>(event);
    push({.kind = Task::Kind::kRecord, .event = &e, .record = e.begin_record()});
  }
  void wait(Event& event) override {
    auto& e = static_cast<CpuEvent&>(event);
    push({.kind = Task::Kind::kWait, .event = &e, .record = e.last_record()});
  }
  void begin_capture() override {
    HELIOS_CHECK(!capturing_);
    capturing_ = true;
  }
  void launch(std::function<void(const Launcher&)> call) override {
    HELIOS_CHECK(capturing_, "launches are recorded inside a capture");
    captured_.push_back(std::move(call));
  }
  std::unique_ptr<Graph> end_capture() override {
    HELIOS_CHECK(capturing_);
    capturing_ = false;
    return std::make_unique<CpuGraph>(std::exchange(captured_, {}));
  }
  void replay(const Graph& graph) override {
    push({.kind = Task::Kind::kReplay, .graph = &static_cast<const CpuGraph&>(graph)});
  }
  void synchronize() override {
    CpuEvent done;
    record(done);
    done.synchronize();
  }

 private:
  static constexpr size_t kQueueTasks = 512;

  void push(const Task& task) {
    HELIOS_CHECK(!capturing_, "only launches can be captured");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return size_ < kQueueTasks; });
    tasks_[(head_ + size_) % kQueueTasks] = task;
    ++size_;
    lock.unlock();
    changed_.notify_all();
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return size_ > 0 || closed_; });
      if (size_ == 0) return;
      const Task task = tasks_[head_];
      head_ = (head_ + 1) % kQueueTasks;
      const bool was_full = size_-- == kQueueTasks;
      lock.unlock();
      if (was_full) changed_.notify_all();
      perform(task);
    }
  }

  void perform(const Task& task) {
    switch (task.kind) {
      case Task::Kind::kCopy:
        if (failure_) return;
        for (size_t r = 0; r < task.rows; ++r) {
          std::memcpy(task.to + r * task.to_pitch, task.from + r * task.from_pitch, task.row_bytes);
        }
        return;
      case Task::Kind::kRecord:
        task.event->complete(task.record, failure_);
        return;
      case Task::Kind::kWait:
        if (auto failure = task.event->await(task.record); failure && !failure_) failure_ = failure;
        return;
      case Task::Kind::kReplay:
        if (failure_) return;
        try {
          task.graph->run(launcher_);
        } catch (...) {
          failure_ = std::current_exception();
        }
        return;
    }
  }

  const Launcher launcher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Task, kQueueTasks> tasks_;
  size_t head_ = 0, size_ = 0;
  bool closed_ = false;
  std::exception_ptr failure_;  // stream thread only
  bool capturing_ = false;      // enqueuing thread only, as is captured_
  std::vector<std::function<void(const Launcher&)>> captured_;
  std::thread thread_;  // last: starts when everything above is ready
};

/// Bytes from a one-number file; -1 when there is none ("max", or no such file).
int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int num_threads) : pool_(num_threads) {}
  std::string_view name() const override { return "cpu"; }
  ThreadPool& host_pool() override { return pool_; }

  // Pages come zeroed and only when touched: an idle KV cache costs no memory.
  Memory device_memory(size_t bytes) override {
    if (bytes == 0) return {};
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw DeviceError(fmt::format("cannot allocate {} bytes: {}", bytes, std::strerror(errno)));
    constexpr size_t kHuge = size_t{2} << 20;
    if (bytes >= kHuge) madvise(data, bytes, MADV_HUGEPAGE);
    return Memory(data, bytes, [](void* d, size_t b) { munmap(d, b); });
  }
  Memory pinned_memory(size_t bytes) override { return device_memory(bytes); }

  int64_t free_memory() const override {
    int64_t free = 0;
    std::ifstream info("/proc/meminfo");
    for (std::string key; info >> key;) {
      if (key == "MemAvailable:") {
        info >> free;
        free *= 1024;
        break;
      }
      info.ignore(1 << 10, '\n');
    }
    const int64_t limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
    if (limit > 0 && used >= 0) free = std::min(free, std::max<int64_t>(0, limit - used));
    return free;
  }

  int64_t reserved_memory() const override {
    std::ifstream statm("/proc/self/statm");
    int64_t pages[6] = {};  // size, resident, shared, text, lib, data
    for (int64_t& count : pages) statm >> count;
    return pages[5] * sysconf(_SC_PAGESIZE);
  }

  std::unique_ptr<Stream> make_stream(std::string_view stream_name) override {
    return std::make_unique<CpuStream>(stream_name, pool_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int num_threads) { return std::make_unique<CpuBackend>(num_threads); }

}  // namespace helios
