// Copies of what lies in mapped memory, for less than touching its pages once costs.
#pragma once

#include <cstddef>

namespace helios {

/// Thread: any, several at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Copies the bytes at `from` to `to`.
  virtual void copy(const void* from, size_t bytes, void* to) const = 0;
};

}  // namespace helios
