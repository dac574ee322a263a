// The one shared commit: writes each lane's record and advances its slot.
//
// Token limits, the context limit, EOS and stop ids are decided here and nowhere else (R17). A lane emits the tokens
// that its rows chose, in order, up to and with the first that finishes it: one token in prefill and decode, several
// after a verification. Everything after reads the record: the reduction, the read-back, the coordinator (R16). Only
// the records of this submission's lanes are written, each in its lane's half.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/step/row_expansion.h"

namespace helios {

struct CommitArgs {
  StepInputs inputs;
  int32_t max_lanes = 0;
  SlotState* slots = nullptr;  // [capacity]
  LaneTable lanes;
  const TokenId* chosen = nullptr;  // by sampling row; -1: the row was no distribution, which ends its request
  // Of each lane, [max_lanes]; null where a graph has no proposals or forces nothing:
  const int32_t* lane_chosen = nullptr;   // tokens of `chosen` from the lane's first on that it may emit; null: 1 each
  const int32_t* lane_offered = nullptr;  // proposals that were verified; null: none
  const int64_t* lane_forced = nullptr;   // bit i: the lane's token i was forced (R4); null: none
  int64_t* records = nullptr;             // [2, capacity, 16 + T]
  int32_t capacity = 0;
  int32_t token_capacity = 0;  // T
  int32_t max_model_len = 0;
  StepCounters* counters = nullptr;  // emitted
};
/// An admission has no lanes: it writes an empty record for each slot that it hands over, in the frame's half (R19).
void commit_records(const CommitArgs& args, const Launcher& on);

}  // namespace helios
