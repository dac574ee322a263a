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
#else
HWY_INLINE void store_mass(V weight, uint64_t* HWY_RESTRICT mass) {
  const hn::Repartition<double, D> dd;
  const hn::Repartition<uint64_t, D> d64;
  const hn::Half<D> half;
  const auto magic = hn::Set(dd, kMassMagic);
  const auto bits = hn::Set(d64, kMassMagicBits);
  const auto lower = hn::Add(hn::PromoteTo(dd, hn::LowerHalf(half, weight)), magic);
  const auto upper = hn::Add(hn::PromoteTo(dd, hn::UpperHalf(half, weight)), magic);
  hn::Store(hn::Sub(hn::BitCast(d64, lower), bits), d64, mass);
  hn::Store(hn::Sub(hn::BitCast(d64, upper), bits), d64, mass + kN / 2);
}
#endif

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
};

// Mass or 1 of each lane inside the range, 0 outside.
HWY_INLINE void store_amounts(bool by_mass, const Range& range, V x, hn::Mask<D> inside,
                              uint64_t* HWY_RESTRICT amounts) {
  if (by_mass) {
    store_mass(hn::IfThenElseZero(inside, weights(x, range.max, range.inverse)), amounts);
    return;
  }
  HWY_ALIGN float ones[kN];
  hn::Store(hn::IfThenElseZero(inside, hn::Set(D(), 1.0f)), D(), ones);
  for (int lane = 0; lane < kN; ++lane) amounts[lane] = static_cast<uint64_t>(ones[lane]);
}

void linear_tile(const SamplingRow& row, const ThresholdSearch& search, const float* HWY_RESTRICT logits, int width,
                 uint64_t* HWY_RESTRICT bins) {
  const D d;
  const Range range(row, search);
  const LinearBins linear(search);
  const V scale = hn::Set(d, linear.scale), rest = hn::Set(d, static_cast<float>(kRestBin));
  HWY_ALIGN int32_t bin[kN];
  HWY_ALIGN uint64_t amounts[kN];
  uint64_t below = 0;
  for (int i = 0; i < width; i += kN) {
    const V x = i + kN <= width ? hn::LoadU(d, logits + i) : load_padded(logits + i, width - i);
    const auto inside = hn::And(hn::Ge(x, range.low), hn::Le(x, range.high));
    if (hn::AllFalse(d, inside)) continue;
    store_amounts(search.by_mass, range, x, inside, amounts);
    const V steps = hn::Min(hn::Mul(hn::Sub(range.high, x), scale), rest);
    if (hn::AllTrue(d, hn::Eq(steps, rest))) {
      for (int lane = 0; lane < kN; ++lane) below += amounts[lane];
      continue;
    }
    hn::Store(hn::ConvertTo(DI(), hn::Max(steps, hn::Zero(d))), DI(), bin);  // above the range: bin 0 gets its zero
    for (int lane = 0; lane < kN; ++lane) bins[bin[lane]] += amounts[lane];
  }
  bins[kRestBin] += below;
}

void radix_tile(const SamplingRow& row, const ThresholdSearch& search, const float* HWY_RESTRICT logits, int width,
                uint64_t* HWY_RESTRICT bins) {
  const D d;
  const Range range(row, search);
  const int shift = search.shift();
  HWY_ALIGN float values[kN];
  HWY_ALIGN uint64_t amounts[kN];
  for (int i = 0; i < width; i += kN) {
    const V x = i + kN <= width ? hn::LoadU(d, logits + i) : load_padded(logits + i, width - i);
    const auto inside = hn::And(hn::Ge(x, range.low), hn::Le(x, range.high));
    if (hn::AllFalse(d, inside)) continue;
    hn::Store(x, d, values);
    store_amounts(search.by_mass, range, x, inside, amounts);
    for (int lane = 0; lane < kN; ++lane) {
      const uint32_t key = ordered_bits(values[lane]);
      if (key >= search.low && key <= search.high) bins[(key - search.low) >> shift] += amounts[lane];
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
    if (!(args.scans[static_cast<int64_t>(search.index) * num_tiles + t].max >= from_ordered_bits(search.low)))
      continue;
    const VocabTile& tile = args.shard->tiles[t];
    const float* logits = args.logits + row.row * args.stride + tile.begin;
    if (search.window > 0.0f) {
      linear_tile(row, search, logits, tile.width, bins + s * kSearchBins);
    } else {
      radix_tile(row, search, logits, tile.width, bins + s * kSearchBins);
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
constexpr float kMassWindowNats = 12.0f;

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
