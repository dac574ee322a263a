#include "kernels/logprobs/shard_stats.h"

#include <algorithm>
#include <array>

namespace helios {

void shard_stats(const ShardStatsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const ShardStatsArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    const int num_tiles = launch->shard.num_tiles;
    for (int64_t p = begin; p < end; ++p) {
      const LseState* states = launch->states + p * num_tiles;
      const LseState subtree = fold_tiles(states, launch->shard);
      int32_t* payload = launch->payloads + p * kShardExchangeWords;
      std::fill(payload, payload + kShardExchangeWords, 0);
      payload[shard_stats_word::kMax] = float_bits(subtree.max);
      payload[shard_stats_word::kMass] = float_bits(subtree.mass);
      launch->cuts[p] =
          position_cut(launch->positions[p], states, launch->lane_max + p * num_tiles * kTileLanes, num_tiles);
    }
  });
}

void shard_normalizer(const ShardNormalizerArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const ShardNormalizerArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 16, [launch](int64_t begin, int64_t end) {
    std::array<LseState, kCanonicalSegments> subtrees;
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t r = 0; r < launch->world_size; ++r) {
        const int32_t* payload = launch->gathered + (r * launch->max_positions + p) * kShardExchangeWords;
        subtrees[r] = {bits_float(payload[shard_stats_word::kMax]), bits_float(payload[shard_stats_word::kMass])};
      }
      launch->normalizers[p] = log_sum_exp(merge_tree(subtrees.data(), launch->world_size));
    }
  });
}

}  // namespace helios
