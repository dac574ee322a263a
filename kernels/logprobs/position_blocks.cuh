// What the launches with one block a position share: folding a shard's tiles, bounding its 32nd best logit, and merging
// the keys that its tiles kept. And the grids, bounded by maxima that are fixed when the launch is prepared.
#pragma once

#include "common/contract/completion_layout.h"
#include "kernels/base/step_counters.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"
#include "kernels/logprobs/warp_top_keys.cuh"

#include <type_traits>

namespace helios {

/// Blocks of a launch over (position, tile) items, which they share in strides: enough to fill a device several times
/// over, few enough that a step without positions costs next to nothing (R24).
inline dim3 item_grid(int64_t max_positions, const TilesView& shard) {
  constexpr int64_t kMostBlocks = 2048;
  const int64_t items = max_positions * shard.num_tiles;
  return dim3(static_cast<unsigned>(items < kMostBlocks ? items : kMostBlocks));
}

/// Shared memory of the functions below. No constructor runs there on a GPU, so none may be asked for.
struct PositionScratch {
  alignas(LseState) unsigned char segment_states[kCanonicalSegments * sizeof(LseState)];
  uint32_t maxima[kBlockWarps][kWarpSize];
  __device__ LseState* segments() { return reinterpret_cast<LseState*>(segment_states); }
};
static_assert(std::is_trivially_default_constructible_v<PositionScratch>);

/// One warp: tiles of one segment in their order, as on the CPU. Every lane gets the state.
__device__ inline LseState fold_segment(const LseState* states, int count) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  float max = kNegativeInfinity;
  for (int t = lane; t < count; t += kWarpSize) max = states[t].max > max ? states[t].max : max;
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, max, step);
    max = other > max ? other : max;
  }
  const float shift = max == kNegativeInfinity ? 0.0f : max;
  float mass = 0.0f;
  for (int first = 0; first < count; first += kWarpSize) {
    const int t = first + lane;
    const float scaled = t < count ? rounded_product(states[t].mass, exp_nonpositive(states[t].max - shift)) : 0.0f;
    const int n = count - first < kWarpSize ? count - first : kWarpSize;
    for (int i = 0; i < n; ++i) mass = rounded_sum(mass, __shfl_sync(~0u, scaled, i));
  }
  return {max, mass};
}

/// A block of kBlockThreads: the shard's whole subtree. Thread 0 gets it.
__device__ inline LseState fold_tiles(const LseState* states, const ShardTilesView& shard, PositionScratch& scratch) {
  for (int s = static_cast<int>(threadIdx.x / kWarpSize); s < shard.num_segments; s += kBlockWarps) {
    const int first = shard.segment_first_tile[s];
    const LseState folded = fold_segment(states + first, shard.segment_first_tile[s + 1] - first);
    if (threadIdx.x % kWarpSize == 0) scratch.segments()[s] = folded;
  }
  __syncthreads();
  return threadIdx.x == 0 ? merge_tree(scratch.segments(), shard.num_segments) : LseState{};
}

/// A block: the 32nd largest of a position's lane maxima, or -inf. Lane 31 of warp 0 gets it.
__device__ inline float lane_max_cut(const float* lane_max, int num_tiles, PositionScratch& scratch) {
  WarpTopKeys<uint32_t> best;
  const int count = num_tiles * kTileLanes;
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  for (int first = static_cast<int>(threadIdx.x) - lane; first < count; first += kBlockThreads) {
    best.insert(first + lane < count ? ordered_bits(lane_max[first + lane]) : 0u);
  }
  merge_block(best, scratch.maxima);
  return best.best() == 0 ? kNegativeInfinity : from_ordered_bits(best.best());
}

/// A block: the best 32 of the keys that launch 3 kept of a position's tiles. Warp 0 gets them, one a lane, kNoKey
/// where there are fewer. Adds the logits of the tiles that were read to `counters`, unless null. `lists`: shared
/// memory.
__device__ inline SortKey merge_tile_keys(const SortKey* keys, const int32_t* counts, const TilesView& shard,
                                          StepCounters* counters, SortKey (*lists)[kWarpSize]) {
  WarpTopKeys<SortKey> best;
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  unsigned read = 0;
  // Each warp takes 32 neighbouring tiles at a time: a lane a tile's count, then the tiles that kept keys one by one.
  for (int first = static_cast<int>(threadIdx.x) - lane; first < shard.num_tiles; first += kBlockThreads) {
    const int32_t count = first + lane < shard.num_tiles ? counts[first + lane] : kTileNotRead;
    if (count != kTileNotRead) read += static_cast<unsigned>(shard.tiles[first + lane].width);
    for (unsigned kept = __ballot_sync(~0u, count > 0); kept != 0; kept &= kept - 1) {
      const int tile = __ffs(static_cast<int>(kept)) - 1;
      const int32_t tile_count = __shfl_sync(~0u, count, tile);
      best.insert(lane < tile_count ? keys[static_cast<int64_t>(first + tile) * kKeptSortKeys + lane] : kNoKey);
    }
  }
  read = __reduce_add_sync(~0u, read);
  if (counters && lane == 0 && read > 0) {  // positions are blocks of one launch: they add in turn
    atomicAdd(reinterpret_cast<unsigned long long*>(&counters->logprob_logits_read), 0ull + read);
  }
  merge_block(best, lists);
  return best.best();
}

}  // namespace helios
