// One block a (position, tile). The tiles that cannot hold a greater value read a few words and are done; of the others
// each thread counts its columns, and the warps' sums are added in shared memory. Integers: no order can matter.
#include "kernels/logprobs/prompt_rank.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

__device__ void rank_one_item(const PromptRankArgs& a, int64_t item, unsigned* parts) {
  const int64_t p = item / a.shard.num_tiles;
  const float normalizer = a.normalizers[p], actual = a.actual[p];
  if (!(reported_logprob(a.states[item].max, normalizer) > actual)) {  // NaN: nothing is greater
    if (threadIdx.x == 0) a.greater[item] = 0;
    return;  // the whole block
  }
  const VocabTile tile = a.shard.tiles[item % a.shard.num_tiles];
  const float* logits = a.logits + a.positions[p].row * a.stride + tile.begin;
  unsigned count = 0;
  for (int column = static_cast<int>(threadIdx.x); column < tile.width; column += kBlockThreads) {
    count += reported_logprob(logits[column], normalizer) > actual ? 1u : 0u;
  }
  count = __reduce_add_sync(~0u, count);
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned sum = 0;
    for (int warp = 0; warp < kBlockWarps; ++warp) sum += parts[warp];
    a.greater[item] = static_cast<int32_t>(sum);
  }
  __syncthreads();  // parts are free for the next item
}

__global__ void __launch_bounds__(kBlockThreads) prompt_rank_kernel(PromptRankArgs a) {
  __shared__ unsigned parts[kBlockWarps];
  const int64_t items = static_cast<int64_t>(*a.num_positions) * a.shard.num_tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) rank_one_item(a, item, parts);
}

}  // namespace

void prompt_rank(const PromptRankArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(prompt_rank_kernel, item_grid(args.max_positions, args.shard), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
