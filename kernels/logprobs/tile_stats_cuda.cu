// One block a (position, tile): each logit is read once, in vectors of four, and stays in registers for the
// exponentials.
//
// Sums keep the CPU's order, and so its bits: the exponentials go to shared memory, where sixteen threads add one lane
// each, 128 additions that follow one another (about 0.3 us, hidden behind other blocks), and then each other as a
// tree.
#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

struct alignas(16) Quad {
  float v[4];
};
constexpr int kQuads = kTileWidth / 4 / kBlockThreads;  // a thread's; quad q of a tile holds lanes 4 * (q % 4) + 0..3
constexpr int kAhead = 8;
static_assert(kTileWidth % (kAhead * kTileLanes) == 0);

struct Scratch {
  Quad terms[kTileWidth / 4];
  float lane_max[kBlockWarps][kTileLanes];
};

/// Four logits; -inf, which changes neither a maximum nor a sum, behind the tile's end.
__device__ inline Quad load_quad(const float* logits, int at, int width, bool aligned) {
  if (aligned && at + 4 <= width) return *reinterpret_cast<const Quad*>(logits + at);
  Quad quad;
  for (int c = 0; c < 4; ++c) quad.v[c] = at + c < width ? logits[at + c] : kNegativeInfinity;
  return quad;
}

// fmaxf passes NaN over: a NaN never becomes the maximum, it shows in the mass.
__device__ void warp_lane_maxima(const Quad (&quads)[kQuads], float* lane_max) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  for (int c = 0; c < 4; ++c) {
    float max = kNegativeInfinity;
    for (int j = 0; j < kQuads; ++j) max = fmaxf(quads[j].v[c], max);
    for (int step = kWarpSize / 2; step >= 4; step /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
    if (lane < 4) lane_max[4 * lane + c] = max;
  }
}

__device__ float block_max(const Scratch& scratch) {
  const float* parts = &scratch.lane_max[0][0];
  float max = kNegativeInfinity;
  for (int i = static_cast<int>(threadIdx.x % kWarpSize); i < kBlockWarps * kTileLanes; i += kWarpSize) {
    max = fmaxf(max, parts[i]);
  }
  for (int step = kWarpSize / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
  return max;
}

__device__ void one_tile(const float* logits, int width, LseState* state, float* lane_max, Scratch& scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool aligned = reinterpret_cast<uintptr_t>(logits) % alignof(Quad) == 0;
  Quad quads[kQuads];
  for (int j = 0; j < kQuads; ++j) quads[j] = load_quad(logits, 4 * (thread + j * kBlockThreads), width, aligned);
  warp_lane_maxima(quads, scratch.lane_max[thread / kWarpSize]);
  __syncthreads();
  const float max = block_max(scratch);
  // All -inf: shift by zero, so that the mass is 0, or NaN if a NaN is there. A +inf gives inf - inf = NaN on purpose.
  const float shift = max == kNegativeInfinity ? 0.0f : max;
  for (int j = 0; j < kQuads; ++j) {
    for (int c = 0; c < 4; ++c) quads[j].v[c] = exp_nonpositive(quads[j].v[c] - shift);
    scratch.terms[thread + j * kBlockThreads] = quads[j];
  }
  __syncthreads();
  if (thread < kTileLanes) {
    float best = kNegativeInfinity;
    for (int warp = 0; warp < kBlockWarps; ++warp) best = fmaxf(best, scratch.lane_max[warp][thread]);
    lane_max[thread] = best;
    float sum = 0.0f;
    for (int first = 0; first < width; first += kAhead * kTileLanes) {  // behind the tile's end lie zeros
      float terms[kAhead];                                              // loads that do not wait for the additions
      for (int i = 0; i < kAhead; ++i) {
        const int at = first + i * kTileLanes + thread;
        terms[i] = scratch.terms[at / 4].v[at % 4];
      }
      for (int i = 0; i < kAhead; ++i) sum += terms[i];
    }
    for (int half = kTileLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffu, sum, half, kTileLanes);
    if (thread == 0) *state = {max, sum};
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kBlockThreads) tile_stats_kernel(TileStatsArgs a) {
  __shared__ Scratch scratch;
  const int num_tiles = a.shard.num_tiles;
  const int64_t items = static_cast<int64_t>(*a.num_positions) * num_tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const VocabTile tile = a.shard.tiles[item % num_tiles];
    one_tile(a.logits + a.positions[item / num_tiles].row * a.stride + tile.begin, tile.width, a.states + item,
             a.lane_max + item * kTileLanes, scratch);
  }
}

}  // namespace

void tile_stats(const TileStatsArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(tile_stats_kernel, item_grid(args.max_positions, args.shard), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
