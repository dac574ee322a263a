// How far a lane's proposals were right: the target sampled every row of the lane with that row's own noise, as a
// decode step there would have, and a proposal stands while it is what the row before it sampled.
//
// What a verification emits is therefore what decode steps would have emitted, one token after the other; proposals
// only decide how many come at once. The last one is always the target's own: the correction of the first wrong
// proposal, or the token behind the last right one (R3). Source: decisions, section 5.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/launcher.h"
#include "kernels/step/row_expansion.h"

namespace helios {

struct VerifyProposalsArgs {
  StepInputs inputs;
  int32_t max_lanes = 0;
  LaneTable lanes;                  // after expand_rows()
  const TokenId* chosen = nullptr;  // by sampling row; -1: the row was no distribution
  int32_t* lane_chosen = nullptr;   // [max_lanes] out: tokens of `chosen` that the lane may emit; 0: it has no such row
  int32_t* lane_offered = nullptr;  // [max_lanes] out: proposals that were looked at
};
void verify_proposals(const VerifyProposalsArgs& args, const Launcher& on);

/// Of a lane whose rows sample: the proposals that equal the tokens before the first that does not.
HELIOS_HD inline int32_t accepted_proposals(const VerifyProposalsArgs& a, const LaneInput& lane, int32_t sampling) {
  const TokenId* chosen = a.chosen + sampling;
  const int32_t* proposals = a.inputs.prompt_tokens + lane.first_token;
  int32_t accepted = 0;
  while (accepted < lane.num_tokens && chosen[accepted] == proposals[accepted]) ++accepted;
  return accepted;
}

HELIOS_HD inline void verify_lane(const VerifyProposalsArgs& a, int32_t i) {
  const LaneInput& lane = a.inputs.lanes[i];
  const bool sampled = a.lanes.sampling[i] >= 0;
  const bool offers = sampled && lane.decodes;
  a.lane_offered[i] = offers ? lane.num_tokens : 0;
  a.lane_chosen[i] = sampled ? 1 + (offers ? accepted_proposals(a, lane, a.lanes.sampling[i]) : 0) : 0;
}

}  // namespace helios
