#include "kernels/sampling/threshold_search.h"

#include <algorithm>
#include <atomic>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/threshold_search_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"

#ifndef HELIOS_KERNELS_SAMPLING_THRESHOLD_SEARCH_CPU_ONCE
#define HELIOS_KERNELS_SAMPLING_THRESHOLD_SEARCH_CPU_ONCE
namespace helios {

// mass_of() on vectors: adding 2^12 leaves doubles 2^-40 apart, so the addition rounds and the mantissa is the answer.
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
HWY_INLINE void store_mass(V weight, uint64_t* HWY_RESTRICT mass) { *mass = mass_of(hn::GetLane(weight)); }
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
    LinearTile<kByMass> linear(range, LinearBins(search.high, search.window), bins);
    for_each_vector(logits, width, range, &linear);
    linear.finish();
  } else {
    RadixTile<kByMass> radix{range, search, bins, search.shift()};
    for_each_vector(logits, width, range, &radix);
  }
}

// Adds a thread's bins to a search's; atomically when other threads may have a part of it.
HWY_INLINE void flush_bins(uint64_t* HWY_RESTRICT from, uint64_t* to, bool shared) {
  for (int bin = 0; bin < kSearchBins; ++bin) {
    if (from[bin] == 0) continue;
    if (shared) {
      std::atomic_ref<uint64_t>(to[bin]).fetch_add(from[bin], std::memory_order_relaxed);
    } else {
      to[bin] += from[bin];
    }
    from[bin] = 0;
  }
}

void search_bins_items(const SearchBinsArgs& args, int64_t begin, int64_t end, bool shared) {
  const int num_tiles = args.shard.num_tiles;
  HWY_ALIGN uint64_t bins[kSearchBins] = {};
  for (int64_t item = begin; item < end; ++item) {
    const int64_t a = item / num_tiles, t = item % num_tiles;
    const ThresholdSearch& search = args.searches[args.active[a]];
    const SamplingRow& row = args.rows[search.row];
    if (args.scans[int64_t{search.row} * num_tiles + t].max >= from_ordered_bits(search.low)) {
      const VocabTile& tile = args.shard.tiles[t];
      if (search.by_mass) {
        tile_bins<true>(row, search, row.logits + tile.begin, tile.width, bins);
      } else {
        tile_bins<false>(row, search, row.logits + tile.begin, tile.width, bins);
      }
    }
    if (t == num_tiles - 1 || item == end - 1) flush_bins(bins, args.bins + a * kSearchBins, shared);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(search_bins_items);

void begin_searches(const BeginSearchesArgs& args, const Launcher&) {
  int32_t active = 0;
  for (int32_t f = 0; f < *args.num_filtered; ++f) {
    if (begin_search(args, f)) args.active[active++] = f;
  }
  *args.num_active = active;
  if (args.world > 1) args.counters->sampler_words += *args.num_filtered * int64_t{sizeof(RowMessage) / 4};
}

void search_bins(const SearchBinsArgs& args, const Launcher& on) {
  if (*args.num_active == 0) return;
  ThreadPool& pool = on.pool();
  const SearchBinsArgs* launch = &args;
  const bool shared = pool.num_threads() > 1;
  pool.parallel_for(int64_t{*args.num_active} * args.shard.num_tiles, 8, [launch, shared](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(search_bins_items)(*launch, begin, end, shared);
  });
}

// One round of one search. True when its row goes on searching.
static bool descend(const DescendSearchesArgs& args, int32_t a) {
  ThresholdSearch& search = args.searches[args.active[a]];
  uint64_t bins[kSearchBins] = {};
  uint64_t total = 0;
  for (int r = 0; r < args.world; ++r) {
    const uint64_t* part = args.bins + (int64_t{r} * args.max_rows + a) * kSearchBins;
    for (int bin = 0; bin < kSearchBins; ++bin) bins[bin] += part[bin];
  }
  for (const uint64_t bin : bins) total += bin;
  std::fill_n(args.own + int64_t{a} * kSearchBins, kSearchBins, 0);
  search.set_total(total);
  const int steps = search.num_steps();
  uint64_t before = search.above;
  int step = 0;
  while (step < steps && before + bins[search.bin_at(step)] < search.target) before += bins[search.bin_at(step++)];
  if (!(step < steps ? search.enter(step, before) : search.pass_over(before))) return true;
  return begin_next_search(args.rows[search.row], search);
}

void descend_searches(const DescendSearchesArgs& args, const Launcher&) {
  const int32_t count = *args.num_active;
  int32_t left = 0;
  for (int32_t a = 0; a < count; ++a) {
    if (descend(args, a)) args.active[left++] = args.active[a];
  }
  *args.num_active = left;
  if (args.world > 1) args.counters->sampler_words += count * int64_t{2 * kSearchBins};
}
}  // namespace helios
#endif
