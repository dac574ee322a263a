// Launch 4: merges the tiles' keys and stores K pairs, or reads the selected ids' raw logits, and the chosen token.
//
// Writes 2 + 2K words of a position, or 2 + 2 * num_selected; nothing behind them. Alternatives that do not exist,
// because the vocabulary is smaller than K or the row is no distribution (a NaN, a +inf, all -inf), have id -1 and NaN.
// The chosen token and selected ids then report NaN; so does an id outside the vocabulary. One item is one position.
#pragma once

#include <limits>

#include "common/contract/completion_layout.h"
#include "kernels/base/host_device.h"
#include "kernels/base/step_counters.h"
#include "kernels/logprobs/tile_candidates.h"

namespace helios {

struct EmitLogprobsArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  int alternatives = 0;                    // K, 0..20
  TilesView shard;
  const float* normalizers = nullptr;  // [max_positions]
  const SortKey* keys = nullptr;       // [max_positions, tiles, 32]
  const int32_t* counts = nullptr;     // [max_positions, tiles]
  StepCounters* counters = nullptr;    // adds the logits that launch 3 read; null: counts nothing
};

void emit_logprobs(const EmitLogprobsArgs& args, const Launcher& on);

/// Stores pair `pair` (0 is the chosen token) of a packed position.
HELIOS_HD inline void store_pair(int32_t* packed, int pair, TokenId id, float logprob) {
  packed[kPairWords * pair] = id;
  packed[kPairWords * pair + 1] = float_bits(logprob);
}

/// Stores alternative `i` (0 is the best) from its key; kNoKey as (-1, NaN).
HELIOS_HD inline void store_alternative(int32_t* packed, int i, SortKey key) {
  const bool none = key == kNoKey;
  store_pair(packed, 1 + i, none ? -1 : key_id(key), none ? std::numeric_limits<float>::quiet_NaN() : key_value(key));
}

}  // namespace helios
