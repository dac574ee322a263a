// out[r][n] = sum over k of x[r][k] * w[n][k]: every linear layer, one order of summation for any number of rows.
//
// Each output element has its own FP32 accumulator, fed along k in ascending order by fused multiply-adds, whatever the
// number of rows, the vector width or the thread count. A row-parallel weight (o_proj, down_proj) is cut along k into
// segments; each is summed on its own from zero, and the segments are added as a binary tree. So a row's result does
// not depend on its company, and ranks that own whole subtrees agree bit for bit with a single rank (X1).
//
// BF16 and F16 weights stay so in memory and are widened exactly in registers: on the CPU the bits are those of the
// same weights in FP32. Quantised weights (INT8, FP8 E4M3) stay bytes and are widened exactly too, without their
// scales: what shares a scale along k is a run of its own inside its segment, summed from zero, and enters the
// segment's sum, in ascending order, by one fused multiply-add with the scale. So no weight is rounded, and where runs
// begin follows from the checkpoint alone, not from who owns which part of k. How a matrix lies in memory is its
// device's business: pack() and matmul() are linked together.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/byte_source.h"
#include "kernels/base/dtype.h"
#include "kernels/base/launcher.h"
#include "kernels/base/memory.h"
#include "kernels/base/thread_pool.h"

namespace helios {

/// Rows [0, num_rows) of a row-major [*, row_stride] checkpoint matrix, starting at `data`.
struct WeightRows {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_rows = 0;
  int64_t row_stride = 0;  // elements
  // Of 8-bit types, and only of them: w[r][c] = data[r][c] * scales[r * scale_stride + c / scale_columns].
  const float* scales = nullptr;
  int64_t scale_stride = 0;
  int64_t scale_columns = 0;
  const ByteSource* source = nullptr;  // of `data`; null: read it in place
};

/// Scales that change along k do so every 1 to kMaxScaleColumns columns; a scale of the whole row has no such limit.
inline constexpr int64_t kMaxScaleColumns = 256;
/// A scale is a positive number in [kMinScale, kMaxScale].
inline constexpr float kMinScale = 0x1p-100f, kMaxScale = 0x1p64f;

/// A weight matrix [n, k] as this device's matmul() reads it. Movable.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  /// Stacks the parts' rows (n = sum of num_rows) and takes columns [k_begin, k_end) of each.
  /// `segments`: boundaries along k, relative to k_begin, ascending, first 0 and last k_end - k_begin; two entries mean
  /// one segment. The number of segments is a power of two; segments may be empty.
  /// `stored`: kFloat32, kBFloat16 or kFloat16 (rounded to nearest even where the source is wider; quantised weights
  /// times their scales), or, where holds_eight_bits(), the 8-bit type of all parts, whose scale_columns and row_stride
  /// are equal.
  /// `longest_segment`: of the whole matrix, whose other segments may be other ranks'; 0: the longest of these. A
  /// device whose library multiplies segments of one length takes that one, or the library could choose otherwise on
  /// each rank. Throws what the store throws.
  static PackedMatrix pack(std::span<const WeightRows> parts, int64_t k_begin, int64_t k_end,
                           std::span<const int64_t> segments, DType stored, WeightStore& store,
                           int64_t longest_segment = 0);

  /// Whether this device multiplies 8-bit weights.
  static bool holds_eight_bits();

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return static_cast<int64_t>(storage_.bytes() + scales_.bytes()); }

 private:
  friend struct MatmulKernels;
  friend struct MatmulRows;
  int64_t n_ = 0, k_ = 0;
  DType dtype_ = DType::kFloat32;
  int64_t panel_width_ = 0;  // columns of a panel, by the vector width in use; 0: rows
  std::vector<int64_t> segments_{0, 0};
  int64_t longest_segment_ = 0;
  int64_t scale_rows_ = 0;   // scales of a column; 0: no scales
  int64_t scale_block_ = 0;  // of k; 0: one scale for all of it
  int64_t scale_phase_ = 0;  // of the first column within its block
  Memory storage_;
  Memory scales_;
  std::shared_ptr<void> handle_;
};

/// Pointers are to device memory. Of the rows [0, max_rows) of `x` and `out`, row r belongs to this step when
/// first_row + r < *num_rows: a product over many rows can be cut into blocks of fixed size. Nothing is written for
/// other rows on the CPU; elsewhere they may be multiplied too, each on its own, so that no garbage reaches a row of
/// the step.
struct MatmulArgs {
  const float* x = nullptr;  // [max_rows, k], rows x_stride apart
  int64_t x_stride = 0;
  const PackedMatrix* w = nullptr;
  const float* bias = nullptr;  // [n] or null; added once, after the tree
  float* out = nullptr;         // [max_rows, n], rows out_stride apart
  int64_t out_stride = 0;
  const int32_t* num_rows = nullptr;  // [1]
  int64_t first_row = 0;
  int64_t max_rows = 0;
  // A promise: x holds values of this type alone. A device may then read less, or multiply two of k at once; the result
  // is the same, except that on x86-64 subnormal numbers are zeros where this is BF16 and the weights are, or 8 bits.
  DType x_rounded_to = DType::kFloat32;
};

/// Bytes of scratch that matmul() needs for up to `max_rows` rows; `num_threads` of the host where kernels run there.
int64_t matmul_scratch_bytes(const PackedMatrix& w, int64_t max_rows, int num_threads);

/// Allocates nothing: `scratch` is matmul_scratch_bytes() long and 64-byte aligned.
void matmul(const MatmulArgs& args, void* scratch, const Launcher& on);

/// Plain float64 definition, row-major weights (of quantised ones, value times scale); tests only.
void matmul_reference(const float* x, int64_t m, int64_t k, const double* w, int64_t n, const float* bias, double* out);

}  // namespace helios
