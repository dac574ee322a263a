// A checkpoint's embedding matrix where this device's embed() reads it.
#pragma once

#include <cstdint>

#include "kernels/base/byte_source.h"
#include "kernels/base/dtype.h"
#include "kernels/base/memory.h"

namespace helios {

class EmbeddingTable {
 public:
  /// `data` is the row-major matrix in host memory, whole; it outlives the table, because the CPU reads it in place (a
  /// mapped file), or through `source` a row at a time, so that none of it becomes resident. Other devices copy it.
  /// Throws what the store throws.
  static EmbeddingTable prepare(const void* data, DType dtype, int64_t elements, WeightStore& store,
                                const ByteSource* source = nullptr);

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  /// Of data(); null where that is read in place.
  const ByteSource* source() const { return source_; }
  /// Of device memory.
  int64_t bytes() const { return static_cast<int64_t>(storage_.bytes()); }

 private:
  const void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  const ByteSource* source_ = nullptr;
  Memory storage_;
};

}  // namespace helios
