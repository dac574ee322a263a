// Gumbel-max over the survivors of a shard: the arg max of logit / temperature + gumbel(noise).
//
// The scores that are compared are FP64 and defined by (row, id) alone, with the same bits on every device; what is
// skipped is only a matter of speed. A block of 64 ids is passed over when its largest logit cannot win with the
// block's smallest uniform, which costs one word of noise; a few dozen blocks of 2,374 are drawn. One item is one (row,
// tile).
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

/// The score of a logit with an id's uniform; -inf logits never come here.
HELIOS_HD inline double score_of(const SamplingRow& row, float logit, double uniform) {
  return rounded_sum(static_cast<double>(logit) / static_cast<double>(row.temperature), gumbel(uniform));
}
HELIOS_HD inline double gumbel_score(const SamplingRow& row, float logit, TokenId id) {
  return score_of(row, logit, token_uniform(row.noise, id));
}

struct GumbelDrawArgs {
  const SamplingRow* rows = nullptr;  // greedy and broken ones are passed over
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  TilesView shard;
  const TileScan* scans = nullptr;    // [max_rows, tiles]
  SampledToken* tile_best = nullptr;  // [max_rows, tiles] out: a tile's winner; id -1 when none of it can win
};

void gumbel_draw(const GumbelDrawArgs& args, const Launcher& on);

}  // namespace helios
