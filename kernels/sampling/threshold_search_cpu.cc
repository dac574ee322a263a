#include "kernels/sampling/threshold_search.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/logprobs/sort_key.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/threshold_search_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"

#ifndef HELIOS_KERNELS_SAMPLING_THRESHOLD_SEARCH_CPU_ONCE
#define HELIOS_KERNELS_SAMPLING_THRESHOLD_SEARCH_CPU_ONCE
namespace helios {

// A linear round's bin of a value at or below the top. Every step rounds monotonically, so a bin is an interval. The
// vector code below computes the same.
struct LinearBins {
  float top, scale;
  explicit LinearBins(const ThresholdSearch& search)
      : top(from_ordered_bits(search.high)), scale(static_cast<float>(kRestBin) / search.window) {}
  int of(float value) const { return static_cast<int>(std::min((top - value) * scale, static_cast<float>(kRestBin))); }
  /// The lowest key at or above `low` whose bin is at most `bin`, at least one being so.
  uint32_t lowest_key(int bin, uint32_t low, uint32_t high) const {
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (of(from_ordered_bits(middle)) <= bin) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

// A weight in [0, 1] as an integer of 2^-40: adding 2^12 leaves doubles 2^-40 apart, so the addition rounds and the
// mantissa is the answer.
constexpr double kMassMagic = 4096.0;
constexpr uint64_t kMassMagicBits = std::bit_cast<uint64_t>(kMassMagic);
static_assert(kMassBits == 40);

}  // namespace helios
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
constexpr int kN = static_cast<int>(hn::MaxLanes(D()));

// exp((logit - max) / temperature), the same for an id in every round.
HWY_INLINE V weights(V logits, V max, V inverse_temperature) {
  return exp_nonpositive(D(), hn::Mul(hn::Sub(logits, max), inverse_temperature));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_mass(V weight, uint64_t* HWY_RESTRICT mass) {
  *mass = std::bit_cast<uint64_t>(static_cast<double>(hn::GetLane(weight)) + kMassMagic) - kMassMagicBits;
}
struct MassSum {
  uint64_t sum = 0;
  void add(V weight) {
    uint64_t mass;
    store_mass(weight, &mass);
    sum += mass;
  }
  uint64_t total() const { return sum; }
};
#else
using DD = hn::Repartition<double, D>;
using D64 = hn::Repartition<uint64_t, D>;

HWY_INLINE void mass_bits(V weight, hn::Vec<D64>* lower, hn::Vec<D64>* upper) {
  const hn::Half<D> half;
  const auto magic = hn::Set(DD(), kMassMagic);
  *lower = hn::BitCast(D64(), hn::Add(hn::PromoteTo(DD(), hn::LowerHalf(half, weight)), magic));
  *upper = hn::BitCast(D64(), hn::Add(hn::PromoteTo(DD(), hn::UpperHalf(half, weight)), magic));
}

HWY_INLINE void store_mass(V weight, uint64_t* HWY_RESTRICT mass) {
  hn::Vec<D64> lower, upper;
  mass_bits(weight, &lower, &upper);
  const auto bits = hn::Set(D64(), kMassMagicBits);
  hn::Store(hn::Sub(lower, bits), D64(), mass);
  hn::Store(hn::Sub(upper, bits), D64(), mass + kN / 2);
}

// Sums bit patterns, which may wrap, and takes the magic number's share off once.
struct MassSum {
  hn::Vec<D64> sum;
  uint64_t terms;  // a lane

  MassSum() : sum(hn::Zero(D64())), terms(0) {}  // spelled out: an implicit one would not be built for the target
  HWY_INLINE void add(V weight) {
    hn::Vec<D64> lower, upper;
    mass_bits(weight, &lower, &upper);
    sum = hn::Add(sum, hn::Add(lower, upper));
    terms += 2;
  }
  uint64_t total() const {
    HWY_ALIGN uint64_t lanes[hn::MaxLanes(D64())];
    hn::Store(sum, D64(), lanes);
    uint64_t all = 0;
    for (const uint64_t lane : lanes) all += lane - terms * kMassMagicBits;
    return all;
  }
};
#endif

// Which lanes, as bits.
HWY_INLINE uint32_t lane_bits(hn::Mask<D> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(D(), mask, bytes);
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
}

// Tail columns as a full vector: -inf weighs nothing and is below every range.
HWY_INLINE V load_padded(const float* logits, int count) {
  HWY_ALIGN float padded[kN];
  for (int i = 0; i < kN; ++i) padded[i] = i < count ? logits[i] : kNegativeInfinity;
  return hn::Load(D(), padded);
}

// What a tile's vectors are compared with and weighed by.
struct Range {
  V low, high, max, inverse;
  Range(const SamplingRow& row, const ThresholdSearch& search)
      : low(hn::Set(D(), from_ordered_bits(search.low))),
        high(hn::Set(D(), from_ordered_bits(search.high))),
        max(hn::Set(D(), row.max)),
        inverse(hn::Set(D(), 1.0f / row.temperature)) {}
  hn::Mask<D> inside(V x) const { return hn::And(hn::Ge(x, low), hn::Le(x, high)); }
};

// Calls bins->add() for the vectors of a tile; four at a time are passed over when all are below the range.
template <class Bins>
HWY_INLINE void for_each_vector(const float* HWY_RESTRICT logits, int width, const Range& range, Bins* bins) {
  const D d;
  int i = 0;
  for (; i + 4 * kN <= width; i += 4 * kN) {
    const V x0 = hn::LoadU(d, logits + i), x1 = hn::LoadU(d, logits + i + kN);
    const V x2 = hn::LoadU(d, logits + i + 2 * kN), x3 = hn::LoadU(d, logits + i + 3 * kN);
    if (hn::AllFalse(d, hn::Ge(hn::Max(hn::Max(x0, x1), hn::Max(x2, x3)), range.low))) continue;
    bins->add(x0);
    bins->add(x1);
    bins->add(x2);
    bins->add(x3);
  }
  for (; i < width; i += kN) {
    bins->add(i + kN <= width ? hn::LoadU(d, logits + i) : load_padded(logits + i, width - i));
  }
}

// Ids in the window go to their bins one by one; the many below it are summed in vectors.
template <bool kByMass>
struct LinearTile {
  const Range& range;
  uint64_t* HWY_RESTRICT bins;
  V scale, rest;
  MassSum below_mass;
  uint64_t below_count;

  LinearTile(const Range& r, const LinearBins& linear, uint64_t* b)
      : range(r),
        bins(b),
        scale(hn::Set(D(), linear.scale)),
        rest(hn::Set(D(), static_cast<float>(kRestBin))),
        below_count(0) {}

  HWY_INLINE void add(V x) {
    const D d;
    const auto inside = range.inside(x);
    if (hn::AllFalse(d, inside)) return;
    const V steps = hn::Min(hn::Mul(hn::Sub(range.high, x), scale), rest);
    const auto below = hn::And(inside, hn::Eq(steps, rest));
    const uint32_t near = lane_bits(hn::AndNot(below, inside));
    HWY_ALIGN int32_t bin[kN];
    HWY_ALIGN uint64_t mass[kN];
    if constexpr (kByMass) {
      const V weight = weights(x, range.max, range.inverse);
      below_mass.add(hn::IfThenElseZero(below, weight));
      if (near) store_mass(weight, mass);
    } else {
      below_count += hn::CountTrue(d, below);
    }
    if (!near) return;
    hn::Store(hn::ConvertTo(DI(), steps), DI(), bin);
    if (near == (1u << kN) - 1) {
      for (int lane = 0; lane < kN; ++lane) bins[bin[lane]] += kByMass ? mass[lane] : 1;
      return;
    }
    for (uint32_t lanes = near; lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      bins[bin[lane]] += kByMass ? mass[lane] : 1;
    }
  }
  void finish() { bins[kRestBin] += kByMass ? below_mass.total() : below_count; }
};

template <bool kByMass>
struct RadixTile {
  const Range& range;
  const ThresholdSearch& search;
  uint64_t* HWY_RESTRICT bins;
  int shift;

  HWY_INLINE void add(V x) {
    const D d;
    const auto inside = range.inside(x);
    if (hn::AllFalse(d, inside)) return;
    HWY_ALIGN float values[kN];
    HWY_ALIGN uint64_t mass[kN];
    hn::Store(x, d, values);
    if constexpr (kByMass) store_mass(weights(x, range.max, range.inverse), mass);
    for (uint32_t lanes = lane_bits(inside); lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      const uint32_t key = ordered_bits(values[lane]);
      if (key >= search.low && key <= search.high) {  // a range that ends between the zeros compares as one zero
        bins[(key - search.low) >> shift] += kByMass ? mass[lane] : 1;
      }
    }
  }
};

template <bool kByMass>
void tile_bins(const SamplingRow& row, const ThresholdSearch& search, const float* HWY_RESTRICT logits, int width,
               uint64_t* HWY_RESTRICT bins) {
  const Range range(row, search);
  if (search.window > 0.0f) {
    LinearTile<kByMass> linear(range, LinearBins(search), bins);
    for_each_vector(logits, width, range, &linear);
    linear.finish();
  } else {
    RadixTile<kByMass> radix{range, search, bins, search.shift()};
    for_each_vector(logits, width, range, &radix);
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
    if (!(args.scans[static_cast<int64_t>(search.index) * num_tiles + t].max >= from_ordered_bits(search.low)))
      continue;
    const VocabTile& tile = args.shard->tiles[t];
    const float* logits = args.logits + row.row * args.stride + tile.begin;
    if (search.by_mass) {
      tile_bins<true>(row, search, logits, tile.width, bins + s * kSearchBins);
    } else {
      tile_bins<false>(row, search, logits, tile.width, bins + s * kSearchBins);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(search_bins_items);

namespace {

// Widths of the first window. A count's answer is seldom further down than this many logits; mass below the second
// window is less than 2^-40 of a token, so it is not there to be found.
constexpr float kCountWindow = 16.0f;
constexpr float kMassWindowNats = 8.0f;

// 0 goes straight to the radix rounds: a range so narrow that its steps leave FP32.
float first_window(float low, float high, float widest) {
  const float width = (high - low) * 1.001f;  // the range's end falls into a step, not into the rest
  return width < 1e-25f ? 0.0f : std::min(width, widest);
}

}  // namespace

ThresholdSearch ThresholdSearch::by_count(int32_t index, float low, float high, uint64_t count) {
  ThresholdSearch search{.index = index, .low = ordered_bits(low), .high = ordered_bits(high), .target = count};
  search.window = first_window(low, high, kCountWindow);
  return search;
}

ThresholdSearch ThresholdSearch::by_share(int32_t index, float low, float high, float share, float temperature) {
  ThresholdSearch search{
      .index = index, .by_mass = true, .low = ordered_bits(low), .high = ordered_bits(high), .mass_share = share};
  search.window = first_window(low, high, kMassWindowNats * temperature);
  return search;
}

int ThresholdSearch::shift() const {
  static_assert(kSearchBins == 1 << 8);
  return std::max(0, static_cast<int>(std::bit_width(high - low)) - 8);
}

bool ThresholdSearch::descend(const uint64_t* bins) {
  if (by_mass && target == 0) {
    uint64_t total = 0;
    for (int bin = 0; bin < kSearchBins; ++bin) total += bins[bin];
    target = std::max<uint64_t>(
        1, static_cast<uint64_t>(std::ceil(static_cast<double>(mass_share) * static_cast<double>(total))));
  }
  if (window > 0.0f) return descend_linear(bins);
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

bool ThresholdSearch::descend_linear(const uint64_t* bins) {
  const LinearBins linear(*this);
  const int rest = linear.of(from_ordered_bits(low));  // the range may end before the window does
  for (int bin = 0; bin <= std::min(rest, kRestBin - 1); ++bin) {
    if (above + bins[bin] < target) {
      above += bins[bin];
      continue;
    }
    if (bin > 0) high = linear.lowest_key(bin - 1, low, high) - 1;
    low = linear.lowest_key(bin, low, high);
    window = 0.0f;
    return low == high;
  }
  if (rest < kRestBin) return true;  // fewer than the target in the whole range
  high = linear.lowest_key(kRestBin - 1, low, high) - 1;
  window = ++linear_rounds < kLinearRounds ? 4.0f * window : 0.0f;
  return false;
}

void search_bins(const SearchBinsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
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
