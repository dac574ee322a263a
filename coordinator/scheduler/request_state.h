// One request's progress as the scheduler sees it: token counts, its slot and its blocks. No text, no clock.
//
// Counts are of two kinds. What is *planned* runs ahead: up to two frames are in flight whose tokens nobody knows yet.
// What is *emitted* was decoded. Thread: engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/sampling_params.h"
#include "coordinator/scheduler/slot_table.h"

namespace helios {

/// What the scheduler needs of a sequence to generate.
struct RequestSpec {
  std::vector<TokenId> prompt;  // never empty
  SamplingParams sampling;
  bool logprobs = false;
  std::vector<TokenId> logprob_token_ids;  // R7; empty: natural alternatives
};

struct RequestState {
  RequestId id;
  RequestSpec spec;

  std::optional<Tenancy> tenancy;  // set from admission on
  std::vector<int32_t> blocks;     // for prompt + max_tokens positions, all reserved at admission

  int32_t prompt_planned = 0;    // prompt rows in committed submissions
  int32_t samples_planned = 0;   // sampling lanes in committed submissions: no more tokens than this can come
  int32_t emitted = 0;           // tokens decoded
  int32_t frames_in_flight = 0;  // submitted frames that name the slot, not yet decoded
  bool paused = false;           // its consumer is behind: no decode lane
  bool leaving = false;          // finished, cancelled or failed: never planned again

  int32_t prompt_size() const { return static_cast<int32_t>(spec.prompt.size()); }
  bool prompt_done() const { return prompt_planned == prompt_size(); }
  /// A decode lane may be planned: tokens known or not, no more lanes than max_tokens allows.
  bool can_decode() const { return !leaving && !paused && prompt_done() && samples_planned < spec.sampling.max_tokens; }
};

}  // namespace helios
