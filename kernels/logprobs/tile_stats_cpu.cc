#include "kernels/logprobs/tile_stats.h"

#include <algorithm>

#ifndef HELIOS_KERNELS_LOGPROBS_TILE_STATS_CPU_ONCE
#define HELIOS_KERNELS_LOGPROBS_TILE_STATS_CPU_ONCE
namespace helios {
struct TileLogits {
  const float* logits = nullptr;
  int width = 0;
};
}  // namespace helios
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/tile_stats_cpu.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {

using TileD = hn::CappedTag<float, kTileLanes>;
using TileV = hn::Vec<TileD>;
constexpr int kN = static_cast<int>(hn::MaxLanes(TileD()));
constexpr int kParts = kTileLanes / kN;  // vectors that hold the sixteen lanes

// Max(x, acc) keeps acc when x is NaN, on every target: a NaN never becomes the maximum, it shows in the mass.
HWY_INLINE void max_group(const float* HWY_RESTRICT group, TileV (&acc)[kParts]) {
  const TileD d;
  for (int part = 0; part < kParts; ++part) acc[part] = hn::Max(hn::LoadU(d, group + part * kN), acc[part]);
}

HWY_INLINE void mass_group(const float* HWY_RESTRICT group, TileV shift, TileV (&acc)[kParts]) {
  const TileD d;
  for (int part = 0; part < kParts; ++part) {
    acc[part] = hn::Add(acc[part], exp_nonpositive(d, hn::Sub(hn::LoadU(d, group + part * kN), shift)));
  }
}

void one_tile(const TileLogits& tile, const TileLogits& next, LseState* state, float* HWY_RESTRICT lane_max) {
  const float* HWY_RESTRICT logits = tile.logits;
  const int width = tile.width;
  const TileD d;
  const int full = width / kTileLanes * kTileLanes;
  // The last ids, padded with -inf, which changes neither a maximum nor a sum.
  alignas(64) float tail[kTileLanes];
  std::fill(tail, tail + kTileLanes, kNegativeInfinity);
  std::copy(logits + full, logits + width, tail);

  TileV acc[kParts];
  for (TileV& v : acc) v = hn::Set(d, kNegativeInfinity);
  for (int i = 0; i < full; i += kTileLanes) max_group(logits + i, acc);
  if (full < width) max_group(tail, acc);
  for (int part = 0; part < kParts; ++part) hn::StoreU(acc[part], d, lane_max + part * kN);
  float max = kNegativeInfinity;
  for (int lane = 0; lane < kTileLanes; ++lane) max = lane_max[lane] > max ? lane_max[lane] : max;

  // All -inf: shift by zero, so that the mass is 0, or NaN if a NaN is there. A +inf gives inf - inf = NaN on purpose.
  const TileV shift = hn::Set(d, max == kNegativeInfinity ? 0.0f : max);
  for (TileV& v : acc) v = hn::Zero(d);
  for (int i = 0; i < full; i += kTileLanes) {
    if (i < next.width) hwy::Prefetch(next.logits + i);  // memory works while the exponentials are computed
    mass_group(logits + i, shift, acc);
  }
  if (full < width) mass_group(tail, shift, acc);
  alignas(64) float sums[kTileLanes];
  for (int part = 0; part < kParts; ++part) hn::Store(acc[part], d, sums + part * kN);
  for (int half = kTileLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  *state = {max, sums[0]};
}

TileLogits logits_of(const TileStatsArgs& args, int64_t item) {
  const int num_tiles = args.shard.num_tiles;
  const VocabTile& tile = args.shard.tiles[item % num_tiles];
  return {args.logits + args.positions[item / num_tiles].row * args.stride + tile.begin, tile.width};
}

void tile_stats_items(const TileStatsArgs& args, int64_t begin, int64_t end) {
  TileLogits tile = logits_of(args, begin);
  for (int64_t item = begin; item < end; ++item) {
    const TileLogits next = item + 1 < end ? logits_of(args, item + 1) : TileLogits{};
    one_tile(tile, next, args.states + item, args.lane_max + item * kTileLanes);
    tile = next;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(tile_stats_items);

void tile_stats(const TileStatsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const TileStatsArgs* launch = &args;  // one pointer: the function object stays in its own small storage
  pool.parallel_for(*args.num_positions * static_cast<int64_t>(args.shard.num_tiles), 4,
                    [launch](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(tile_stats_items)(*launch, begin, end);
                    });
}
}  // namespace helios
#endif
