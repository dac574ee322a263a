// The best 32 keys that a warp has seen, one a lane, sorted: lane 0 holds the largest. A block's warps merge as a tree.
//
// A batch of 32 keys is sorted by a bitonic network of shuffles and merged with the best so far; a batch without a key
// above the worst kept one, which is nearly every batch, costs one vote. Keys are unsigned; 0 is no key. Every step is
// a comparison, so the result is that of sorting everything, whatever the order of arrival.
#pragma once

#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"

namespace helios {

template <class Key>
class WarpTopKeys {
 public:
  __device__ Key best() const { return best_; }

  /// Every lane gives a key.
  __device__ void insert(Key key) {
    if (__any_sync(~0u, key > worst_)) merge_sorted(sorted(key));
  }

  /// Every lane gives a key of another such list, lane 0 the largest.
  __device__ void merge_sorted(Key other) {
    const int lane = static_cast<int>(threadIdx.x % kWarpSize);
    // The larger of each pair, one list ascending and one descending: the best 32 of both, as a bitonic sequence.
    const Key mirrored = __shfl_sync(~0u, other, kWarpSize - 1 - lane);
    best_ = mirrored > best_ ? mirrored : best_;
    for (int step = kWarpSize / 2; step > 0; step /= 2) best_ = exchanged(best_, step, (lane & step) == 0);
    worst_ = __shfl_sync(~0u, best_, kWarpSize - 1);
  }

 private:
  static __device__ Key exchanged(Key key, int step, bool keep_larger) {
    const Key other = __shfl_xor_sync(~0u, key, step);
    return (other > key) == keep_larger ? other : key;
  }
  static __device__ Key sorted(Key key) {
    const int lane = static_cast<int>(threadIdx.x % kWarpSize);
    for (int size = 2; size <= kWarpSize; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        key = exchanged(key, step, ((lane & step) == 0) == ((lane & size) == 0));
      }
    }
    return key;
  }

  Key best_ = 0;
  Key worst_ = 0;  // lane 31's, known to every lane
};

/// Merges the lists of a block of kBlockThreads; warp 0 gets the result. `lists` is [kBlockWarps][32] of shared memory,
/// free for the next call when this one returns.
template <class Key>
__device__ void merge_block(WarpTopKeys<Key>& own, Key (*lists)[kWarpSize]) {
  const int warp = static_cast<int>(threadIdx.x / kWarpSize), lane = static_cast<int>(threadIdx.x % kWarpSize);
  for (int half = kBlockWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) lists[warp][lane] = own.best();
    __syncthreads();
    if (warp < half) own.merge_sorted(lists[warp + half][lane]);
  }
  __syncthreads();
}

}  // namespace helios
