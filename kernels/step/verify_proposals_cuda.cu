// One thread a lane, which reads at most sixteen tokens and as many proposals.
#include "kernels/base/simt.h"
#include "kernels/step/verify_proposals.h"

namespace helios {
namespace {

// Small blocks, so that a batch's lanes lie on several multiprocessors.
constexpr int kVerifyThreads = 32;

__global__ void verify_kernel(VerifyProposalsArgs a) {
  const auto i = static_cast<int32_t>(blockIdx.x * kVerifyThreads + threadIdx.x);
  if (i < a.inputs.header->num_lanes) verify_lane(a, i);
}

}  // namespace

void verify_proposals(const VerifyProposalsArgs& args, const Launcher& on) {
  const auto blocks = static_cast<unsigned>((args.max_lanes + kVerifyThreads - 1) / kVerifyThreads);
  simt::launch(verify_kernel, dim3(blocks), dim3(kVerifyThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
