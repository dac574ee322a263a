// Host memory aligned for any vector unit (64 bytes), zeroed, move-only. Large buffers ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace helios {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr size_t kHuge = size_t{2} << 20;
    const size_t alignment = bytes >= kHuge ? kHuge : 64;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    alignment_ = std::align_val_t{alignment};
    data_ = ::operator new(rounded, alignment_);
    if (alignment == kHuge) madvise(data_, rounded, MADV_HUGEPAGE);
    std::memset(data_, 0, rounded);
  }
  ~AlignedBuffer() { ::operator delete(data_, alignment_); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        alignment_(other.alignment_) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(alignment_, other.alignment_);
    return *this;
  }

  size_t bytes() const { return bytes_; }
  void* data() { return data_; }
  const void* data() const { return data_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::align_val_t alignment_{64};
};

}  // namespace helios
