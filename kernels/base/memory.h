// Device or pinned memory with one owner, and what weights are prepared with. Allocated while a core is prepared, by
// whoever knows the device; what lies in it is read by kernels alone.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/base/thread_pool.h"

namespace helios {

/// Zeroed device or pinned host memory; move-only owner. Aligned for any vector unit (64 bytes).
class Memory {
 public:
  using Release = void (*)(void* data, size_t bytes);

  Memory() = default;
  Memory(void* data, size_t bytes, Release release) : data_(data), bytes_(bytes), release_(release) {}
  ~Memory() {
    if (data_) release_(data_, bytes_);
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), release_(other.release_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Release release_ = nullptr;
};

/// What weights are prepared with: threads of the host to arrange them, memory of the device to stay in. Thread: the
/// loader's.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual ThreadPool& pool() = 0;
  /// Zeroed device memory. Throws what the device throws.
  virtual Memory allocate(size_t bytes) = 0;
  /// Host to device memory; done on return.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;

  /// What an implementation of matmul keeps for all matrices of a model (a library's handle); each matrix holds it.
  std::shared_ptr<void> matmul_handle;
};

}  // namespace helios
