// shard_stats: one block a position, as row_normalizer. shard_normalizer: one thread a position, eight words a rank.
#include "kernels/logprobs/shard_stats.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

constexpr int kNormalizerThreads = 64;

__global__ void __launch_bounds__(kBlockThreads) shard_stats_kernel(ShardStatsArgs a) {
  __shared__ PositionScratch scratch;
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LseState subtree = fold_tiles(a.states + p * a.shard.num_tiles, a.shard, scratch);
  int32_t* payload = a.payloads + p * kShardExchangeWords;
  for (int word = static_cast<int>(threadIdx.x); word < kShardExchangeWords; word += kBlockThreads) {
    if (word != shard_stats_word::kMax && word != shard_stats_word::kMass) payload[word] = 0;
  }
  if (threadIdx.x == 0) {
    payload[shard_stats_word::kMax] = float_bits(subtree.max);
    payload[shard_stats_word::kMass] = float_bits(subtree.mass);
  }
  float cut = kNegativeInfinity;
  if (a.positions[p].num_selected == 0)
    cut = lane_max_cut(a.lane_max + p * a.shard.num_tiles * kTileLanes, a.shard.num_tiles, scratch);
  if (threadIdx.x == kWarpSize - 1) a.cuts[p] = cut;
}

__global__ void __launch_bounds__(kNormalizerThreads) shard_normalizer_kernel(ShardNormalizerArgs a) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kNormalizerThreads + threadIdx.x;
  if (p >= *a.num_positions) return;
  LseState subtrees[kCanonicalSegments];
  for (int64_t r = 0; r < a.world_size; ++r) {
    const int32_t* payload = a.gathered + (r * a.max_positions + p) * kShardExchangeWords;
    subtrees[r] = {bits_float(payload[shard_stats_word::kMax]), bits_float(payload[shard_stats_word::kMass])};
  }
  a.normalizers[p] = log_sum_exp(merge_tree(subtrees, a.world_size));
}

}  // namespace

void shard_stats(const ShardStatsArgs& args, const Launcher& on) {
  simt::launch(shard_stats_kernel, dim3(static_cast<unsigned>(args.max_positions)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void shard_normalizer(const ShardNormalizerArgs& args, const Launcher& on) {
  const int64_t blocks = (args.max_positions + kNormalizerThreads - 1) / kNormalizerThreads;
  simt::launch(shard_normalizer_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kNormalizerThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
