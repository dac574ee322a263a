// One block a position: threads read the chosen and selected logits side by side, warps merge the tiles' keys.
#include "kernels/logprobs/emit_logprobs.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

__global__ void __launch_bounds__(kBlockThreads) emit_logprobs_kernel(EmitLogprobsArgs a) {
  __shared__ SortKey lists[kBlockWarps][kWarpSize];
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LogprobPosition& position = a.positions[p];
  const float* row = a.logits + position.row * a.stride;
  for (int i = static_cast<int>(threadIdx.x); i <= position.num_selected; i += kBlockThreads) {
    const TokenId id = i == 0 ? position.chosen : position.selected[i - 1];
    const float logprob = id >= 0 && id < a.shard.width ? reported_logprob(row[id], a.normalizers[p])
                                                        : std::numeric_limits<float>::quiet_NaN();
    store_pair(position.packed, i, id, logprob);
  }
  if (position.num_selected > 0 || a.alternatives == 0) return;  // keys were not asked for
  const int64_t first = p * a.shard.num_tiles;
  const SortKey key = merge_tile_keys(a.keys + first * kKeptSortKeys, a.counts + first, a.shard, a.counters, lists);
  if (static_cast<int>(threadIdx.x) < a.alternatives)
    store_alternative(position.packed, static_cast<int>(threadIdx.x), key);
}

}  // namespace

void emit_logprobs(const EmitLogprobsArgs& args, const Launcher& on) {
  simt::launch(emit_logprobs_kernel, dim3(static_cast<unsigned>(args.max_positions)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
