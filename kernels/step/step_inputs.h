// The graph inputs of one step, as they lie in device memory and, with the same layout, in each frame's pinned staging.
#pragma once

#include <cstdint>

#include "kernels/step/slot_sampling.h"
#include "kernels/step/slot_state.h"

namespace helios {

struct StepHeader {
  int64_t sequence = 0;
  int32_t operation = 0;
  int32_t frame = 0;
  int32_t num_lanes = 0;
  int32_t num_admissions = 0;
  int32_t num_block_updates = 0;
  int32_t num_prompt_tokens = 0;  // proposals among them
};

struct LaneInput {
  int32_t slot = 0;
  uint32_t epoch = 0;
  int32_t decodes = 0;  // role
  int32_t samples = 0;
  int32_t start = -1;       // absolute position of the first prompt token
  int32_t first_token = 0;  // within prompt_tokens
  int32_t num_tokens = 0;   // prompt tokens; of a decode lane: proposals, of a verification only
};

struct AdmissionInput {
  int32_t slot = 0;
  SlotState state;
  SlotSampling sampling;
};

struct BlockUpdateInput {
  int32_t slot = 0;
  int32_t index = 0;
  int32_t block = 0;
};

/// Pointers into one such memory.
struct StepInputs {
  StepHeader* header = nullptr;
  LaneInput* lanes = nullptr;                 // [capacity]
  AdmissionInput* admissions = nullptr;       // [capacity]
  int32_t* prompt_tokens = nullptr;           // [prefill_chunk] or, if there are more, a verification's rows
  BlockUpdateInput* block_updates = nullptr;  // [capacity * max_blocks]
};

}  // namespace helios
