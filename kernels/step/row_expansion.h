// Lanes to rows: which lanes run, the rows of the model's forward pass, and the rows whose logits are wanted.
//
// A lane is live when its slot has this epoch and is not finished. Dead lanes have no rows, so they cost nothing and
// disturb nobody; the commit still writes their records. Every rank holds the same slot states and decides alike.
// Lanes keep their order: rows of lane i lie before those of lane i + 1. A prefill lane has a row a token, of which the
// last may sample. A decode lane has its slot's last token's row and one for each of its proposals behind it; each of
// them samples what follows (R3).
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
  int32_t* sampling = nullptr;  // [max_lanes] index of its first among the sampling rows, or -1
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
  int32_t* sampling_rows = nullptr;       // [sampling] ascending row numbers
  int32_t* sampling_slots = nullptr;      // [sampling]
  uint32_t* sampling_epochs = nullptr;    // [sampling]
  int32_t* sampling_positions = nullptr;  // [sampling] of the token being sampled
  int32_t* sampling_halves = nullptr;     // [sampling] the lane's half
  int32_t* sampling_tokens = nullptr;     // [sampling] index of the token within its record; null: a graph of 0 only
  StepCounters* counters = nullptr;       // steps, rows, sampled
};
void expand_rows(const RowExpansionArgs& args, const Launcher& on);

/// Rows of a lane that runs, and how many of them sample: the last ones.
HELIOS_HD inline int32_t lane_rows(const LaneInput& lane) {
  return lane.decodes ? 1 + lane.num_tokens : lane.num_tokens;
}
HELIOS_HD inline int32_t lane_sampling_rows(const LaneInput& lane, int32_t rows) {
  if (rows == 0 || !lane.samples) return 0;
  return lane.decodes ? rows : 1;
}

/// The token of row `t` of a lane. A decode lane's proposals lie behind its slot's own last token.
HELIOS_HD inline TokenId lane_token(const RowExpansionArgs& a, const LaneInput& lane, int32_t t) {
  if (!lane.decodes) return a.inputs.prompt_tokens[lane.first_token + t];
  return t == 0 ? a.slots[lane.slot].last_token : a.inputs.prompt_tokens[lane.first_token + t - 1];
}

/// Writes sampling row `to`, which samples token `token` of the lane from row `row` at `position`.
HELIOS_HD inline void place_sampling_row(const RowExpansionArgs& a, const LaneInput& lane, int32_t half, int32_t to,
                                         int32_t row, int32_t position, int32_t token) {
  a.sampling_rows[to] = row;
  a.sampling_slots[to] = lane.slot;
  a.sampling_epochs[to] = lane.epoch;
  a.sampling_positions[to] = position + 1;
  a.sampling_halves[to] = half;
  if (a.sampling_tokens) a.sampling_tokens[to] = token;
}

}  // namespace helios
