// Reductions over a block in one fixed order: threads over their strided items, a shuffle tree in each warp, then the
// warps in ascending order. So a row's sum does not depend on the grid around it.
#pragma once

#include "kernels/base/simt.h"

namespace helios {

inline constexpr int kWarpSize = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpSize;

struct AddOp {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct MaxOp {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Every thread of a block of kBlockThreads gives `value` and gets the same result. `part` is kBlockWarps floats of
/// shared memory; the two barriers make it free for the next call.
template <class Op>
__device__ inline float block_reduce(float value, float* part, Op op) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) value = op(value, __shfl_xor_sync(~0u, value, step));
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) part[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = part[0];
  for (int warp = 1; warp < kBlockWarps; ++warp) value = op(value, part[warp]);
  return value;
}

}  // namespace helios
