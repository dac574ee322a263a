// The operations of this room in FP64, straight from the definition. The definition knows no tiles and no shards, so
// the sharded launches have the same reference. For tests.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "kernels/logprobs/sort_key.h"

namespace helios::reference {

struct TileStats {
  double max = 0.0;   // -inf without a finite logit
  double mass = 0.0;  // sum of exp(logit - max)
};

TileStats tile_stats(std::span<const float> logits);

/// logsumexp of a whole row.
double row_normalizer(std::span<const float> row);

/// The best `keep` keys of a row or of a part of it that begins at `first_id`, judged by the FP32 value reported with
/// `normalizer`: everything sorted, best first.
std::vector<SortKey> best_keys(std::span<const float> logits, TokenId first_id, float normalizer, size_t keep);

/// A position's report: logit - logsumexp for each asked id, in order; NaN for an id outside the row.
std::vector<double> logprobs(std::span<const float> row, std::span<const TokenId> ids);

/// 1 + the ids of a row whose FP32 value reported with `normalizer` is strictly greater than the actual token's; 0 when
/// that is NaN.
int64_t prompt_rank(std::span<const float> row, float normalizer, TokenId actual);

}  // namespace helios::reference
