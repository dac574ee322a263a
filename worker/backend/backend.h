// The little that executor, model and frames need from a device: memory, streams, events, graphs.
//
// Written once against this, run on every device. Prepare, then replay: launches are only recorded, inside a capture,
// and a replay allocates nothing. Work on one stream runs in order; between streams only an event orders it, on the CPU
// as on a GPU, so a forgotten wait is a real bug on both. Thread: see each class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/base/launcher.h"
#include "kernels/base/memory.h"

namespace helios {

/// The device failed or ran out of memory. Collective failures inside a graph keep their own type.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A point in a stream. Recorded by the stream's thread of use; synchronize() and query() from any thread that knows
/// (by its own synchronisation) that the record has been enqueued. Reusable.
class Event {
 public:
  virtual ~Event() = default;
  /// Waits until the last record has been reached; at once when there was none. Rethrows what stopped the stream before
  /// that point (CollectiveError, DeviceError).
  virtual void synchronize() = 0;
  /// True when the last record has been reached, or failed.
  virtual bool query() const = 0;
};

/// A captured program: launches with fixed pointers. Must outlive its replays.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual int num_launches() const = 0;
};

/// An ordered queue of device work. One thread enqueues. Nothing here waits for the device except synchronize() and a
/// full queue.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Between device and pinned memory, or within either.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  /// `rows` pieces of `row_bytes`, to_pitch and from_pitch bytes apart.
  virtual void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                         size_t rows) = 0;
  virtual void record(Event& event) = 0;
  /// Later work waits for the event's latest record. A failure before that record fails this stream too.
  virtual void wait(Event& event) = 0;

  /// Between these, launch() records instead of running.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// A kernel or an exchange with fixed pointers; only inside a capture. On the CPU `call` runs at each replay; on CUDA
  /// it runs once, now, and what it launches is captured: so it may read no device memory itself. It may throw
  /// CollectiveError.
  virtual void launch(std::function<void(const Launcher&)> call) = 0;
  virtual void replay(const Graph& graph) = 0;

  /// Waits for everything enqueued; rethrows a failure.
  virtual void synchronize() = 0;
};

/// One device. Thread-safe after construction.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda"
  /// For work on the host while the core is prepared, such as packing weights; on the CPU the kernels' own threads.
  virtual ThreadPool& host_pool() = 0;

  /// Throw DeviceError, naming the size.
  virtual Memory device_memory(size_t bytes) = 0;
  virtual Memory pinned_memory(size_t bytes) = 0;
  /// Bytes that could still be allocated, limits of the container included.
  virtual int64_t free_memory() const = 0;
  /// Device memory that is set aside for this process: what was allocated, and what rounding, graphs, libraries and the
  /// device's own book-keeping take. On the CPU the process's private mappings.
  virtual int64_t reserved_memory() const = 0;

  virtual std::unique_ptr<Stream> make_stream(std::string_view stream_name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

/// What a rank computes on: the backend, and the stream that its graphs are captured on and replayed on. The stream is
/// there before the communicator, because exchanges that a graph captures are ordered on it.
struct Device {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> compute;
};

/// A constant table in device memory; waits for the copy. For preparation. Throws DeviceError.
Memory device_copy(Backend& backend, const void* data, size_t bytes);

/// Kernels run on `num_threads` threads, a stream's own among them; one stream launches.
std::unique_ptr<Backend> make_cpu_backend(int num_threads = 1);

}  // namespace helios
