// One row to sample in this step: the slot's parameters, normalised, and what the filters have found so far.
//
// Filters act on a row's logits as one threshold, `floor`: min-p, top-k and top-p all keep a set {logit >= floor},
// because dividing by the temperature keeps the order. So they mask and write nothing; a token survives by comparison.
// Lies in device memory; written by one kernel after the other.
#pragma once

#include <cstdint>
#include <limits>

#include "common/base/ids.h"
#include "kernels/base/host_device.h"
#include "kernels/sampling/philox.h"

namespace helios {

/// Below this a temperature means greedy: dividing by it would leave FP32.
inline constexpr float kGreedyTemperature = 1e-5f;

struct SamplingRow {
  const float* logits = nullptr;  // this rank's columns: raw, or the row's filtering scratch
  NoiseKey noise;
  int32_t slot = -1;     // -1: no row, no token
  int32_t ahead = 0;     // the slot's tokens that this step samples before it
  int32_t scratch = -1;  // its row of filtering scratch; -1: sampled from the raw logits
  int32_t filter = -1;   // its place among the step's rows with a min-p, top-k or top-p; -1: none
  bool greedy = false;
  bool broken = false;  // a NaN, a +inf, or nothing finite: no distribution
  float temperature = 1.0f;
  float min_p = 0.0f;  // 0: off
  int32_t top_k = 0;   // 0: off
  float top_p = 1.0f;  // 1: off

  float max = -std::numeric_limits<float>::infinity();  // of the whole row when filtered, else of this shard
  TokenId arg_max = -1;                                 // of this shard, the smallest id; -1: shard without a number
  float count_bound = -std::numeric_limits<float>::infinity();  // at least top_k ids of the row are this large
  float floor = -std::numeric_limits<float>::max();             // ids below it do not survive; -inf never does

  HELIOS_HD bool filtered() const { return min_p > 0.0f || top_k > 0 || top_p < 1.0f; }
  HELIOS_HD bool draws() const { return slot >= 0 && !greedy && !broken && arg_max >= 0; }
};

/// A token with its score: the largest score wins, the smaller id among equals.
struct SampledToken {
  double score = -std::numeric_limits<double>::infinity();
  TokenId id = -1;
  HELIOS_HD bool beats(const SampledToken& other) const {
    return score > other.score || (score == other.score && id >= 0 && (other.id < 0 || id < other.id));
  }
};

/// What a rank tells the others of a filtered row before the filters.
struct RowMessage {
  float max = 0.0f;
  float count_bound = 0.0f;
  uint32_t broken = 0;
  uint32_t unused = 0;
};

/// What a rank offers as a row's token.
struct OfferMessage {
  double score = 0.0;
  TokenId id = -1;
  uint32_t broken = 0;
};

static_assert(sizeof(RowMessage) == 16 && sizeof(OfferMessage) == 16);

}  // namespace helios
