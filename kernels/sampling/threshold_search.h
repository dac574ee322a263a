// Finds the logits at which a row's best k ids, and then its best mass p, are complete: histograms over all shards.
//
// A round cuts the range that can hold the answer into at most 256 bins; ranks add their bins up and descend into the
// bin in which the target is reached. The first round's bins are equal steps down from the maximum, because logits are
// not spread like their bit patterns; a bin is still an exact interval of FP32 values, and later rounds are a radix
// search on ordered bits inside it. Mass is counted in integers, 2^-40 of the largest token's, so no order of summation
// matters: every degree, batch, grid and device finds the same logit. kSearchRounds rounds are always enough; in what
// is left of them a row that has arrived does nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/logprobs/sort_key.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

inline constexpr int kSearchBins = 256;
inline constexpr int kRestBin = kSearchBins - 1;  // of a linear round: everything below its window
inline constexpr int kLinearRounds = 2;           // at most; the second window is four times as wide and lies below
inline constexpr int kRadixRounds = 4;            // at most
inline constexpr int kSearchRounds = 2 * (kLinearRounds + kRadixRounds);  // top-k's and top-p's
inline constexpr int kMassBits = 40;

/// exp((logit - max) / temperature) in [0, 1] as an integer of 2^-40, the same in every round and on every device.
HELIOS_HD inline uint64_t mass_of(float weight) {
  return static_cast<uint64_t>(std::llrint(weight * static_cast<float>(uint64_t{1} << kMassBits)));
}

/// A linear round's bin of a value at or below the top. Every step rounds monotonically, so a bin is an interval.
struct LinearBins {
  float top, scale;
  HELIOS_HD LinearBins(uint32_t high, float window)
      : top(from_ordered_bits(high)), scale(static_cast<float>(kRestBin) / window) {}
  HELIOS_HD int of(float value) const {
    const float step = rounded_product(top - value, scale);
    return step < static_cast<float>(kRestBin) ? static_cast<int>(step) : kRestBin;
  }
  /// The lowest key at or above `low` whose bin is at most `bin`, at least one being so.
  HELIOS_HD uint32_t lowest_key(int bin, uint32_t low, uint32_t high) const {
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

/// One row's search. Keys are ordered_bits() of logits, both ends of the range included.
struct ThresholdSearch {
  int32_t row = 0;       // of the step's
  bool by_mass = false;  // bins hold mass; else counts
  uint32_t low = 0, high = 0;
  uint64_t target = 0;        // reached when bins above plus this one hold as much
  float mass_share = 0.0f;    // by mass: the target is this share of what the first round holds
  uint64_t above = 0;         // held by keys above `high`
  float window = 0.0f;        // > 0: the next round is linear over this many logits below the highest
  int32_t linear_rounds = 0;  // done

  HELIOS_HD static ThresholdSearch by_count(int32_t row, float low, float high, uint64_t count);
  /// The smallest set from the top that holds `share` of the mass in [low, high], at least one id.
  HELIOS_HD static ThresholdSearch by_share(int32_t row, float low, float high, float share, float temperature);

  HELIOS_HD int shift() const {
    static_assert(kSearchBins == 1 << 8);
    const int bits = static_cast<int>(std::bit_width(high - low));
    return bits > 8 ? bits - 8 : 0;
  }

  // A round's descent. The caller sums the bins over ranks and walks bin_at(0), bin_at(1), ... from the top.
  HELIOS_HD int num_steps() const;
  HELIOS_HD int bin_at(int step) const { return window > 0.0f ? step : num_steps() - 1 - step; }
  /// In the first round by mass: all that the 256 bins hold.
  HELIOS_HD void set_total(uint64_t total);
  /// The target is reached in bin_at(step); bins before it, and above, hold `before`. True when the search has ended:
  /// `low` is then the key that completes the target.
  HELIOS_HD bool enter(int step, uint64_t before);
  /// No bin reaches the target; all of them, and above, hold `before`. True when the search has ended: everything in
  /// the range stays.
  HELIOS_HD bool pass_over(uint64_t before);
};

struct BeginSearchesArgs {
  SamplingRow* rows = nullptr;        // in and out: of filtered rows max, count_bound, broken, floor
  const int32_t* filtered = nullptr;  // [max_rows]
  const int32_t* num_filtered = nullptr;
  int32_t max_rows = 0;
  const RowMessage* messages = nullptr;  // [world, max_rows]
  int32_t world = 1;
  ThresholdSearch* searches = nullptr;  // [max_rows] out, by place among the filtered rows
  int32_t* active = nullptr;            // [max_rows] out: the searches that go on
  int32_t* num_active = nullptr;        // out
  StepCounters* counters = nullptr;     // sampler_words: of the exchange before
};

/// Agrees on what ranks told of filtered rows, sets min-p's floor, and starts the searches.
void begin_searches(const BeginSearchesArgs& args, const Launcher& on);

struct SearchBinsArgs {
  const SamplingRow* rows = nullptr;
  const TileScan* scans = nullptr;  // [max_rows, tiles]
  TilesView shard;
  const ThresholdSearch* searches = nullptr;
  const int32_t* active = nullptr;
  const int32_t* num_active = nullptr;
  int32_t max_rows = 0;
  uint64_t* bins = nullptr;  // [max_rows, 256] zero; out: of active search a
};

/// One round's bins of this shard. One item is one (search, tile); a tile below the range is not read.
void search_bins(const SearchBinsArgs& args, const Launcher& on);

struct DescendSearchesArgs {
  SamplingRow* rows = nullptr;  // out: the floor of rows whose search ended
  ThresholdSearch* searches = nullptr;
  int32_t* active = nullptr;      // in and out
  int32_t* num_active = nullptr;  // in and out
  int32_t max_rows = 0;
  const uint64_t* bins = nullptr;  // [world, max_rows, 256]
  uint64_t* own = nullptr;         // [max_rows, 256] this rank's, zeroed for the next round; of one rank, `bins`
  int32_t world = 1;
  int32_t* finished_blocks = nullptr;  // scratch of the CUDA kernel, zero between launches
  StepCounters* counters = nullptr;    // sampler_words: of the exchange before
};

/// All rows descend together, one all-gather a round. A row whose top-k search has ended starts its top-p search; one
/// that has arrived leaves.
void descend_searches(const DescendSearchesArgs& args, const Launcher& on);

// Widths of the first window. A count's answer is seldom further down than this many logits; mass below the second
// window is less than 2^-40 of a token, so it is not there to be found.
inline constexpr float kCountWindow = 16.0f;
inline constexpr float kMassWindowNats = 8.0f;

/// 0 goes straight to the radix rounds: a range so narrow that its steps leave FP32.
HELIOS_HD inline float first_window(float low, float high, float widest) {
  const float width = rounded_product(high - low, 1.001f);  // the range's end falls into a step, not into the rest
  return width < 1e-25f ? 0.0f : width < widest ? width : widest;
}

HELIOS_HD inline ThresholdSearch ThresholdSearch::by_count(int32_t row, float low, float high, uint64_t count) {
  ThresholdSearch search;
  search.row = row;
  search.low = ordered_bits(low);
  search.high = ordered_bits(high);
  search.target = count;
  search.window = first_window(low, high, kCountWindow);
  return search;
}

HELIOS_HD inline ThresholdSearch ThresholdSearch::by_share(int32_t row, float low, float high, float share,
                                                           float temperature) {
  ThresholdSearch search;
  search.row = row;
  search.by_mass = true;
  search.low = ordered_bits(low);
  search.high = ordered_bits(high);
  search.mass_share = share;
  search.window = first_window(low, high, rounded_product(kMassWindowNats, temperature));
  return search;
}

HELIOS_HD inline int ThresholdSearch::num_steps() const {
  if (window <= 0.0f) return static_cast<int>((high - low) >> shift()) + 1;
  const int last = LinearBins(high, window).of(from_ordered_bits(low));  // the range may end before the window does
  return (last < kRestBin ? last : kRestBin - 1) + 1;
}

HELIOS_HD inline void ThresholdSearch::set_total(uint64_t total) {
  if (!by_mass || target != 0) return;
  target =
      static_cast<uint64_t>(std::ceil(rounded_product(static_cast<double>(mass_share), static_cast<double>(total))));
  if (target == 0) target = 1;
}

HELIOS_HD inline bool ThresholdSearch::enter(int step, uint64_t before) {
  above = before;
  const int bin = bin_at(step);
  if (window > 0.0f) {
    const LinearBins linear(high, window);
    if (bin > 0) high = linear.lowest_key(bin - 1, low, high) - 1;
    low = linear.lowest_key(bin, low, high);
    window = 0.0f;
    return low == high;
  }
  const int width = shift();
  const uint32_t end = high;
  low += static_cast<uint32_t>(bin) << width;
  high = low + ((1u << width) - 1);
  if (high > end) high = end;
  return width == 0;
}

HELIOS_HD inline bool ThresholdSearch::pass_over(uint64_t before) {
  above = before;
  if (window <= 0.0f) return true;
  const LinearBins linear(high, window);
  if (linear.of(from_ordered_bits(low)) < kRestBin) return true;
  high = linear.lowest_key(kRestBin - 1, low, high) - 1;
  window = ++linear_rounds < kLinearRounds ? 4.0f * window : 0.0f;
  return false;
}

/// What the ranks told of one filtered row, put together; then min-p's floor. True when the row is to be searched.
HELIOS_HD inline bool begin_search(const BeginSearchesArgs& args, int32_t f) {
  SamplingRow& row = args.rows[args.filtered[f]];
  for (int r = 0; r < args.world; ++r) {
    const RowMessage& message = args.messages[int64_t{r} * args.max_rows + f];
    if (message.max > row.max) row.max = message.max;
    if (message.count_bound > row.count_bound) row.count_bound = message.count_bound;
    row.broken |= message.broken != 0;
  }
  row.broken |= row.max == -std::numeric_limits<float>::infinity();
  if (row.broken) return false;
  if (row.min_p > 0.0f) {  // probability >= min_p * largest, as a bound on the logit
    const double bound =
        rounded_sum(static_cast<double>(row.max),
                    rounded_product(static_cast<double>(row.temperature), exact_log(static_cast<double>(row.min_p))));
    float floor = static_cast<float>(bound);
    if (static_cast<double>(floor) < bound) floor = from_ordered_bits(ordered_bits(floor) + 1);  // not below the bound
    if (floor > row.max) floor = row.max;
    if (floor > row.floor) row.floor = floor;
  }
  if (row.top_k > 0) {
    const float low = row.count_bound > row.floor ? row.count_bound : row.floor;
    args.searches[f] = ThresholdSearch::by_count(args.filtered[f], low, row.max, static_cast<uint64_t>(row.top_k));
    return true;
  }
  if (row.top_p >= 1.0f) return false;
  args.searches[f] = ThresholdSearch::by_share(args.filtered[f], row.floor, row.max, row.top_p, row.temperature);
  return true;
}

/// After a search has ended: the row's floor, and its next search. False when there is none.
HELIOS_HD inline bool begin_next_search(SamplingRow& row, ThresholdSearch& search) {
  const float found = from_ordered_bits(search.low);
  if (found > row.floor) row.floor = found;
  if (search.by_mass || row.top_p >= 1.0f) return false;
  search = ThresholdSearch::by_share(search.row, row.floor, row.max, row.top_p, row.temperature);
  return true;
}

}  // namespace helios
