#include "kernels/logprobs/row_normalizer.h"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/row_normalizer_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {

// Tiles of one segment: the exponentials in vectors, the sum in tile order.
LseState fold_segment(const LseState* states, int count) {
  using D = hn::CappedTag<float, kTileLanes>;
  const D d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  float max = kNegativeInfinity;
  for (int t = 0; t < count; ++t) max = states[t].max > max ? states[t].max : max;
  const auto shift = hn::Set(d, max == kNegativeInfinity ? 0.0f : max);
  float mass = 0.0f;
  for (int first = 0; first < count; first += kN) {
    const int n = std::min(kN, count - first);
    alignas(64) float maxima[kN], masses[kN];
    for (int i = 0; i < kN; ++i) {
      maxima[i] = i < n ? states[first + i].max : kNegativeInfinity;
      masses[i] = i < n ? states[first + i].mass : 0.0f;
    }
    const auto scaled = hn::Mul(hn::Load(d, masses), exp_nonpositive(d, hn::Sub(hn::Load(d, maxima), shift)));
    hn::Store(scaled, d, masses);
    for (int i = 0; i < n; ++i) mass += masses[i];
  }
  return {max, mass};
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(fold_segment);

LseState fold_tiles(const LseState* states, const ShardTilesView& shard) {
  std::array<LseState, kCanonicalSegments> segments;
  for (int s = 0; s < shard.num_segments; ++s) {
    const int first = shard.segment_first_tile[s];
    segments[s] = HWY_DYNAMIC_DISPATCH(fold_segment)(states + first, shard.segment_first_tile[s + 1] - first);
  }
  return merge_tree(segments.data(), shard.num_segments);
}

float lane_max_cut(const LseState* states, const float* lane_max, int num_tiles) {
  std::array<float, kKeptSortKeys> best;  // sorted, largest first
  best.fill(kNegativeInfinity);
  for (int t = 0; t < num_tiles; ++t) {
    if (!(states[t].max > best.back())) continue;
    const float* lanes = lane_max + t * kTileLanes;
    for (int lane = 0; lane < kTileLanes; ++lane) {
      if (!(lanes[lane] > best.back())) continue;
      int at = kKeptSortKeys - 1;
      for (; at > 0 && best[at - 1] < lanes[lane]; --at) best[at] = best[at - 1];
      best[at] = lanes[lane];
    }
  }
  return best.back();
}

float position_cut(const LogprobPosition& position, const LseState* states, const float* lane_max, int num_tiles) {
  return position.num_selected > 0 ? kNegativeInfinity : lane_max_cut(states, lane_max, num_tiles);
}

void row_normalizer(const RowNormalizerArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const RowNormalizerArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    const int num_tiles = launch->shard.num_tiles;
    for (int64_t p = begin; p < end; ++p) {
      const LseState* states = launch->states + p * num_tiles;
      launch->normalizers[p] = log_sum_exp(fold_tiles(states, launch->shard));
      launch->cuts[p] =
          position_cut(launch->positions[p], states, launch->lane_max + p * num_tiles * kTileLanes, num_tiles);
    }
  });
}
}  // namespace helios
#endif
