// Lane after lane on one thread: a few words each.
#include "kernels/step/verify_proposals.h"

namespace helios {

void verify_proposals(const VerifyProposalsArgs& args, const Launcher&) {
  for (int32_t i = 0; i < args.inputs.header->num_lanes; ++i) verify_lane(args, i);
}

}  // namespace helios
