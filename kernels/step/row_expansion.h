// Lanes to rows: which lanes run, the rows of the model's forward pass, and the rows whose logits are wanted.
//
// A lane is live when its slot has this epoch and is not finished. Dead lanes have no rows, so they cost nothing and
// disturb nobody; the commit still writes their records. Every rank holds the same slot states and decides alike.
// Lanes keep their order: rows of lane i lie before those of lane i + 1.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/step/step_inputs.h"

namespace helios {

enum class LaneFate : int32_t {
  kDead = 0,  // stale epoch, or a finished slot: emits nothing
  kRuns = 1,
  kBroken = 2,  // its slot has no such position: missing block, a gap in the prompt, nothing to decode from
};

/// What becomes of each lane of the step.
struct LaneTable {
  LaneFate* fates = nullptr;      // [max_lanes]
  int32_t* first_rows = nullptr;  // [max_lanes] number of its first row
  int32_t* first_positions = nullptr;
  int32_t* num_rows = nullptr;  // [max_lanes] 0 unless it runs
  int32_t* sampling = nullptr;  // [max_lanes] index into the sampling rows, or -1
  // Which half of the outputs takes its record and payload: the frame, or in a graph whose roles have private outputs
  // the role: 0 prompt, 1 decode (R20).
  int32_t* halves = nullptr;  // [max_lanes]
};

struct RowExpansionArgs {
  StepInputs inputs;
  int32_t max_lanes = 0;
  bool private_roles = false;             // a mixed graph
  const SlotState* slots = nullptr;       // [capacity]
  const int32_t* block_tables = nullptr;  // [capacity, max_blocks]; -1: none
  int32_t max_blocks = 0;
  int32_t block_size = 0;  // positions
  int32_t max_model_len = 0;

  LaneTable lanes;
  int32_t* num_rows = nullptr;            // [1]
  int32_t* tokens = nullptr;              // [rows]
  int32_t* positions = nullptr;           // [rows] absolute
  int32_t* row_slots = nullptr;           // [rows]
  int32_t* num_sampling = nullptr;        // [1]
  int32_t* sampling_rows = nullptr;       // [sampling] ascending row numbers: a lane's last row
  int32_t* sampling_slots = nullptr;      // [sampling]
  uint32_t* sampling_epochs = nullptr;    // [sampling]
  int32_t* sampling_positions = nullptr;  // [sampling] of the token being sampled
  int32_t* sampling_halves = nullptr;     // [sampling] the lane's half
  StepCounters* counters = nullptr;       // steps, rows, sampled
};
void expand_rows(const RowExpansionArgs& args, const Launcher& on);

}  // namespace helios
