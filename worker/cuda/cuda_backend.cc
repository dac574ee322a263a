#include "worker/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace helios::cuda {
namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync), "create an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void synchronize() override { check(cudaEventSynchronize(event_), "wait for an event"); }
  bool query() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t captured) : graph_(captured) {
    size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count), "count a graph's nodes");
    num_launches_ = static_cast<int>(count);
    check(cudaGraphInstantiate(&executable_, graph_, 0), "instantiate a graph");
  }
  ~CudaGraph() override {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  int num_launches() const override { return num_launches_; }
  cudaGraphExec_t native() const { return executable_; }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  int num_launches_ = 0;
};

class CudaStream final : public Stream {
 public:
  CudaStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream"); }
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  void copy(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault, stream_), "copy rows");
  }
  void record(Event& event) override {
    check(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "record an event");
  }
  void wait(Event& event) override {
    check(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).native(), 0), "wait for an event on a stream");
  }

  void begin_capture() override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin a capture");
  }
  std::unique_ptr<Graph> end_capture() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "end a capture");
    return std::make_unique<CudaGraph>(graph);
  }
  void launch(std::function<void(const Launcher&)> call) override {
    call(Launcher::on_stream(stream_));  // its kernels and exchanges go to this stream and are captured
    check(cudaGetLastError(), "launch");
  }
  void replay(const Graph& graph) override {
    check(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), stream_), "replay a graph");
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "wait for a stream"); }

  cudaStream_t native() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
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
    return std::make_unique<CudaEvent>();
  }

 private:
  void use() const { check(cudaSetDevice(device_), "select the device"); }  // the current device is a thread's own

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
