// Where a kernel runs: the thread pool of a CPU device, or the stream of a GPU.
//
// A kernel has one name and one argument struct on every device; which implementation a program has is decided when it
// is linked. CPU kernels return when they are done. CUDA kernels enqueue on the stream, allocate nothing, never wait,
// and may be captured: what varies from step to step they read from device memory, never from an argument.
#pragma once

#include "kernels/base/thread_pool.h"

namespace helios {

class Launcher {
 public:
  Launcher(ThreadPool& pool) : pool_(&pool) {}  // a pool is a launcher: callers on the CPU pass it as it is
  /// `stream`: a cudaStream_t.
  static Launcher on_stream(void* stream) { return Launcher(stream); }

  ThreadPool& pool() const { return *pool_; }
  void* stream() const { return stream_; }

 private:
  explicit Launcher(void* stream) : stream_(stream) {}

  ThreadPool* pool_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace helios
