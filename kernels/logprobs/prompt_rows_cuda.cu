// begin_prompt_rows: a thread a row. prompt_stats and prompt_candidates: one block a position, as the generation
// reduction's. prompt_values: one thread a position. emit_prompt_rows: one warp a position, which sorts what came over
// the wire rather than trusting its order.
#include "kernels/logprobs/prompt_rows.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

__global__ void __launch_bounds__(kBlockThreads) begin_prompt_rows_kernel(BeginPromptRowsArgs a) {
  const int64_t num_rows = *a.num_rows, first = static_cast<int64_t>(blockIdx.x) * kBlockThreads;
  const int64_t r = first + threadIdx.x;
  int32_t* const rows = a.rows + *a.frame * a.frame_rows * kPromptScoreWords;
  const int64_t end = first + kBlockThreads < a.max_rows ? first + kBlockThreads : a.max_rows;
  for (int64_t word = first * kPromptScoreWords + threadIdx.x; word < end * kPromptScoreWords; word += kBlockThreads) {
    rows[word] = invalid_prompt_word(static_cast<int>(word % kPromptScoreWords));
  }
  const TokenId target = r < num_rows ? a.row_targets[r] : -1;
  const bool valid = target >= 0 && target < a.vocab_size;
  if (r < num_rows) {
    LogprobPosition position;
    position.row = r % kPromptBlockRows;
    position.chosen = valid ? target : -1;
    position.packed = rows + static_cast<int64_t>(a.row_tokens[r]) * kPromptScoreWords;
    a.positions[r] = position;
  }
  if (r < a.max_rows && r % kPromptBlockRows == 0) {
    const int64_t live = num_rows - r;
    a.num_positions[r / kPromptBlockRows] = static_cast<int32_t>(live < 0                  ? 0
                                                                 : live < kPromptBlockRows ? live
                                                                                           : kPromptBlockRows);
  }
  if (a.counters == nullptr) return;
  const unsigned targets = __popc(__ballot_sync(~0u, valid));
  if (threadIdx.x % kWarpSize == 0 && targets > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&a.counters->prompt_rows), 0ull + targets);
  if (r == 0) a.counters->prompt_words += num_rows * a.words_a_position;
}

__global__ void __launch_bounds__(kBlockThreads) prompt_stats_kernel(PromptStatsArgs a) {
  __shared__ PositionScratch scratch;
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LogprobPosition& position = a.positions[p];
  const LseState subtree = fold_tiles(a.states + p * a.shard.num_tiles, a.shard, scratch);
  int32_t* payload = a.payloads + p * kPromptExchangeWords;
  if (threadIdx.x > prompt_stats_word::kActualLogit && threadIdx.x < kPromptExchangeWords) payload[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    payload[prompt_stats_word::kMax] = float_bits(subtree.max);
    payload[prompt_stats_word::kMass] = float_bits(subtree.mass);
    const int64_t column = static_cast<int64_t>(position.chosen) - a.shard.first_id;
    const bool owned = position.chosen >= 0 && column >= 0 && column < a.shard.width;
    payload[prompt_stats_word::kActualLogit] = owned ? float_bits(a.logits[position.row * a.stride + column]) : 0;
  }
  const float cut = lane_max_cut(a.lane_max + p * a.shard.num_tiles * kTileLanes, a.shard.num_tiles, scratch);
  if (threadIdx.x == kWarpSize - 1) a.cuts[p] = cut;
}

__global__ void __launch_bounds__(kPromptBlockRows) prompt_values_kernel(PromptValuesArgs a) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kPromptBlockRows + threadIdx.x;
  if (p >= *a.num_positions) return;
  LseState subtrees[kCanonicalSegments];
  for (int64_t r = 0; r < a.world_size; ++r) {
    const int32_t* payload = a.gathered + (r * a.max_positions + p) * kPromptExchangeWords;
    subtrees[r] = {bits_float(payload[prompt_stats_word::kMax]), bits_float(payload[prompt_stats_word::kMass])};
  }
  const float normalizer = log_sum_exp(merge_tree(subtrees, a.world_size));
  const TokenId actual = a.positions[p].chosen;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (actual >= 0) {
    const int64_t owner = actual / a.shard_stride;
    value = reported_logprob(
        bits_float(a.gathered[(owner * a.max_positions + p) * kPromptExchangeWords + prompt_stats_word::kActualLogit]),
        normalizer);
  }
  a.normalizers[p] = normalizer;
  a.actual[p] = value;
}

__global__ void __launch_bounds__(kBlockThreads) prompt_candidates_kernel(PromptCandidatesArgs a) {
  using namespace prompt_candidates_word;
  __shared__ SortKey lists[kBlockWarps][kWarpSize];
  __shared__ unsigned parts[kBlockWarps];
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const int64_t first = p * a.shard.num_tiles;
  unsigned greater = 0;
  for (int t = static_cast<int>(threadIdx.x); t < a.shard.num_tiles; t += kBlockThreads) {
    greater += static_cast<unsigned>(a.greater[first + t]);
  }
  greater = __reduce_add_sync(~0u, greater);
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = greater;
  const SortKey key =  // its barriers order the sums above before their reader below
      merge_tile_keys(a.keys + first * kKeptSortKeys, a.counts + first, a.shard, nullptr, lists);
  if (threadIdx.x >= kWarpSize) return;
  const int lane = static_cast<int>(threadIdx.x);
  const bool kept = lane < kMaxNaturalAlternatives && key != kNoKey;
  const unsigned num_keys = __popc(__ballot_sync(~0u, kept));
  int32_t* payload = a.payloads + p * kPromptExchangeWords;
  for (int word = kKeys + 2 * kMaxNaturalAlternatives + lane; word < kPromptExchangeWords; word += kWarpSize) {
    payload[word] = 0;
  }
  if (lane < kMaxNaturalAlternatives) {
    payload[kKeys + 2 * lane] = static_cast<int32_t>(key >> 32);
    payload[kKeys + 2 * lane + 1] = static_cast<int32_t>(key);
  }
  if (lane != 0) return;
  unsigned sum = 0;
  for (int warp = 0; warp < kBlockWarps; ++warp) sum += parts[warp];
  payload[kGreater] = static_cast<int32_t>(sum);
  payload[kNumKeys] = static_cast<int32_t>(num_keys);
}

__global__ void __launch_bounds__(kWarpSize) emit_prompt_rows_kernel(EmitPromptRowsArgs a) {
  using namespace prompt_candidates_word;
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LogprobPosition& position = a.positions[p];
  if (position.chosen < 0) return;  // invalid already
  const int lane = static_cast<int>(threadIdx.x);
  WarpTopKeys<SortKey> best;
  int32_t greater = 0;
  for (int64_t rank = 0; rank < a.world_size; ++rank) {
    const int32_t* payload = a.gathered + (rank * a.max_positions + p) * kPromptExchangeWords;
    greater += payload[kGreater];
    SortKey key = kNoKey;
    if (lane < kMaxNaturalAlternatives && lane < payload[kNumKeys]) {
      const int32_t* words = payload + kKeys + 2 * lane;
      key = (static_cast<uint64_t>(static_cast<uint32_t>(words[0])) << 32) | static_cast<uint32_t>(words[1]);
    }
    best.insert(key);
  }
  if (lane == 0) store_prompt_actual(position.packed, position.chosen, a.actual[p], greater);
  if (lane < kMaxNaturalAlternatives) store_prompt_alternative(position.packed, lane, best.best());
}

dim3 one_a_position(int64_t max_positions) { return dim3(static_cast<unsigned>(max_positions)); }

}  // namespace

void begin_prompt_rows(const BeginPromptRowsArgs& args, const Launcher& on) {
  const int64_t blocks = (args.max_rows + kBlockThreads - 1) / kBlockThreads;
  simt::launch(begin_prompt_rows_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}
void prompt_stats(const PromptStatsArgs& args, const Launcher& on) {
  simt::launch(prompt_stats_kernel, one_a_position(args.max_positions), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}
void prompt_values(const PromptValuesArgs& args, const Launcher& on) {
  const int64_t blocks = (args.max_positions + kPromptBlockRows - 1) / kPromptBlockRows;
  simt::launch(prompt_values_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kPromptBlockRows), 0,
               static_cast<simt::Stream>(on.stream()), args);
}
void prompt_candidates(const PromptCandidatesArgs& args, const Launcher& on) {
  simt::launch(prompt_candidates_kernel, one_a_position(args.max_positions), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}
void emit_prompt_rows(const EmitPromptRowsArgs& args, const Launcher& on) {
  simt::launch(emit_prompt_rows_kernel, one_a_position(args.max_positions), dim3(kWarpSize), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
