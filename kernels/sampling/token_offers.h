// The last launches: what this shard offers as each row's token, and, after the one exchange that every row takes part
// in, the choice among the ranks' offers.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

struct OfferTokensArgs {
  const SamplingRow* rows = nullptr;
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const SampledToken* tile_best = nullptr;  // [max_rows, num_tiles]
  int32_t num_tiles = 0;
  OfferMessage* offers = nullptr;  // [max_rows] out
};

/// A greedy row offers its arg max, a row that draws the best of its tiles.
void offer_tokens(const OfferTokensArgs& args, const Launcher& on);

struct ChooseTokensArgs {
  const SamplingRow* rows = nullptr;
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const OfferMessage* offers = nullptr;  // [world, max_rows]
  int32_t world = 1;
  TokenId* tokens = nullptr;         // [max_rows] out; -1: no row, or one that is no distribution
  StepCounters* counters = nullptr;  // sampler_words: of the exchange before
};

void choose_tokens(const ChooseTokensArgs& args, const Launcher& on);

HELIOS_HD inline TokenId chosen_token(const ChooseTokensArgs& args, int32_t row) {
  if (args.rows[row].slot < 0) return -1;
  SampledToken winner;
  bool broken = false;
  for (int rank = 0; rank < args.world; ++rank) {
    const OfferMessage& offer = args.offers[int64_t{rank} * args.max_rows + row];
    const SampledToken token{offer.score, offer.id};
    if (token.beats(winner)) winner = token;
    broken |= offer.broken != 0;
  }
  return broken ? -1 : winner.id;
}

}  // namespace helios
