// One row to sample in this step: the slot's parameters, normalised, and what the filters have found so far.
//
// Filters act on raw logits as one threshold, `floor`: min-p, top-k and top-p all keep a set {logit >= floor}, because
// dividing by the temperature keeps the order. So nothing is masked or written; a token survives by comparison (R2,
// R18).
#pragma once

#include <cstdint>
#include <limits>

#include "common/base/ids.h"
#include "kernels/sampling/philox.h"

namespace helios {

/// Below this a temperature means greedy: dividing by it would leave FP32.
inline constexpr float kGreedyTemperature = 1e-5f;

struct SamplingRow {
  int64_t row = 0;  // of the logits
  NoiseKey noise;
  bool greedy = false;
  bool broken = false;  // a NaN, a +inf, or nothing finite: no distribution
  float temperature = 1.0f;
  float min_p = 0.0f;  // 0: off
  int32_t top_k = 0;   // 0: off
  float top_p = 1.0f;  // 1: off
  bool filtered() const { return min_p > 0.0f || top_k > 0 || top_p < 1.0f; }

  float max = -std::numeric_limits<float>::infinity();  // of the whole row when filtered, else of this shard
  TokenId arg_max = -1;                                 // of this shard, the smallest id; -1: shard without a number
  float count_bound = -std::numeric_limits<float>::infinity();  // at least top_k ids of the row are this large
  float floor = -std::numeric_limits<float>::max();             // ids below it do not survive; -inf never does
};

/// What a rank offers as a row's token: the largest score, the smaller id among equals.
struct SampledToken {
  double score = -std::numeric_limits<double>::infinity();
  TokenId id = -1;
  bool beats(const SampledToken& other) const {
    return score > other.score || (score == other.score && id >= 0 && (other.id < 0 || id < other.id));
  }
};

}  // namespace helios
