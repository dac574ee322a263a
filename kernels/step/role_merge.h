// A mixed graph's last word on its outputs: each slot's record and payload, from the private storage of the role that
// its lane had, into the active frame (R20).
//
// Prompt and decode lanes of one forward pass write private halves, so that neither sees the other's; the frames are
// touched here alone. The other frame may be on its way to the host: it is neither read nor written.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/step/step_inputs.h"

namespace helios {

struct RoleMergeArgs {
  StepInputs inputs;
  int32_t max_lanes = 0;
  const int64_t* role_records = nullptr;  // [2, capacity, 16 + T]: prompt, decode
  const int32_t* role_packed = nullptr;   // [2, capacity, T, packed_words], or null: a core without logprobs
  const int32_t* requested = nullptr;     // [capacity], or null; only these slots' payloads are copied (R24)
  int64_t* records = nullptr;             // [2, capacity, 16 + T]: the frames
  int32_t* packed = nullptr;              // [2, capacity, T, packed_words], or null
  int32_t capacity = 0;
  int32_t token_capacity = 0;  // T
  int32_t packed_words = 0;
  StepCounters* counters = nullptr;  // merged_records, merged_positions
};
/// Of a payload the positions that the record emits.
void merge_roles(const RoleMergeArgs& args, const Launcher& on);

}  // namespace helios
