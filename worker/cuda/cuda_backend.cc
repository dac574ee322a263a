#include "worker/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

namespace helios::cuda {
namespace {

/// The current device is a thread's own, and whatever a thread first asks of CUDA opens a context on it: on device 0,
/// for a thread that did not choose.
void use_device(int device) { check(cudaSetDevice(device), "select the device"); }

template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};
template <class Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<kDestroy>>;

/// Waited for by threads that have nothing else to do with the device.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device) : device_(device) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "create an event");
    event_.reset(event);
  }
  void synchronize() override {
    use_device(device_);
    check(cudaEventSynchronize(native()), "wait for an event");
  }
  bool query() const override {
    use_device(device_);
    return cudaEventQuery(native()) != cudaErrorNotReady;
  }
  cudaEvent_t native() const { return event_.get(); }

 private:
  const int device_;
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

class CudaGraph final : public Graph {
 public:
  /// Takes `captured`. All that replays need is on the device then: the first allocates no more than the others.
  CudaGraph(cudaGraph_t captured, cudaStream_t stream) : graph_(captured) {
    size_t count = 0;
    check(cudaGraphGetNodes(captured, nullptr, &count), "count a graph's nodes");
    num_launches_ = static_cast<int>(count);
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, captured, 0), "instantiate a graph");
    executable_.reset(executable);
    check(cudaGraphUpload(executable, stream), "upload a graph");
  }
  int num_launches() const override { return num_launches_; }
  cudaGraphExec_t native() const { return executable_.get(); }

 private:
  Owned<cudaGraph_t, cudaGraphDestroy> graph_;
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> executable_;
  int num_launches_ = 0;
};

class CudaStream final : public Stream {
 public:
  CudaStream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    stream_.reset(stream);
  }
  ~CudaStream() override { drop_capture(); }

  void copy(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native()), "copy");
  }
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault, native()), "copy rows");
  }
  void record(Event& event) override {
    check(cudaEventRecord(static_cast<CudaEvent&>(event).native(), native()), "record an event");
  }
  void wait(Event& event) override {
    check(cudaStreamWaitEvent(native(), static_cast<CudaEvent&>(event).native(), 0), "wait for an event on a stream");
  }

  // What other threads do meanwhile, the exchange's library among them, is no part of the capture and does not end it.
  void begin_capture() override {
    check(cudaStreamBeginCapture(native(), cudaStreamCaptureModeThreadLocal), "begin a capture");
  }
  std::unique_ptr<Graph> end_capture() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(native(), &graph), "end a capture");
    return std::make_unique<CudaGraph>(graph, native());
  }
  void launch(std::function<void(const Launcher&)> call) override {
    call(Launcher::on_stream(native()));  // its kernels and exchanges go to this stream and are captured
    check(cudaGetLastError(), "launch");
  }
  void replay(const Graph& graph) override {
    check(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), native()), "replay a graph");
  }
  void synchronize() override { check(cudaStreamSynchronize(native()), "wait for a stream"); }

  cudaStream_t native() const { return stream_.get(); }

 private:
  /// A capture that an error cut short holds what it captured, exchanges among it, and their group waits for that.
  void drop_capture() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(native(), &status) != cudaSuccess || status == cudaStreamCaptureStatusNone) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(native(), &graph);
    if (graph) cudaGraphDestroy(graph);
  }

  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, int host_threads) : device_(device), host_pool_(host_threads), free_before_(free_memory()) {}
  std::string_view name() const override { return "cuda"; }
  ThreadPool& host_pool() override { return host_pool_; }

  Memory device_memory(size_t bytes) override {
    if (bytes == 0) return {};  // an empty shard's
    use();
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), fmt::format("allocate {} bytes of device memory", bytes).c_str());
    Memory memory(data, bytes, [](void* p, size_t) { cudaFree(p); });
    check(cudaMemset(data, 0, bytes), "clear device memory");
    check(cudaStreamSynchronize(cudaStreamLegacy), "clear device memory");  // our streams do not wait for that one
    return memory;
  }
  Memory pinned_memory(size_t bytes) override {
    if (bytes == 0) return {};
    use();
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
          fmt::format("allocate {} bytes of pinned memory", bytes).c_str());
    std::memset(data, 0, bytes);
    return Memory(data, bytes, [](void* p, size_t) { cudaFreeHost(p); });
  }
  int64_t free_memory() const override {
    use();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "read free memory");
    return static_cast<int64_t>(free);
  }
  /// What the device has less than before; the context was there already. Another process's share would count too.
  int64_t reserved_memory() const override { return std::max<int64_t>(0, free_before_ - free_memory()); }
  std::unique_ptr<Stream> make_stream(std::string_view) override {
    use();
    return std::make_unique<CudaStream>();
  }
  std::unique_ptr<Event> make_event() override {
    use();
    return std::make_unique<CudaEvent>(device_);
  }

 private:
  void use() const { use_device(device_); }

  const int device_;
  ThreadPool host_pool_;
  const int64_t free_before_;
};

}  // namespace

void check(cudaError_t status, const char* what, std::source_location place) {
  if (status == cudaSuccess) return;
  const std::string_view file = place.file_name();
  throw DeviceError(fmt::format("CUDA cannot {}: {}, {} ({}:{})", what, cudaGetErrorName(status),
                                cudaGetErrorString(status), file.substr(file.rfind('/') + 1), place.line()));
}

std::unique_ptr<Backend> make_backend(int device, int host_threads) {
  return std::make_unique<CudaBackend>(device, host_threads);
}

cudaStream_t native_stream(Stream& stream) { return static_cast<CudaStream&>(stream).native(); }

}  // namespace helios::cuda
