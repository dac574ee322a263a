// Launch 4: merges the tiles' keys and stores K pairs, or reads the selected ids' raw logits, and the chosen token.
//
// Writes 2 + 2K words of a position, or 2 + 2 * num_selected; nothing behind them. Alternatives that do not exist,
// because the vocabulary is smaller than K or the row is no distribution (a NaN, a +inf, all -inf), have id -1 and NaN.
// The chosen token and selected ids then report NaN; so does an id outside the vocabulary. One item is one position.
#pragma once

#include <span>

#include "kernels/logprobs/tile_candidates.h"

namespace helios {

struct EmitLogprobsArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  int num_positions = 0;
  int alternatives = 0;  // K, 0..20
  const ShardTiles* shard = nullptr;
  const float* normalizers = nullptr;  // [num_positions]
  const SortKey* keys = nullptr;       // [num_positions, tiles, 32]
  const int32_t* counts = nullptr;     // [num_positions, tiles]
};

void emit_logprobs(const EmitLogprobsArgs& args, const Launcher& on);

/// Stores pair `pair` (0 is the chosen token) of a packed position.
void store_pair(int32_t* packed, int pair, TokenId id, float logprob);

/// Stores `alternatives` pairs from `keys`, best first; those without a key as (-1, NaN).
void store_alternatives(int32_t* packed, int alternatives, std::span<const SortKey> keys);

}  // namespace helios
