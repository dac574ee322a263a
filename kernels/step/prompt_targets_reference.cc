#include "kernels/step/reference.h"

namespace helios::reference {

PromptTargets prompt_targets(const PromptTargetsArgs& a) {
  PromptTargets out;
  for (int32_t i = 0; i < a.inputs.header->num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    if (a.lanes.fates[i] != LaneFate::kRuns) continue;
    if (lane.decodes) {
      out.targets.push_back(-1);
      out.tokens.push_back(0);
      continue;
    }
    for (int32_t token = lane.first_token; token < lane.first_token + lane.num_tokens; ++token) {
      out.targets.push_back(a.targets[token]);
      out.tokens.push_back(token);
    }
  }
  return out;
}

}  // namespace helios::reference
