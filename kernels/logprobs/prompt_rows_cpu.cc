#include "kernels/logprobs/prompt_rows.h"

#include <algorithm>
#include <array>

#include "kernels/logprobs/best_keys.h"
#include "kernels/logprobs/row_normalizer.h"

namespace helios {
namespace {

void fill_stats(const PromptStatsArgs& args, int64_t p) {
  const int num_tiles = args.shard.num_tiles;
  const LogprobPosition& position = args.positions[p];
  const LseState* states = args.states + p * num_tiles;
  const LseState subtree = fold_tiles(states, args.shard);
  int32_t* payload = args.payloads + p * kPromptExchangeWords;
  std::fill(payload, payload + kPromptExchangeWords, 0);
  payload[prompt_stats_word::kMax] = float_bits(subtree.max);
  payload[prompt_stats_word::kMass] = float_bits(subtree.mass);
  const int64_t column = int64_t{position.chosen} - args.shard.first_id;
  if (position.chosen >= 0 && column >= 0 && column < args.shard.width)
    payload[prompt_stats_word::kActualLogit] = float_bits(args.logits[position.row * args.stride + column]);
  args.cuts[p] = lane_max_cut(states, args.lane_max + p * num_tiles * kTileLanes, num_tiles);
}

void find_values(const PromptValuesArgs& args, int64_t p) {
  const auto payload_of = [&](int64_t rank) {
    return args.gathered + (rank * args.max_positions + p) * kPromptExchangeWords;
  };
  std::array<LseState, kCanonicalSegments> subtrees;
  for (int r = 0; r < args.world_size; ++r) {
    const int32_t* payload = payload_of(r);
    subtrees[r] = {bits_float(payload[prompt_stats_word::kMax]), bits_float(payload[prompt_stats_word::kMass])};
  }
  const float normalizer = log_sum_exp(merge_tree(subtrees.data(), args.world_size));
  const TokenId actual = args.positions[p].chosen;
  args.normalizers[p] = normalizer;
  args.actual[p] =
      actual < 0 ? std::numeric_limits<float>::quiet_NaN()
                 : reported_logprob(bits_float(payload_of(actual / args.shard_stride)[prompt_stats_word::kActualLogit]),
                                    normalizer);
}

void fill_candidates(const PromptCandidatesArgs& args, int64_t p) {
  using namespace prompt_candidates_word;
  const int64_t first = p * args.shard.num_tiles;
  int32_t* payload = args.payloads + p * kPromptExchangeWords;
  std::fill(payload, payload + kPromptExchangeWords, 0);
  for (int t = 0; t < args.shard.num_tiles; ++t) payload[kGreater] += args.greater[first + t];
  BestKeys best(kMaxNaturalAlternatives);
  merge_tile_keys(args.keys, args.counts, first, args.shard.num_tiles, best);
  int at = kKeys;
  for (const SortKey key : best.keys()) {
    payload[at++] = static_cast<int32_t>(key >> 32);
    payload[at++] = static_cast<int32_t>(key);
  }
  payload[kNumKeys] = static_cast<int32_t>(best.keys().size());
}

void emit_row(const EmitPromptRowsArgs& args, int64_t p) {
  using namespace prompt_candidates_word;
  const LogprobPosition& position = args.positions[p];
  if (position.chosen < 0) return;  // invalid already
  BestKeys best(kMaxNaturalAlternatives);
  int32_t greater = 0;
  for (int64_t rank = 0; rank < args.world_size; ++rank) {
    const int32_t* payload = args.gathered + (rank * args.max_positions + p) * kPromptExchangeWords;
    greater += payload[kGreater];
    const int count = std::clamp(payload[kNumKeys], 0, kMaxNaturalAlternatives);  // a peer's word
    for (int i = 0; i < count; ++i) {
      const auto high = static_cast<uint32_t>(payload[kKeys + 2 * i]),
                 low = static_cast<uint32_t>(payload[kKeys + 2 * i + 1]);
      best.insert((static_cast<uint64_t>(high) << 32) | low);
    }
  }
  store_prompt_actual(position.packed, position.chosen, args.actual[p], greater);
  for (int i = 0; i < kMaxNaturalAlternatives; ++i) store_prompt_alternative(position.packed, i, best.at(i));
}

/// each(args, p) for every position; args outlives the call.
template <class Args>
void for_each_position(const Args& args, const Launcher& on, void (*each)(const Args&, int64_t)) {
  const auto call = [args = &args, each](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) each(*args, p);
  };
  on.pool().parallel_for(*args.num_positions, 4, call);
}

}  // namespace

void begin_prompt_rows(const BeginPromptRowsArgs& args, const Launcher&) {
  const int64_t num_rows = *args.num_rows;
  int32_t* const rows = args.rows + *args.frame * args.frame_rows * kPromptScoreWords;
  std::array<int32_t, kPromptScoreWords> invalid;
  for (int word = 0; word < kPromptScoreWords; ++word) invalid[word] = invalid_prompt_word(word);
  for (int64_t r = 0; r < args.max_rows; ++r) std::copy(invalid.begin(), invalid.end(), rows + r * kPromptScoreWords);
  int64_t targets = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    const TokenId target = args.row_targets[r];
    const bool valid = target >= 0 && target < args.vocab_size;
    targets += valid;
    args.positions[r] = {.row = r % kPromptBlockRows,
                         .chosen = valid ? target : -1,
                         .packed = rows + int64_t{args.row_tokens[r]} * kPromptScoreWords};
  }
  for (int64_t first = 0; first < args.max_rows; first += kPromptBlockRows) {
    args.num_positions[first / kPromptBlockRows] =
        static_cast<int32_t>(std::clamp<int64_t>(num_rows - first, 0, kPromptBlockRows));
  }
  if (args.counters == nullptr) return;
  args.counters->prompt_rows += targets;
  args.counters->prompt_words += num_rows * args.words_a_position;
}

void prompt_stats(const PromptStatsArgs& args, const Launcher& on) { for_each_position(args, on, fill_stats); }
void prompt_values(const PromptValuesArgs& args, const Launcher& on) { for_each_position(args, on, find_values); }
void prompt_candidates(const PromptCandidatesArgs& args, const Launcher& on) {
  for_each_position(args, on, fill_candidates);
}
void emit_prompt_rows(const EmitPromptRowsArgs& args, const Launcher& on) { for_each_position(args, on, emit_row); }

}  // namespace helios
