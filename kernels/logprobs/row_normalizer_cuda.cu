// One block a position: a warp a segment folds its tiles in order, one thread the segments' tree; then all warps bound
// the row's 32nd best logit. Reads 72 bytes a tile, from L2.
#include "kernels/logprobs/row_normalizer.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

__global__ void __launch_bounds__(kBlockThreads) row_normalizer_kernel(RowNormalizerArgs a) {
  __shared__ PositionScratch scratch;
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LseState row = fold_tiles(a.states + p * a.shard.num_tiles, a.shard, scratch);
  if (threadIdx.x == 0) a.normalizers[p] = log_sum_exp(row);
  float cut = kNegativeInfinity;
  if (a.positions[p].num_selected == 0)
    cut = lane_max_cut(a.lane_max + p * a.shard.num_tiles * kTileLanes, a.shard.num_tiles, scratch);
  if (threadIdx.x == kWarpSize - 1) a.cuts[p] = cut;
}

}  // namespace

void row_normalizer(const RowNormalizerArgs& args, const Launcher& on) {
  simt::launch(row_normalizer_kernel, dim3(static_cast<unsigned>(args.max_positions)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
