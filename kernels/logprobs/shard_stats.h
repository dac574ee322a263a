// Launches 2 and 3 at TP > 1: this shard's tiles to one payload, and every shard's payload to one normaliser.
//
// Between them lies the first exchange. A shard's maximum and mass are those of a whole subtree, so finishing the tree
// gives the bits that row_normalizer.h gives on one rank (X1), on every device. One item is one position.
#pragma once

#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_exchange.h"

namespace helios {

struct ShardStatsArgs {
  const LseState* states = nullptr;        // [max_positions, tiles] of this shard
  const float* lane_max = nullptr;         // [max_positions, tiles, 16]
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  ShardTilesView shard;
  int32_t* payloads = nullptr;  // [max_positions, 256] out
  float* cuts = nullptr;        // [max_positions] out: below it no id is among this shard's best 32, or -inf
};

void shard_stats(const ShardStatsArgs& args, const Launcher& on);

struct ShardNormalizerArgs {
  const int32_t* gathered = nullptr;       // [world_size, max_positions, 256]
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  int world_size = 1;
  float* normalizers = nullptr;  // [max_positions] out
};

void shard_normalizer(const ShardNormalizerArgs& args, const Launcher& on);

}  // namespace helios
