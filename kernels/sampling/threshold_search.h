// Finds the logit at which a row's best k ids, or its best mass p, are complete: a histogram search over all shards.
//
// A round cuts the range that can hold the answer into at most 256 bins; ranks add their bins up and descend into the
// bin in which the target is reached. The first round's bins are equal steps down from the maximum, because logits are
// not spread like their bit patterns; a bin is still an exact interval of FP32 values, and later rounds are a radix
// search on ordered bits inside it. Mass is counted in integers, 2^-40 of the largest token's, so no order of summation
// matters: every degree, batch and thread count finds the same logit.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

inline constexpr int kSearchBins = 256;
inline constexpr int kRestBin = kSearchBins - 1;  // of a linear round: everything below its window
inline constexpr int kLinearRounds = 2;           // at most; the second window is four times as wide and lies below
inline constexpr int kRadixRounds = 4;            // at most
inline constexpr int kMassBits = 40;

/// One row's search. Keys are ordered_bits() of raw logits, both ends of the range included.
struct ThresholdSearch {
  int32_t index = 0;     // into the step's rows
  bool by_mass = false;  // bins hold mass; else counts
  uint32_t low = 0, high = 0;
  uint64_t target = 0;      // reached when bins above plus this one hold as much
  float mass_share = 0.0f;  // by mass: the target is this share of what the first round holds
  uint64_t above = 0;       // held by keys above `high`
  float window = 0.0f;      // > 0: the next round is linear over this many logits below the highest
  int linear_rounds = 0;    // done

  static ThresholdSearch by_count(int32_t index, float low, float high, uint64_t count);
  /// The smallest set from the top that holds `share` of the mass in [low, high], at least one id.
  static ThresholdSearch by_share(int32_t index, float low, float high, float share, float temperature);

  int shift() const;
  /// Takes a round's bins, summed over ranks. True when the search has ended; `low` is then the key that completes the
  /// target, or the range's lowest key when the whole range does not reach it.
  bool descend(const uint64_t* bins);

 private:
  bool descend_linear(const uint64_t* bins);
};

struct SearchBinsArgs {
  const float* logits = nullptr;
  int64_t stride = 0;
  const SamplingRow* rows = nullptr;
  const TileScan* scans = nullptr;  // [rows, tiles]
  const ShardTiles* shard = nullptr;
  const ThresholdSearch* searches = nullptr;
  int num_searches = 0;
  uint64_t* thread_bins = nullptr;  // [threads, num_searches, 256] scratch
  uint64_t* bins = nullptr;         // [num_searches, 256] out
};

/// One round's bins of this shard. One item is one (search, tile); a tile below the range is not read.
void search_bins(const SearchBinsArgs& args, const Launcher& on);

}  // namespace helios
