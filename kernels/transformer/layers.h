// The row-wise operations between matrix products. FP32 in and out; each row alone, in a fixed order (X1).
//
// `round_bf16` rounds each result to the nearest BF16 value (kept as FP32): the --dtype bfloat16 mode rounds every
// matrix input once.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/launcher.h"

namespace helios {

/// out[r] = table[tokens[r]], widened exactly. `table` is the checkpoint's own [vocab, hidden] row-major matrix.
/// A negative token gives a zero row. `round_bf16` for F32 tables in bfloat16 mode.
struct EmbedArgs {
  const void* table = nullptr;
  DType dtype = DType::kFloat32;
  int64_t hidden = 0;
  const int32_t* tokens = nullptr;  // [rows]
  int64_t rows = 0;
  float* out = nullptr;  // [rows, hidden]
  bool round_bf16 = false;
};
void embed(const EmbedArgs& args, const Launcher& on);

/// out = x / sqrt(mean(x^2) + eps) * weight. `x` and `out` may be the same.
struct RmsNormArgs {
  const float* x = nullptr;  // [rows, hidden], rows x_stride apart
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [hidden]
  float eps = 0.0f;
  int64_t rows = 0;
  int64_t hidden = 0;
  float* out = nullptr;  // [rows, hidden], rows out_stride apart
  int64_t out_stride = 0;
  bool round_bf16 = false;
};
void rms_norm(const RmsNormArgs& args, const Launcher& on);

/// residual[r][c] += tree over the ranks' partial sums. `partials` is [world, rows, hidden], rank-major, as gathered;
/// world 1, 2, 4 or 8; the tree is the upper part of matmul's. `bias` [hidden] or null is added to the tree's sum first.
struct AddPartialsArgs {
  const float* partials = nullptr;
  int world = 1;
  int64_t rows = 0;
  int64_t hidden = 0;
  const float* bias = nullptr;
  float* residual = nullptr;  // [rows, hidden]
};
void add_partials(const AddPartialsArgs& args, const Launcher& on);

/// out[r][i] = silu(gate_up[r][i]) * gate_up[r][inner + i].
struct GatedMlpArgs {
  const float* gate_up = nullptr;  // [rows, 2 * inner]
  int64_t rows = 0;
  int64_t inner = 0;
  float* out = nullptr;  // [rows, inner]
  bool round_bf16 = false;
};
void gated_mlp(const GatedMlpArgs& args, const Launcher& on);

}  // namespace helios
