// Launch 3: each tile's best 32 sort keys of the reported logprob.
//
// A tile whose maximum is below the row's cut keeps nothing and is not read: 32 ids elsewhere are larger. Ids compare
// by the FP32 value that is reported, logit - normaliser, so ties that the subtraction makes go to the smaller id
// (R21). One item is one (position, tile). Positions with selected ids are passed over.
#pragma once

#include "kernels/logprobs/sort_key.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios {

inline constexpr int32_t kTileNotRead = -1;

struct TileCandidatesArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  TilesView shard;
  const LseState* states = nullptr;    // [max_positions, tiles]
  const float* normalizers = nullptr;  // [max_positions]
  const float* cuts = nullptr;         // [max_positions]
  SortKey* keys = nullptr;             // [max_positions, tiles, 32] out, in no order
  int32_t* counts = nullptr;           // [max_positions, tiles] out: keys kept, or kTileNotRead
};

void tile_candidates(const TileCandidatesArgs& args, const Launcher& on);

}  // namespace helios
