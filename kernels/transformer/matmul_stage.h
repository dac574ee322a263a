// What goes before and after a matrix product by a library that multiplies equal types: FP32 inputs to pieces of the
// weights' type, products of segments and pieces to the result. CUDA only; the emulator runs them in tests.
//
// With BF16 weights an FP32 input is the exact sum of three BF16 pieces (8 bits of its 24 each), which take part as
// rows of their own: the product is then as exact as with FP32 inputs, and costs a decode no more memory traffic.
// Inputs that are BF16 values already are one piece.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/transformer/matmul_rows.h"

namespace helios {

inline constexpr int kMostPieces = 3;

/// Rows [first_row, first_row + rows) of x to staged [segments, pieces, padded_rows, segment_k] in the weights' type;
/// zeros where a row is past `rows` or past the step's, or an element past its segment.
struct StageInputsArgs {
  const float* x = nullptr;  // [.., k], rows x_stride apart; row 0 is row first_row of the step
  int64_t x_stride = 0;
  const int32_t* num_rows = nullptr;  // [1]
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t padded_rows = 0;  // at least `rows`
  RowsView w;
  int pieces = 1;
  void* staged = nullptr;
};
void stage_inputs(const StageInputsArgs& args, const Launcher& on);

/// out = bias + the tree over segments of the sums of pieces, the small pieces first; for rows of the step alone.
struct FinishProductsArgs {
  const float* products = nullptr;  // [segments, pieces, padded_rows, padded_n]
  const int32_t* num_rows = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t padded_rows = 0;
  RowsView w;
  int pieces = 1;
  const float* bias = nullptr;  // [n] or null
  float* out = nullptr;         // rows out_stride apart; row 0 is row first_row of the step
  int64_t out_stride = 0;
};
void finish_products(const FinishProductsArgs& args, const Launcher& on);

}  // namespace helios
