// Launch 1: each vocabulary tile's maximum and exponential mass, and the maxima of its sixteen lanes.
//
// Reads every valid column of the row once from memory (4 bytes an id); the exponentials read the tile again from L1.
// One item is one (position, tile). Id i of a tile accumulates in lane i % 16 on every target, lanes add as a tree, so
// a tile's numbers depend on its logits alone (X1), with the same bits on AVX2, AVX-512, NEON and CUDA (NaNs but for
// their payload, zeros but for their sign). A CPU without FMA rounds the polynomial otherwise: ranks of one group
// should not mix with such. The lane maxima are maxima of disjoint sets of ids: the 32nd best of them bounds the row's
// 32nd best value from below, which lets launch 3 skip most of the row.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/logprob_position.h"
#include "kernels/logprobs/lse_state.h"
#include "kernels/logprobs/vocab_tiles.h"

namespace helios {

struct TileStatsArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  TilesView shard;
  LseState* states = nullptr;  // [max_positions, tiles] out
  float* lane_max = nullptr;   // [max_positions, tiles, 16] out; -inf for a lane without ids
};

void tile_stats(const TileStatsArgs& args, const Launcher& on);

}  // namespace helios
