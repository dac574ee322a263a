// A scored prefill's targets, brought from the submission's prompt tokens to the rows that the step has.
//
// Dead lanes have no rows, so the number of a row says nothing about the number of its prompt token.
#pragma once

#include "kernels/step/row_expansion.h"

namespace helios {

struct PromptTargetsArgs {
  StepInputs inputs;
  int32_t max_lanes = 0;
  LaneTable lanes;                   // after expand_rows()
  const int32_t* targets = nullptr;  // [prefill_chunk] by prompt token
  int32_t* row_targets = nullptr;    // [rows] out; -1 of a decode lane's row
  int32_t* row_tokens = nullptr;     // [rows] out: number of the row's prompt token within the submission
};
void prompt_targets(const PromptTargetsArgs& args, const Launcher& on);

}  // namespace helios
