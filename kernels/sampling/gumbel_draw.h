// Gumbel-max over the survivors of a shard: the arg max of logit / temperature + gumbel(noise).
//
// The scores that are compared are FP64 and defined by (row, id) alone; what is skipped is only a matter of speed. A
// block of 64 ids is passed over when its largest logit cannot win with the block's smallest uniform, which costs one
// word of noise; a few dozen blocks of 2,374 are drawn. One item is one (row, tile); a thread carries its running best
// from tile to tile of a row.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

/// The score of one id; -inf logits never come here.
inline double gumbel_score(const SamplingRow& row, float logit, TokenId id) {
  return static_cast<double>(logit) / static_cast<double>(row.temperature) + gumbel(token_uniform(row.noise, id));
}

struct GumbelDrawArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const SamplingRow* rows = nullptr;  // greedy and broken ones are passed over
  int num_rows = 0;
  const ShardTiles* shard = nullptr;
  const TileScan* scans = nullptr;    // [num_rows, tiles]
  SampledToken* tile_best = nullptr;  // [num_rows, tiles] scratch
  SampledToken* best = nullptr;       // [num_rows] out: this shard's winner; id -1 when nothing here survives
};

void gumbel_draw(const GumbelDrawArgs& args, const Launcher& on);

}  // namespace helios
