// Finds the logit at which a row's best k ids, or its best mass p, are complete: a radix search on ordered bits.
//
// The range of keys that can hold the answer is cut into at most 256 bins a round; ranks add their bins up and descend
// into the bin in which the target is reached, so a row takes at most four rounds of 512 words whatever the vocabulary.
// Mass is counted in integers, 2^-40 of the largest token's, so no order of summation matters: every degree, batch and
// thread count finds the same logit.
#pragma once

#include <cstdint>

#include "kernels/base/thread_pool.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

inline constexpr int kSearchBins = 256;
inline constexpr int kMassBits = 40;

/// One row's search. Keys are ordered_bits() of raw logits, both ends included.
struct ThresholdSearch {
  int32_t index = 0;     // into the step's rows
  bool by_mass = false;  // bins hold mass; else counts
  uint32_t low = 0, high = 0;
  uint64_t target = 0;  // reached when bins above plus this one hold as much
  uint64_t above = 0;   // held by keys above `high`

  int shift() const;
  /// Takes a round's bins, summed over ranks. True when the search has ended; `low` is then the key that completes the
  /// target, or the range's lowest key when the whole range does not reach it.
  bool descend(const uint64_t* bins);
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
void search_bins(const SearchBinsArgs& args, ThreadPool& pool);

/// This shard's mass of ids that survive, and of those at or above `near`, in 2^-40 of a token with the row's maximum.
struct SurvivorMass {
  uint64_t total = 0;
  uint64_t near = 0;
};

struct SurvivorMassArgs {
  const float* logits = nullptr;
  int64_t stride = 0;
  const SamplingRow* rows = nullptr;
  const TileScan* scans = nullptr;
  const ShardTiles* shard = nullptr;
  const int32_t* indices = nullptr;  // [num_rows] into rows
  const float* nears = nullptr;      // [num_rows]
  int num_rows = 0;
  SurvivorMass* tile_masses = nullptr;  // [num_rows, tiles] scratch
  SurvivorMass* masses = nullptr;       // [num_rows] out
};

void survivor_mass(const SurvivorMassArgs& args, ThreadPool& pool);

}  // namespace helios
