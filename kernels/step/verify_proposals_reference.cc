// The longest run of proposals that are what was sampled, by trying every length.
#include <algorithm>

#include "kernels/step/reference.h"

namespace helios::reference {

Verified verify_proposals(const VerifyProposalsArgs& a) {
  Verified out;
  for (int32_t i = 0; i < a.inputs.header->num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    const int32_t sampling = a.lanes.sampling[i];
    const int32_t offered = sampling >= 0 && lane.decodes ? lane.num_tokens : 0;
    const int32_t* proposals = a.inputs.prompt_tokens + lane.first_token;
    int32_t accepted = 0;
    for (int32_t length = 1; length <= offered; ++length) {
      if (std::equal(proposals, proposals + length, a.chosen + sampling)) accepted = length;
    }
    out.offered.push_back(offered);
    out.chosen.push_back(sampling < 0 ? 0 : 1 + accepted);
  }
  return out;
}

}  // namespace helios::reference
