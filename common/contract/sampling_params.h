// How one sequence chooses its tokens. Already validated by the coordinator; ranks store it in the slot's state.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace helios {

inline constexpr int kMaxStopIds = 64;  // a slot's stop ids on the device, the model's EOS ids apart

struct SamplingParams {
  float temperature = 1.0f;  // 0 means greedy: the arg max, the smaller id on ties
  float top_p = 1.0f;        // (0, 1]; 1 is off
  int32_t top_k = 0;         // 0 is off
  float min_p = 0.0f;        // [0, 1]; 0 is off
  uint64_t seed = 0;         // Philox key; the coordinator draws one when the request has none

  int32_t max_tokens = 1;    // >= 1; the commit finishes with kTokenLimit at this many
  int32_t min_tokens = 0;    // EOS and stop ids cannot be sampled before this many
  bool ignore_eos = false;   // EOS is emitted silently (record flag bit 0) and generation goes on
  TokenId eos_id = -1;       // finishes with kEos
  std::vector<TokenId> stop_ids;  // finish with kStopId; at most kMaxStopIds

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

}  // namespace helios
