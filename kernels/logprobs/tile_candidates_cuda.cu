// One block a (position, tile). Most tiles lie below the row's cut: their blocks read a few words and are done.
//
// A tile that is read is read once, 32 neighbouring ids a warp at a time; each warp keeps its best 32 keys in registers
// and the block merges eight such lists.
#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

constexpr int kBatches = kTileWidth / kBlockThreads;  // of 32 ids, a warp's

__device__ SortKey tile_top_keys(const float* logits, int width, TokenId first_id, float normalizer, float threshold,
                                 SortKey (*lists)[kWarpSize]) {
  float loaded[kBatches];  // all in flight at once
  for (int b = 0; b < kBatches; ++b) {
    const int column = static_cast<int>(threadIdx.x) + b * kBlockThreads;
    loaded[b] = column < width ? logits[column] : 0.0f;
  }
  WarpTopKeys<SortKey> best;
  for (int b = 0; b < kBatches; ++b) {
    const int column = static_cast<int>(threadIdx.x) + b * kBlockThreads;
    const float value = reported_logprob(loaded[b], normalizer);
    best.insert(column < width && value >= threshold ? make_key(value, first_id + column) : kNoKey);
  }
  merge_block(best, lists);
  return best.best();
}

__device__ void one_item(const TileCandidatesArgs& a, int64_t item, SortKey (*lists)[kWarpSize]) {
  const int64_t p = item / a.shard.num_tiles;
  const LogprobPosition& position = a.positions[p];
  // Judged on reported values: a smaller logit may round to the same logprob and win by its id. NaN fails both.
  const float normalizer = a.normalizers[p];
  const float threshold = reported_logprob(a.cuts[p], normalizer);
  if (position.num_selected > 0 || !(reported_logprob(a.states[item].max, normalizer) >= threshold)) {
    if (threadIdx.x == 0) a.counts[item] = kTileNotRead;
    return;
  }
  const VocabTile tile = a.shard.tiles[item % a.shard.num_tiles];
  const SortKey key = tile_top_keys(a.logits + position.row * a.stride + tile.begin, tile.width,
                                    a.shard.first_id + tile.begin, normalizer, threshold, lists);
  if (threadIdx.x >= kWarpSize) return;
  const unsigned kept = __ballot_sync(~0u, key != kNoKey);
  if (key != kNoKey) a.keys[item * kKeptSortKeys + threadIdx.x] = key;
  if (threadIdx.x == 0) a.counts[item] = __popc(kept);
}

__global__ void __launch_bounds__(kBlockThreads) tile_candidates_kernel(TileCandidatesArgs a) {
  __shared__ SortKey lists[kBlockWarps][kWarpSize];
  const int64_t items = static_cast<int64_t>(*a.num_positions) * a.shard.num_tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) one_item(a, item, lists);
}

}  // namespace

void tile_candidates(const TileCandidatesArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(tile_candidates_kernel, item_grid(args.max_positions, args.shard), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
