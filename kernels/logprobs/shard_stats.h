// Launches 2 and 3 at TP > 1: this shard's tiles to one payload, and every shard's payload to one normaliser.
//
// Between them lies the first exchange. A shard's maximum and mass are those of a whole subtree, so finishing the tree
// gives the bits that row_normalizer.h gives on one rank (X1). One item is one position.
#pragma once

#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_exchange.h"

namespace helios {

struct ShardStatsArgs {
  const LseState* states = nullptr;  // [num_positions, tiles] of this shard
  const float* lane_max = nullptr;   // [num_positions, tiles, 16]
  int num_positions = 0;
  const ShardTiles* shard = nullptr;
  int32_t* payloads = nullptr;  // [num_positions, 256] out
  float* cuts = nullptr;        // [num_positions] out: below it no id is among this shard's best 32
};

void shard_stats(const ShardStatsArgs& args, const Launcher& on);

struct ShardNormalizerArgs {
  const int32_t* gathered = nullptr;  // [world_size, num_positions, 256]
  int num_positions = 0;
  int world_size = 1;
  float* normalizers = nullptr;  // [num_positions] out
};

void shard_normalizer(const ShardNormalizerArgs& args, const Launcher& on);

}  // namespace helios
