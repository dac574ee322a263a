// The row-wise operations between matrix products. FP32 in and out; each row alone, in a fixed order (X1).
//
// Pointers are to device memory. Rows [0, *num_rows) are this step's, at most max_rows; nothing is written for the
// rest. `round_to` kBFloat16 or kFloat16 rounds each result to the nearest value of that type (kept as FP32): --dtype
// bfloat16 and float16 round every matrix input once. kFloat32 rounds nothing.
#pragma once

#include <cstdint>

#include "kernels/base/byte_source.h"
#include "kernels/base/dtype.h"
#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"

namespace helios {

/// out[r] = table[tokens[r]], widened exactly. `table` is the checkpoint's own [vocab, hidden] row-major matrix.
/// A negative token gives a zero row. `round_to` for tables of another type than it.
struct EmbedArgs {
  const void* table = nullptr;
  DType dtype = DType::kFloat32;
  int64_t hidden = 0;
  const int32_t* tokens = nullptr;    // [max_rows]
  const int32_t* num_rows = nullptr;  // [1]
  int64_t max_rows = 0;
  float* out = nullptr;  // [max_rows, hidden]
  DType round_to = DType::kFloat32;
  const ByteSource* source = nullptr;  // of `table`, on the CPU; null: read it in place
};
void embed(const EmbedArgs& args, const Launcher& on);

/// out[r] = x[i] / sqrt(mean(x[i]^2) + eps) * weight, with i = row_index[r], or r where there is no index. Without an
/// index `x` and `out` may be the same.
struct RmsNormArgs {
  const float* x = nullptr;  // rows of [hidden], x_stride apart
  int64_t x_stride = 0;
  const int32_t* row_index = nullptr;  // [max_rows] or null
  const float* weight = nullptr;       // [hidden]
  float eps = 0.0f;
  const int32_t* num_rows = nullptr;  // [1]
  int64_t max_rows = 0;
  int64_t hidden = 0;
  float* out = nullptr;  // [max_rows, hidden], rows out_stride apart
  int64_t out_stride = 0;
  DType round_to = DType::kFloat32;
};
void rms_norm(const RmsNormArgs& args, const Launcher& on);

/// residual[r][c] += tree over the ranks' partial sums. `partials` is [world, max_rows, hidden], as gathered; world 1,
/// 2, 4 or 8; the tree is the upper part of matmul's. `bias` [hidden] or null is added to the tree's sum first.
/// `counters`, if any, gets the words that a rank sent for it: rows * hidden where there is a peer.
struct AddPartialsArgs {
  const float* partials = nullptr;
  int world = 1;
  const int32_t* num_rows = nullptr;  // [1]
  int64_t max_rows = 0;
  int64_t hidden = 0;
  const float* bias = nullptr;
  float* residual = nullptr;  // [max_rows, hidden]
  StepCounters* counters = nullptr;
};
void add_partials(const AddPartialsArgs& args, const Launcher& on);

/// out[r][i] = silu(gate_up[r][i]) * gate_up[r][inner + i].
struct GatedMlpArgs {
  const float* gate_up = nullptr;     // [max_rows, 2 * inner]
  const int32_t* num_rows = nullptr;  // [1]
  int64_t max_rows = 0;
  int64_t inner = 0;
  float* out = nullptr;  // [max_rows, inner]
  DType round_to = DType::kFloat32;
};
void gated_mlp(const GatedMlpArgs& args, const Launcher& on);

}  // namespace helios
