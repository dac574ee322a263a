// One block a (tile, row). First each of the tile's at most 33 noise blocks gets an upper bound: the score of its largest
// logit with its smallest uniform. The most promising one is drawn, and after it only those whose bound reaches the best
// score so far, the row's arg max's included: one or two a tile, each by a warp, two ids a lane and one Philox counter
// for both.
#include "kernels/base/block_reduce.cuh"
#include "kernels/sampling/gumbel_draw.h"

namespace helios {
namespace {

constexpr int kMaxBlocks = kTileWidth / kNoiseBlock + 1;  // a tile may begin and end inside a block
// exact_log() is not monotone in its last bits, which a bound must allow for; all else in a score is.
constexpr double kBoundSlack = 1e-9;
static_assert(kNoiseBlock == 2 * kWarpSize && kWarpSize == 2 * kNoiseLanes && kMaxBlocks <= 2 * kWarpSize);

struct Tile {
  const float* logits;
  TokenId first_id;
  int width;

  __device__ TokenId block_id(int block) const { return first_id / kNoiseBlock * kNoiseBlock + block * kNoiseBlock; }
  __device__ int num_blocks() const { return (first_id % kNoiseBlock + width + kNoiseBlock - 1) / kNoiseBlock; }
  /// -inf outside the tile.
  __device__ float logit(TokenId id) const {
    const int column = id - first_id;
    return column >= 0 && column < width ? logits[column] : -std::numeric_limits<float>::infinity();
  }
};

__device__ inline SampledToken warp_best(SampledToken token) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) {
    const SampledToken other{__shfl_xor_sync(~0u, token.score, step), __shfl_xor_sync(~0u, token.id, step)};
    if (other.beats(token)) token = other;
  }
  return token;
}

/// The best of a block's survivors, for every lane. Whole warps.
__device__ SampledToken draw_block(const SamplingRow& row, const Tile& tile, int block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const TokenId first = tile.block_id(block);
  const auto number = static_cast<uint32_t>(first / kNoiseBlock);
  const double least = block_least(noise_word(row.noise, NoiseStream::kBlockLeast, number));
  const int least_at = block_lane(noise_word(row.noise, NoiseStream::kBlockLane, number));
  const PhiloxWords words = noise_words_of(row.noise, NoiseStream::kToken, static_cast<uint32_t>(first + lane));
  SampledToken best;
  for (int half = 0; half < 2; ++half) {
    const int at = lane + half * kWarpSize;
    const float logit = tile.logit(first + at);
    if (!(logit >= row.floor)) continue;
    const uint32_t word = lane < kNoiseLanes ? words[2 * half] : words[2 * half + 1];  // number at / kNoiseLanes
    const double uniform = at == least_at ? least : above_least(least, word);
    const SampledToken token{score_of(row, logit, uniform), first + at};
    if (token.beats(best)) best = token;
  }
  return warp_best(best);
}

__global__ void __launch_bounds__(kBlockThreads) gumbel_draw_kernel(GumbelDrawArgs a) {
  __shared__ float block_max[kMaxBlocks];
  __shared__ double bounds[kMaxBlocks];
  __shared__ double scores[kBlockWarps];
  __shared__ TokenId ids[kBlockWarps];
  __shared__ double reach;  // what a bound has to reach
  __shared__ int promising;
  const int64_t r = blockIdx.y;
  if (r >= *a.num_rows) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int64_t item = r * a.shard.num_tiles + blockIdx.x;
  const SamplingRow& row = a.rows[r];
  if (!row.draws() || !(a.scans[item].max >= row.floor)) {
    if (thread == 0) a.tile_best[item] = SampledToken{};
    return;
  }
  const VocabTile range = a.shard.tiles[blockIdx.x];
  const Tile tile{row.logits + range.begin, a.shard.first_id + range.begin, range.width};
  const int num_blocks = tile.num_blocks();

  for (int block = warp; block < num_blocks; block += kBlockWarps) {
    float max = fmaxf(tile.logit(tile.block_id(block) + lane), tile.logit(tile.block_id(block) + lane + kWarpSize));
    for (int step = kWarpSize / 2; step > 0; step >>= 1) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
    if (lane == 0) block_max[block] = max;
  }
  if (thread == 0) {
    const float top = row.logits[row.arg_max - a.shard.first_id];
    reach = top >= row.floor ? gumbel_score(row, top, row.arg_max) : -std::numeric_limits<double>::infinity();
  }
  __syncthreads();
  if (thread < num_blocks) {
    double bound = -std::numeric_limits<double>::infinity();
    if (block_max[thread] >= row.floor) {
      const auto number = static_cast<uint32_t>(tile.block_id(thread) / kNoiseBlock);
      const double least = block_least(noise_word(row.noise, NoiseStream::kBlockLeast, number));
      bound = rounded_sum(static_cast<double>(block_max[thread]) / static_cast<double>(row.temperature),
                          gumbel(least) + kBoundSlack);
    }
    bounds[thread] = bound;
  }
  __syncthreads();
  if (warp == 0) {
    SampledToken best{bounds[lane < num_blocks ? lane : 0], lane < num_blocks ? lane : 0};
    if (lane + kWarpSize < num_blocks && bounds[lane + kWarpSize] > best.score) {
      best = {bounds[lane + kWarpSize], lane + kWarpSize};
    }
    best = warp_best(best);
    if (lane == 0) promising = best.id;
    SampledToken drawn;
    if (best.score >= reach) drawn = draw_block(row, tile, best.id);
    if (lane == 0) {
      scores[0] = drawn.score;
      ids[0] = drawn.id;
      if (drawn.id >= 0 && drawn.score > reach) reach = drawn.score;
    }
  }
  __syncthreads();
  SampledToken best;
  if (thread == 0) best = {scores[0], ids[0]};  // lane 0 of a warp keeps its best
  for (int block = warp; block < num_blocks; block += kBlockWarps) {
    if (block == promising || !(bounds[block] >= reach)) continue;
    const SampledToken drawn = draw_block(row, tile, block);
    if (drawn.beats(best)) best = drawn;
  }
  if (lane == 0) {
    scores[warp] = best.score;
    ids[warp] = best.id;
  }
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < kBlockWarps; ++w) {
    const SampledToken token{scores[w], ids[w]};
    if (token.beats(best)) best = token;
  }
  a.tile_best[item] = best;
}

}  // namespace

void gumbel_draw(const GumbelDrawArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(gumbel_draw_kernel,
               dim3(static_cast<unsigned>(args.shard.num_tiles), static_cast<unsigned>(args.max_rows)),
               dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
