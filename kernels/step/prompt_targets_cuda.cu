// A warp a lane.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/step/prompt_targets.h"

namespace helios {
namespace {

__global__ void prompt_targets_kernel(PromptTargetsArgs a) {
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kBlockWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
  if (i >= a.inputs.header->num_lanes) return;
  const LaneInput lane = a.inputs.lanes[i];
  for (int32_t t = static_cast<int32_t>(threadIdx.x) % kWarpSize; t < a.lanes.num_rows[i]; t += kWarpSize) {
    const int32_t row = a.lanes.first_rows[i] + t;
    a.row_targets[row] = lane.decodes ? -1 : a.targets[lane.first_token + t];
    a.row_tokens[row] = lane.decodes ? 0 : lane.first_token + t;
  }
}

}  // namespace

void prompt_targets(const PromptTargetsArgs& args, const Launcher& on) {
  const auto blocks = static_cast<unsigned>((args.max_lanes + kBlockWarps - 1) / kBlockWarps);
  simt::launch(prompt_targets_kernel, dim3(blocks), dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()),
               args);
}

}  // namespace helios
