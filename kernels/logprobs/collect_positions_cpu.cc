#include "kernels/logprobs/collect_positions.h"

namespace helios {

void collect_positions(const CollectPositionsArgs& args, const Launcher&) {
  const auto claim_of = [&](int64_t row, int token) -> int32_t& {
    return args.claims[static_cast<int64_t>(args.row_slots[row]) * args.token_capacity + token];
  };
  int32_t count = 0;
  int64_t selected = 0;
  for (int64_t row = 0; row < *args.num_rows; ++row) {
    const int token = reported_token(args, row);
    if (token < 0 || claim_of(row, token) != 0) continue;
    claim_of(row, token) = 1;
    args.positions[count] = make_position(args, row, token);
    selected += args.positions[count++].num_selected;
  }
  for (int64_t row = 0; row < *args.num_rows; ++row) {
    const int token = reported_token(args, row);
    if (token >= 0) claim_of(row, token) = 0;
  }
  *args.num_positions = count;
  if (args.counters == nullptr || count == 0) return;
  args.counters->logprob_positions += count;
  args.counters->logprob_logits_read += count * (int64_t{args.shard_width} + 1) + selected;
  args.counters->logprob_words += count * int64_t{args.words_a_position};
  args.counters->logprob_launches = args.num_launches;
}

}  // namespace helios
