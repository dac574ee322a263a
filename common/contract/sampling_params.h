// How one sequence chooses its tokens. Already validated by the coordinator; ranks store it in the slot's state.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace helios {

inline constexpr int kMaxLogitBias = 1024;  // biased ids of a slot
inline constexpr float kMaxBias = 100.0f;   // of one id, either way
inline constexpr int kMaxStopIds = 64;      // a slot's stop ids on the device, the model's EOS ids apart

struct LogitBias {
  TokenId id = -1;
  float bias = 0.0f;  // [-kMaxBias, kMaxBias], added to the raw logit in filtering scratch
  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

struct TokenCount {
  TokenId id = -1;
  int32_t count = 0;  // >= 1
  friend bool operator==(const TokenCount&, const TokenCount&) = default;
};

/// Applied in this order, on a copy of the raw logits: logit bias, allowed ids or the lane's mask, min tokens,
/// penalties, temperature, min-p, top-k, top-p.
struct SamplingParams {
  float temperature = 1.0f;  // 0 means greedy: the arg max, the smaller id on ties
  float top_p = 1.0f;        // (0, 1]; 1 is off
  int32_t top_k = 0;         // 0 is off
  float min_p = 0.0f;        // [0, 1]; 0 is off
  uint64_t seed = 0;         // Philox key; the coordinator draws one when the request has none

  int32_t max_tokens = 1;         // >= 0; the commit finishes with kTokenLimit at this many. 0: prefills only
  int32_t min_tokens = 0;         // EOS and stop ids cannot be sampled before this many
  bool ignore_eos = false;        // EOS is emitted silently (record flag bit 0) and generation goes on
  TokenId eos_id = -1;            // finishes with kEos
  std::vector<TokenId> stop_ids;  // finish with kStopId; at most kMaxStopIds

  std::vector<LogitBias> logit_bias;  // distinct ids, at most kMaxLogitBias
  std::vector<TokenId> allowed_ids;   // distinct; empty: every id
  bool masks = false;                 // every lane that samples brings its own allowed ids (Lane::mask)
  // A logit of an id that prompt or output already hold is divided by repetition_penalty when positive, else
  // multiplied; then frequency_penalty * (times generated) and presence_penalty * (generated at all) are subtracted.
  float repetition_penalty = 1.0f;  // > 0; 1 is off
  float frequency_penalty = 0.0f;   // [-2, 2]
  float presence_penalty = 0.0f;    // [-2, 2]
  // What the slot's counts start from. Later tokens are counted on the device.
  std::vector<TokenId> prompt_ids;        // distinct ids of the prompt; only with a repetition penalty
  std::vector<TokenCount> output_counts;  // generated before a readmission; only with a penalty

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

/// Any of the three: the device counts tokens only then.
inline bool has_penalty(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

}  // namespace helios
