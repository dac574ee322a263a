// Prompt scoring: one row of 43 words for each prompt token, from the raw logits of a block of 64 rows at a time.
//
// A block's launches: tile_stats.h; prompt_stats -> first exchange -> prompt_values; tile_candidates.h and
// prompt_rank.h; prompt_candidates -> second exchange -> emit_prompt_rows. Tiles, trees, cuts and keys are those of the
// generation reduction, so the value of a token at a position has the same bits whether it was prompted or generated
// (X1). One path at every tensor-parallel degree: a rank alone reads its own payload where others exchange theirs.
// Every exchange carries 64 words a row a rank and nothing of the vocabulary's size (R41). A position is one live row
// of the block; one without a target goes through the exchanges like the others, and stays invalid.
#pragma once

#include <cstdint>
#include <limits>

#include "common/contract/completion_layout.h"
#include "kernels/base/host_device.h"
#include "kernels/base/step_counters.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios {

inline constexpr int kPromptBlockRows = 64;
inline constexpr int kPromptExchangeWords = 64;

// First exchange: the shard's partial logsumexp and, from its owner, the actual token's raw logit.
namespace prompt_stats_word {
inline constexpr int kMax = 0;
inline constexpr int kMass = 1;
inline constexpr int kActualLogit = 2;
}  // namespace prompt_stats_word

// Second exchange: how many reported values are strictly greater than the actual token's, and the best twenty keys.
namespace prompt_candidates_word {
inline constexpr int kGreater = 0;
inline constexpr int kNumKeys = 1;
inline constexpr int kKeys = 2;  // best first, high word then low
}  // namespace prompt_candidates_word
static_assert(prompt_candidates_word::kKeys + 2 * kMaxNaturalAlternatives <= kPromptExchangeWords);

/// What a row without a target holds: id -1, NaN, rank 0, alternatives of id -1 and NaN (R40).
HELIOS_HD inline int32_t invalid_prompt_word(int word) {
  if (word == prompt_score_word::kActualRank) return 0;
  const bool id = word == prompt_score_word::kActualId ||
                  (word > prompt_score_word::kActualRank && (word - prompt_score_word::kFirstAlternative) % 2 == 0);
  return id ? -1 : float_bits(std::numeric_limits<float>::quiet_NaN());
}

/// First of a graph: makes every row of the active frame that the graph can hold invalid, and lists the step's rows by
/// block. Nothing else of either frame is written.
struct BeginPromptRowsArgs {
  const int32_t* num_rows = nullptr;     // of this step, at most max_rows
  int64_t max_rows = 0;                  // the graph's capacity
  const TokenId* row_targets = nullptr;  // [max_rows] outside the vocabulary: no target
  const int32_t* row_tokens = nullptr;   // [max_rows] number of each row's prompt token: its row of the output
  int64_t vocab_size = 0;
  const int32_t* frame = nullptr;        // [1] 0 or 1
  int64_t frame_rows = 0;                // C
  int32_t* rows = nullptr;               // [2, C, 43] out
  LogprobPosition* positions = nullptr;  // [max_rows] out: of row r the r-th, its `row` counted within the block
  int32_t* num_positions = nullptr;      // [blocks] out
  StepCounters* counters = nullptr;      // adds rows with a target and words sent; null: counts nothing
  int32_t words_a_position = 0;          // sent by this rank
};
void begin_prompt_rows(const BeginPromptRowsArgs& args, const Launcher& on);

struct PromptStatsArgs {
  const float* logits = nullptr;  // [rows, stride], this shard
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;
  int64_t max_positions = 0;
  ShardTilesView shard;
  const LseState* states = nullptr;  // [max_positions, tiles]
  const float* lane_max = nullptr;   // [max_positions, tiles, 16]
  int32_t* payloads = nullptr;       // [max_positions, 64] out
  float* cuts = nullptr;             // [max_positions] out: below it no id is among this shard's best 32
};
void prompt_stats(const PromptStatsArgs& args, const Launcher& on);

struct PromptValuesArgs {
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;
  int64_t max_positions = 0;
  const int32_t* gathered = nullptr;  // [world_size, max_positions, 64]
  int64_t shard_stride = 0;           // ids a rank: id's owner is id / shard_stride
  int world_size = 1;
  float* normalizers = nullptr;  // [max_positions] out
  float* actual = nullptr;       // [max_positions] out: the actual token's reported value; NaN without a target
};
void prompt_values(const PromptValuesArgs& args, const Launcher& on);

struct PromptCandidatesArgs {
  const int32_t* num_positions = nullptr;
  int64_t max_positions = 0;
  TilesView shard;
  const SortKey* keys = nullptr;     // [max_positions, tiles, 32]
  const int32_t* counts = nullptr;   // [max_positions, tiles]
  const int32_t* greater = nullptr;  // [max_positions, tiles]
  int32_t* payloads = nullptr;       // [max_positions, 64] out
};
void prompt_candidates(const PromptCandidatesArgs& args, const Launcher& on);

/// Writes the rows that have a target. A row that is no distribution (a NaN, a +inf, all -inf) keeps its actual id and
/// has NaN, rank 0 and no alternatives.
struct EmitPromptRowsArgs {
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;
  int64_t max_positions = 0;
  const float* actual = nullptr;      // [max_positions]
  const int32_t* gathered = nullptr;  // [world_size, max_positions, 64]
  int world_size = 1;
};
void emit_prompt_rows(const EmitPromptRowsArgs& args, const Launcher& on);

/// Stores alternative `i` (0 is the best) of a prompt row from its key; kNoKey as (-1, NaN).
HELIOS_HD inline void store_prompt_alternative(int32_t* row, int i, SortKey key) {
  int32_t* const pair = row + prompt_score_word::kFirstAlternative + kPairWords * i;
  pair[0] = key == kNoKey ? -1 : key_id(key);
  pair[1] = float_bits(key == kNoKey ? std::numeric_limits<float>::quiet_NaN() : key_value(key));
}

/// Stores what stands before the alternatives; `greater` over the whole vocabulary.
HELIOS_HD inline void store_prompt_actual(int32_t* row, TokenId actual, float logprob, int32_t greater) {
  row[prompt_score_word::kActualId] = actual;
  row[prompt_score_word::kActualBits] = float_bits(logprob);
  row[prompt_score_word::kActualRank] = logprob == logprob ? 1 + greater : 0;
}

}  // namespace helios
