#include "kernels/sampling/token_offers.h"

namespace helios {

void offer_tokens(const OfferTokensArgs& args, const Launcher&) {
  for (int32_t r = 0; r < *args.num_rows; ++r) {
    const SamplingRow& row = args.rows[r];
    SampledToken best;
    if (row.draws()) {
      for (int32_t t = 0; t < args.num_tiles; ++t) {
        const SampledToken& token = args.tile_best[int64_t{r} * args.num_tiles + t];
        if (token.beats(best)) best = token;
      }
    } else if (row.greedy && row.arg_max >= 0) {
      best = {static_cast<double>(row.max), row.arg_max};
    }
    args.offers[r] = {best.score, best.id, row.broken};
  }
}

void choose_tokens(const ChooseTokensArgs& args, const Launcher&) {
  for (int32_t r = 0; r < *args.num_rows; ++r) args.tokens[r] = chosen_token(args, r);
  if (args.world > 1) args.counters->sampler_words += *args.num_rows * int64_t{sizeof(OfferMessage) / 4};
}

}  // namespace helios
