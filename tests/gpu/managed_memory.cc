#include "tests/gpu/managed_memory.h"

#include <cuda_runtime.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "common/base/check.h"

namespace {

constexpr size_t kArenaBytes = size_t{4} << 30, kStackBytes = size_t{16} << 20;
constexpr size_t kHeader = 64;  // before each allocation; so all are aligned to that

/// What lies before an allocation.
struct Header {
  void* begin = nullptr;  // as malloc() or the arena gave it
  int size_class = -1;    // of the arena: log2 of its bytes; -1: malloc
};

/// Powers of two from one managed allocation, reused by size; closed until open().
class Arena {
 public:
  void open(std::byte* data) { data_ = data; }
  void* allocate(size_t bytes, size_t alignment) {
    const size_t wanted = bytes + kHeader + alignment;
    const int size_class = std::bit_width(wanted - 1);
    Header header;
    if (data_) {
      header = {take(size_class), size_class};
    } else {
      header.begin = std::malloc(wanted);
    }
    if (!header.begin) return nullptr;
    const auto first = reinterpret_cast<uintptr_t>(header.begin) + kHeader;
    const uintptr_t at = (first + alignment - 1) / alignment * alignment;
    reinterpret_cast<Header*>(at)[-1] = header;
    return reinterpret_cast<void*>(at);
  }
  void release(void* p) {
    if (!p) return;
    const Header header = static_cast<Header*>(p)[-1];
    if (header.size_class < 0) return std::free(header.begin);
    const std::lock_guard lock(mutex_);
    auto& top = free_[static_cast<size_t>(header.size_class)];
    *static_cast<void**>(header.begin) = top;
    top = header.begin;
  }

 private:
  void* take(int size_class) {
    const std::lock_guard lock(mutex_);
    void*& top = free_.at(static_cast<size_t>(size_class));
    if (top) {
      void* const taken = top;
      top = *static_cast<void**>(taken);
      return taken;
    }
    const size_t bytes = size_t{1} << size_class;
    if (used_ + bytes > kArenaBytes) return nullptr;
    void* const taken = data_ + used_;
    used_ += bytes;
    return taken;
  }

  std::mutex mutex_;
  std::byte* data_ = nullptr;
  size_t used_ = 0;
  std::array<void*, 48> free_{};
};
constinit Arena arena;

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const p = arena.allocate(bytes, alignment);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(size_t bytes) { return allocate_or_throw(bytes, kHeader); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, std::max(kHeader, static_cast<size_t>(alignment)));
}
void operator delete(void* p) noexcept { arena.release(p); }
void operator delete(void* p, size_t) noexcept { arena.release(p); }
void operator delete(void* p, std::align_val_t) noexcept { arena.release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { arena.release(p); }

namespace helios::testing {

std::string share_memory_with_gpu() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  int device = 0, concurrent = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (!concurrent) return "the device and the host cannot use managed memory at the same time";
  void* data = nullptr;
  status = cudaMallocManaged(&data, kArenaBytes);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  arena.open(static_cast<std::byte*>(data));
  return {};
}

void run_on_shared_stack(const std::function<void()>& body) {
  void* const stack = ::operator new (kStackBytes, std::align_val_t{4096});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  HELIOS_CHECK(pthread_attr_setstack(&attributes, stack, kStackBytes) == 0);
  pthread_t thread;
  const auto call = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  HELIOS_CHECK(pthread_create(&thread, &attributes, call, const_cast<std::function<void()>*>(&body)) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  ::operator delete (stack, std::align_val_t{4096});
}

}  // namespace helios::testing
