#include <algorithm>

#include "common/contract/completion_layout.h"
#include "kernels/sampling/token_counts.h"

namespace helios {

void begin_token_counts(const BeginTokenCountsArgs& args, const Launcher&) {
  for (int32_t slot = 0; slot < args.capacity; ++slot) {
    SlotSampling& sampling = args.sampling[slot];
    if (!sampling.counts_due) continue;
    int32_t* counts = args.token_counts + slot * args.counts_stride;
    std::fill_n(counts, args.width, 0);
    for (int32_t i = 0; i < sampling.num_generated; ++i) {
      const int32_t column = args.generated[slot * args.generated_stride + i] - args.first_id;
      if (column >= 0 && column < args.width) ++counts[column];
    }
    sampling.counts_due = 0;
  }
}

void count_tokens(const CountTokensArgs& args, const Launcher&) {
  const int words = record_words(args.token_capacity);
  for (int32_t r = 0; r < *args.num_rows; ++r) {
    const int32_t slot = args.row_slots[r];
    if (slot < 0 || !args.sampling[slot].penalizes()) continue;
    const int64_t* record = args.records + (int64_t{args.row_halves[r]} * args.capacity + slot) * words;
    if (record[record_word::kSlot] != slot || record[record_word::kEpoch] != args.row_epochs[r]) continue;
    for (int64_t i = 0; i < record[record_word::kEmitted]; ++i) {
      const int64_t column = record[record_word::kTokens + i] - args.first_id;
      if (column >= 0 && column < args.width) ++args.token_counts[slot * args.counts_stride + column];
    }
  }
}

}  // namespace helios
