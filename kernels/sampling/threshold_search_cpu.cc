#include "kernels/sampling/threshold_search.h"

#include <algorithm>
#include <bit>

#include "kernels/logprobs/sort_key.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/threshold_search_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {

// A weight in [0, 1] as an integer of 2^-40: adding 2^12 leaves doubles 2^-40 apart, so the addition rounds and the
// mantissa is the answer. Sums of bit patterns may wrap; the surplus is subtracted once.
constexpr double kMassMagic = 4096.0;
static_assert(kMassBits == 40);

HWY_INLINE uint64_t fixed_mass(float weight) {
  return std::bit_cast<uint64_t>(static_cast<double>(weight) + kMassMagic) - std::bit_cast<uint64_t>(kMassMagic);
}

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// exp((logit - max) / temperature), the same for an id in every pass.
HWY_INLINE V weights(V logits, V max, V inverse_temperature) {
  return exp_nonpositive(D(), hn::Mul(hn::Sub(logits, max), inverse_temperature));
}

#if HWY_TARGET == HWY_SCALAR
struct MassSum {
  uint64_t sum = 0;
  void add(V weight) { sum += fixed_mass(hn::GetLane(weight)); }
  uint64_t total() const { return sum; }
};
#else
struct MassSum {
  using D64 = hn::Repartition<uint64_t, D>;
  using DD = hn::Repartition<double, D>;
  using DH = hn::Half<D>;
  hn::Vec<D64> sum;
  uint64_t terms;  // a lane

  MassSum() : sum(hn::Zero(D64())), terms(0) {}  // spelled out: an implicit one would not be built for the target

  HWY_INLINE void add(V weight) {
    const auto magic = hn::Set(DD(), kMassMagic);
    const auto low = hn::Add(hn::PromoteTo(DD(), hn::LowerHalf(DH(), weight)), magic);
    const auto high = hn::Add(hn::PromoteTo(DD(), hn::UpperHalf(DH(), weight)), magic);
    sum = hn::Add(sum, hn::Add(hn::BitCast(D64(), low), hn::BitCast(D64(), high)));
    terms += 2;
  }
  uint64_t total() const {
    HWY_ALIGN uint64_t lanes[hn::MaxLanes(D64())];
    hn::Store(sum, D64(), lanes);
    uint64_t all = 0;
    for (const uint64_t lane : lanes) all += lane - terms * std::bit_cast<uint64_t>(kMassMagic);
    return all;
  }
};
#endif

// Tail columns as a full vector: -inf weighs nothing and is below every range.
HWY_INLINE V load_padded(const float* logits, int count) {
  HWY_ALIGN float padded[hn::MaxLanes(D())];
  for (int i = 0; i < static_cast<int>(hn::MaxLanes(D())); ++i) padded[i] = i < count ? logits[i] : kNegativeInfinity;
  return hn::Load(D(), padded);
}

SurvivorMass tile_mass(const SamplingRow& row, float near, const float* logits, int width) {
  const D d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  const V max = hn::Set(d, row.max), inverse = hn::Set(d, 1.0f / row.temperature);
  const V floor = hn::Set(d, row.floor), near_floor = hn::Set(d, near);
  MassSum total, upper;
  for (int i = 0; i < width; i += kN) {
    const V x = i + kN <= width ? hn::LoadU(d, logits + i) : load_padded(logits + i, width - i);
    const auto survives = hn::Ge(x, floor);
    if (hn::AllFalse(d, survives)) continue;
    const V weight = hn::IfThenElseZero(survives, weights(x, max, inverse));
    total.add(weight);
    const auto is_near = hn::Ge(x, near_floor);
    if (!hn::AllFalse(d, is_near)) upper.add(hn::IfThenElseZero(is_near, weight));
  }
  return {total.total(), upper.total()};
}

void survivor_mass_items(const SurvivorMassArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard->num_tiles();
  for (int64_t item = begin; item < end; ++item) {
    const int32_t index = args.indices[item / num_tiles];
    const SamplingRow& row = args.rows[index];
    const int64_t t = item % num_tiles;
    args.tile_masses[item] = {};
    if (args.scans[static_cast<int64_t>(index) * num_tiles + t].max < row.floor) continue;
    const VocabTile& tile = args.shard->tiles[t];
    args.tile_masses[item] =
        tile_mass(row, args.nears[item / num_tiles], args.logits + row.row * args.stride + tile.begin, tile.width);
  }
}

void tile_bins(const SamplingRow& row, const ThresholdSearch& search, const float* logits, int width, uint64_t* bins) {
  const D d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  const V max = hn::Set(d, row.max), inverse = hn::Set(d, 1.0f / row.temperature);
  const V low = hn::Set(d, from_ordered_bits(search.low)), high = hn::Set(d, from_ordered_bits(search.high));
  const int shift = search.shift();
  HWY_ALIGN float values[kN], weight[kN];
  for (int i = 0; i < width; i += kN) {
    const V x = i + kN <= width ? hn::LoadU(d, logits + i) : load_padded(logits + i, width - i);
    const auto inside = hn::And(hn::Ge(x, low), hn::Le(x, high));
    if (hn::AllFalse(d, inside)) continue;
    hn::Store(x, d, values);
    if (search.by_mass) hn::Store(weights(x, max, inverse), d, weight);
    for (int lane = 0; lane < kN; ++lane) {
      const uint32_t key = ordered_bits(values[lane]);
      if (key < search.low || key > search.high) continue;  // a NaN's key is outside: `high` is a number's
      bins[(key - search.low) >> shift] += search.by_mass ? fixed_mass(weight[lane]) : 1;
    }
  }
}

void search_bins_items(const SearchBinsArgs& args, int thread, int64_t begin, int64_t end) {
  const int num_tiles = args.shard->num_tiles();
  const int64_t bins_size = static_cast<int64_t>(args.num_searches) * kSearchBins;
  uint64_t* bins = args.thread_bins + thread * bins_size;
  std::fill(bins, bins + bins_size, 0);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t s = item / num_tiles, t = item % num_tiles;
    const ThresholdSearch& search = args.searches[s];
    const SamplingRow& row = args.rows[search.index];
    const float low = from_ordered_bits(search.low);
    if (!(args.scans[static_cast<int64_t>(search.index) * num_tiles + t].max >= low)) continue;
    const VocabTile& tile = args.shard->tiles[t];
    tile_bins(row, search, args.logits + row.row * args.stride + tile.begin, tile.width, bins + s * kSearchBins);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(survivor_mass_items);
HWY_EXPORT(search_bins_items);

int ThresholdSearch::shift() const {
  static_assert(kSearchBins == 1 << 8);
  return std::max(0, static_cast<int>(std::bit_width(high - low)) - 8);
}

bool ThresholdSearch::descend(const uint64_t* bins) {
  const int width = shift();
  for (int bin = static_cast<int>((high - low) >> width); bin >= 0; --bin) {
    if (above + bins[bin] < target) {
      above += bins[bin];
      continue;
    }
    const uint32_t range_high = high;
    low += static_cast<uint32_t>(bin) << width;
    high = std::min(range_high, low + ((1u << width) - 1));
    return width == 0;
  }
  return true;  // fewer than the target in the whole range: everything in it stays
}

void survivor_mass(const SurvivorMassArgs& args, ThreadPool& pool) {
  const SurvivorMassArgs* launch = &args;
  const int num_tiles = args.shard->num_tiles();
  pool.parallel_for(static_cast<int64_t>(args.num_rows) * num_tiles, 4, [launch](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(survivor_mass_items)(*launch, begin, end);
  });
  for (int r = 0; r < args.num_rows; ++r) {
    args.masses[r] = {};
    for (int t = 0; t < num_tiles; ++t) {
      args.masses[r].total += args.tile_masses[static_cast<int64_t>(r) * num_tiles + t].total;
      args.masses[r].near += args.tile_masses[static_cast<int64_t>(r) * num_tiles + t].near;
    }
  }
}

void search_bins(const SearchBinsArgs& args, ThreadPool& pool) {
  const SearchBinsArgs* launch = &args;
  pool.run([launch](int thread, int num_threads) {
    const int64_t items = static_cast<int64_t>(launch->num_searches) * launch->shard->num_tiles();
    HWY_DYNAMIC_DISPATCH(search_bins_items)
    (*launch, thread, items * thread / num_threads, items * (thread + 1) / num_threads);
  });
  const int64_t bins_size = static_cast<int64_t>(args.num_searches) * kSearchBins;
  std::copy(args.thread_bins, args.thread_bins + bins_size, args.bins);
  for (int thread = 1; thread < pool.num_threads(); ++thread) {
    for (int64_t i = 0; i < bins_size; ++i) args.bins[i] += args.thread_bins[thread * bins_size + i];
  }
}
}  // namespace helios
#endif
