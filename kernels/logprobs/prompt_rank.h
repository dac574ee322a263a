// Prompt scoring's counts: of each tile, the ids whose reported value is strictly greater than the actual token's.
//
// Judged on reported FP32 values, as everything that is ordered here: ties made by the subtraction do not count. A tile
// whose maximum is not greater is not read; the others are read once. One item is one (position, tile).
#pragma once

#include "kernels/logprobs/tile_stats.h"

namespace helios {

struct PromptRankArgs {
  const float* logits = nullptr;  // [rows, stride], this shard
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  TilesView shard;
  const LseState* states = nullptr;    // [max_positions, tiles]
  const float* normalizers = nullptr;  // [max_positions]
  const float* actual = nullptr;       // [max_positions] reported; NaN: nothing is greater
  int32_t* greater = nullptr;          // [max_positions, tiles] out
};

void prompt_rank(const PromptRankArgs& args, const Launcher& on);

}  // namespace helios
