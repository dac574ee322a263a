#include "kernels/sampling/collect_rows.h"

namespace helios {

void collect_rows(const CollectRowsArgs& args, const Launcher&) {
  int32_t filtered = 0, scratched = 0;
  for (int32_t r = 0; r < *args.num_rows; ++r) {
    const int32_t slot = args.row_slots[r];
    SamplingRow& row = args.rows[r];
    row = {};
    if (slot < 0) continue;
    row = make_sampling_row(args.tables.sampling[slot], slot, args.row_positions[r], args.vocab_size);
    row.logits = args.logits + r * args.stride;
    row.ahead = args.row_tokens ? args.row_tokens[r] : 0;
    if (transforms(args.tables.sampling[slot], args.tables.slots[slot], row.ahead)) {
      row.scratch = scratched++;
      row.logits = args.scratch + row.scratch * args.stride;
    }
    if (row.filtered()) {
      row.filter = filtered;
      args.filtered[filtered++] = r;
    }
  }
  *args.num_filtered = filtered;
  args.counters->sampler_rows_filtered += scratched;
}

}  // namespace helios
