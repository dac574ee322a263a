// One block: a thread a lane's record, then one chain over the lanes.
#include "common/contract/completion_layout.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/step/step_summary.h"

namespace helios {
namespace {

__global__ void summary_kernel(StepSummaryArgs a) {
  const StepHeader& header = *a.inputs.header;
  const int words = record_word::kTokens + a.token_capacity;
  const int32_t count = header.num_lanes > 0 ? header.num_lanes : header.num_admissions;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kBlockThreads) {
    const int32_t slot = header.num_lanes > 0 ? a.inputs.lanes[i].slot : a.inputs.admissions[i].slot;
    const int64_t* record = a.records + (static_cast<int64_t>(header.frame) * a.capacity + slot) * words;
    uint64_t lane = kDigestSeed;
    for (int w = 0; w < words; ++w) lane = extend_digest(lane, static_cast<uint64_t>(record[w]));
    a.lane_digests[i] = lane;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint64_t digest = kDigestSeed;
  for (int32_t i = 0; i < count; ++i) digest = extend_digest(digest, a.lane_digests[i]);
  a.summaries[header.frame].digest = digest;
  a.summaries[header.frame].counters = *a.counters;
}

}  // namespace

void summarize_step(const StepSummaryArgs& args, const Launcher& on) {
  simt::launch(summary_kernel, dim3(1), dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
