#include "kernels/step/prompt_targets.h"

namespace helios {

void prompt_targets(const PromptTargetsArgs& a, const Launcher&) {
  for (int32_t i = 0; i < a.inputs.header->num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    for (int32_t t = 0; t < a.lanes.num_rows[i]; ++t) {
      const int32_t row = a.lanes.first_rows[i] + t;
      a.row_targets[row] = lane.decodes ? -1 : a.targets[lane.first_token + t];
      a.row_tokens[row] = lane.decodes ? 0 : lane.first_token + t;
    }
  }
}

}  // namespace helios
