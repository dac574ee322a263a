// What goes before and after a matrix product by a library that multiplies equal types: FP32 inputs to pieces of the
// weights' type, products of segments and pieces to the result. CUDA only; the emulator runs them in tests.
//
// With BF16 weights an FP32 input is the exact sum of three BF16 pieces (8 bits of its 24 each), which take part as
// rows of their own: the product is then as exact as with FP32 inputs, and costs a decode no more memory traffic.
// Inputs that are values of the weights' type already are one piece.
//
// F16 holds 11 bits, and a range too narrow for FP32's: so each row is first brought into it, segment by segment, by a
// power of two that takes its largest finite magnitude m to [2^14, 2^15). The three pieces are then p1 = f16(x), p2 =
// f16((x - p1) 2^11) and p3 = f16((x - p1 - p2 2^-11) 2^22), each rounded to nearest, so that none is larger than 2^15.
// p1 + p2 2^-11 + p3 2^-22 is x, exactly down to m 2^-37; of what is smaller, less than m 2^-60 is lost. No sum can
// overflow: 2^15 times F16's largest weight, over 2^20 of k, is 2^51. The power follows from a row's own elements in
// the segment, which no degree and no company changes (X1).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/transformer/matmul_rows.h"

namespace helios {

inline constexpr int kMostPieces = 3;
inline constexpr int kF16PieceBits = 11;  // between one piece's unit and the next one's
inline constexpr int kF16Exponent = 14;   // of a row's largest magnitude, scaled

/// Whether pieces are of rows that were scaled. BF16 has FP32's range.
constexpr bool scales_pieces(DType weights, int pieces) { return weights == DType::kFloat16 && pieces > 1; }

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
  int32_t* exponents = nullptr;  // [segments, padded_rows], of the powers of two; written where scales_pieces()
};
void stage_inputs(const StageInputsArgs& args, const Launcher& on);

/// out = bias + the tree over segments of the sums of pieces, small ones first, each divided by its row's power of two;
/// for rows of the step alone.
struct FinishProductsArgs {
  const float* products = nullptr;  // [segments, pieces, padded_rows, padded_n]
  const int32_t* num_rows = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t padded_rows = 0;
  RowsView w;
  int pieces = 1;
  const int32_t* exponents = nullptr;  // as stage_inputs() wrote them
  const float* bias = nullptr;         // [n] or null
  float* out = nullptr;                // rows out_stride apart; row 0 is row first_row of the step
  int64_t out_stride = 0;
};
void finish_products(const FinishProductsArgs& args, const Launcher& on);

}  // namespace helios
