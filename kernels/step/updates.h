// The first thing a step does: slots change hands and block tables are written.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/step/step_inputs.h"

namespace helios {

/// Each admission replaces its slot's state and sampling state and empties its block table (-1); then the block updates
/// are written, in any order: no two of one submission name the same entry. Everything else stays as it is.
struct UpdatesArgs {
  StepInputs inputs;
  SlotState* slots = nullptr;        // [capacity]
  SlotSampling* sampling = nullptr;  // [capacity]
  int32_t* block_tables = nullptr;   // [capacity, max_blocks]
  int32_t max_blocks = 0;
};
void apply_updates(const UpdatesArgs& args, const Launcher& on);

}  // namespace helios
