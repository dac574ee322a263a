// The two payloads that a rank gives for each requested position: 256 words each, nothing of the vocabulary's size
// (R22).
//
// Words are FP32 on the wire; ids, counts and keys travel as bits. Words that a payload does not use are zero.
#pragma once

#include "common/contract/completion_layout.h"

namespace helios {

inline constexpr int kShardExchangeWords = 256;

// First exchange: the shard's partial logsumexp.
namespace shard_stats_word {
inline constexpr int kMax = 0;
inline constexpr int kMass = 1;
}  // namespace shard_stats_word

// Second exchange: the chosen token's raw logit from its owner, and either keys or selected ids' raw logits.
namespace shard_candidates_word {
inline constexpr int kChosenLogit = 0;  // the owner's alone counts
inline constexpr int kNumKeys = 1;
inline constexpr int kBody =
    2;  // natural: 32 keys, best first, high word then low; selected: 128 raw logits, owner's count
}  // namespace shard_candidates_word

static_assert(shard_candidates_word::kBody + 2 * kKeptSortKeys <= kShardExchangeWords);
static_assert(shard_candidates_word::kBody + kMaxSelectedIds <= kShardExchangeWords);

}  // namespace helios
