// A prefix sum over the 256 threads of a block, in integers: what walks a histogram from its top.
#pragma once

#include <cstdint>

#include "kernels/base/block_reduce.cuh"

namespace helios {

/// The sum of the values of threads 0 to this one. `part` is kBlockWarps words of shared memory; the two barriers make
/// it free for the next call.
__device__ inline uint64_t block_prefix_sum(uint64_t value, uint64_t* part) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int step = 1; step < kWarpSize; step <<= 1) {
    const uint64_t other = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += other;
  }
  __syncthreads();
  if (lane == kWarpSize - 1) part[warp] = value;
  __syncthreads();
  for (int w = 0; w < warp; ++w) value += part[w];
  return value;
}

/// The largest of the block's values, for every thread. `part` as above.
__device__ inline uint64_t block_max(uint64_t value, uint64_t* part) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) {
    const uint64_t other = __shfl_xor_sync(~0u, value, step);
    if (other > value) value = other;
  }
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) part[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = part[0];
  for (int w = 1; w < kBlockWarps; ++w) {
    if (part[w] > value) value = part[w];
  }
  return value;
}

}  // namespace helios
