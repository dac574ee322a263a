// Launch 2: one normaliser a requested position, and the value below which no id can be among the best 32.
//
// Tiles fold in order within a segment, segments as a binary tree. At TP > 1 shard_stats.h stops at the rank's subtree.
// One item is one position; reads 72 bytes a tile, or 8 where ids are selected, since nobody looks for the best then.
// The same bits on every device.
#pragma once

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios {

struct RowNormalizerArgs {
  const LseState* states = nullptr;        // [max_positions, tiles]
  const float* lane_max = nullptr;         // [max_positions, tiles, 16]
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  ShardTilesView shard;                    // all eight segments
  float* normalizers = nullptr;            // [max_positions] out: logsumexp, nats
  float* cuts = nullptr;                   // [max_positions] out: raw logit; -inf when nothing is ruled out
};

void row_normalizer(const RowNormalizerArgs& args, const Launcher& on);

/// The state of the shard's segments: a whole subtree. `states` [tiles] of one position. On the CPU, for shard_stats.
LseState fold_tiles(const LseState* states, const ShardTilesView& shard);

/// The 32nd largest of a position's lane maxima: at least 32 ids are as large. -inf when there are fewer lanes than
/// that. On the CPU, for all that bound the best keys.
float lane_max_cut(const LseState* states, const float* lane_max, int num_tiles);
/// That, or -inf where ids are selected. On the CPU, for shard_stats.
float position_cut(const LogprobPosition& position, const LseState* states, const float* lane_max, int num_tiles);

}  // namespace helios
