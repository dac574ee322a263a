// The library that multiplies for matmul() on a device that is not the host: cuBLASLt on CUDA, plain loops on the
// emulator.
//
// It is asked for one thing, so that little code needs a GPU to be proven: whole blocks of rows of one height, which
// matmul_stage.h arranges.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/transformer/matmul_rows.h"

namespace helios {

/// Thread: whoever prepares the core.
class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;

  /// Rows of every product with weights of this type, pieces counted; at least kMostPieces.
  virtual int64_t rows(DType weights) const = 0;
  virtual size_t workspace_bytes() const = 0;

  /// Chooses how products of `rows` rows with weights of this view's type and shape are computed, and makes sure that
  /// they can be; its data is not read. Throws std::runtime_error, naming the shape.
  virtual void prepare(const RowsView& w, int64_t rows) = 0;

  /// Enqueues products [segments, rows, padded_n] FP32 = staged [segments, rows, segment_k] times the transpose of the
  /// weights [segments, padded_n, segment_k]; prepared. A row's bits follow from the row alone. Pointers are to device
  /// memory, aligned to 16 bytes, `workspace` to 256. Throws std::runtime_error.
  virtual void multiply(const RowsView& w, const void* staged, int64_t rows, float* products, void* workspace,
                        void* stream) = 0;
};

/// Prepares every product that matmul() may ask for with weights of this view, so that what cannot be computed is known
/// when the weights are loaded. Throws std::runtime_error.
void prepare_products(const RowsView& w, MatmulLibrary& library);

}  // namespace helios
