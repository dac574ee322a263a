// One warp, a row a lane: places among scratch and filtered rows are counted with ballots, in ascending row order.
#include "kernels/base/block_reduce.cuh"
#include "kernels/sampling/collect_rows.h"

namespace helios {
namespace {

__global__ void collect_rows_kernel(CollectRowsArgs a) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned below = (1u << lane) - 1;
  const int32_t count = *a.num_rows;
  int32_t filtered = 0, scratched = 0;
  for (int32_t first = 0; first < count; first += kWarpSize) {
    const int32_t r = first + lane;
    const int32_t slot = r < count ? a.row_slots[r] : -1;
    SamplingRow row;
    if (slot >= 0) row = make_sampling_row(a.tables.sampling[slot], slot, a.row_positions[r], a.vocab_size);
    if (slot >= 0 && a.row_tokens) row.ahead = a.row_tokens[r];
    const bool scratch = slot >= 0 && transforms(a.tables.sampling[slot], a.tables.slots[slot], row.ahead);
    const bool filter = row.filtered();
    const unsigned scratch_lanes = __ballot_sync(~0u, scratch), filter_lanes = __ballot_sync(~0u, filter);
    if (slot >= 0) row.logits = a.logits + r * a.stride;
    if (scratch) {
      row.scratch = scratched + __popc(scratch_lanes & below);
      row.logits = a.scratch + row.scratch * a.stride;
    }
    if (filter) {
      row.filter = filtered + __popc(filter_lanes & below);
      a.filtered[row.filter] = r;
    }
    if (r < count) a.rows[r] = row;
    scratched += __popc(scratch_lanes);
    filtered += __popc(filter_lanes);
  }
  if (lane != 0) return;
  *a.num_filtered = filtered;
  a.counters->sampler_rows_filtered += scratched;
}

}  // namespace

void collect_rows(const CollectRowsArgs& args, const Launcher& on) {
  simt::launch(collect_rows_kernel, dim3(1), dim3(kWarpSize), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
