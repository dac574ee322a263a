// One thread a lane: lanes share nothing, since a submission has at most one of a slot.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/step/commit_lane.h"
#include "kernels/step/commit_records.h"

namespace helios {
namespace {

// Small blocks, so that a batch's lanes lie on several multiprocessors.
constexpr int kCommitThreads = 32;

__global__ void commit_kernel(CommitArgs a) {
  const StepHeader& header = *a.inputs.header;
  const int32_t i = static_cast<int32_t>(blockIdx.x * kCommitThreads + threadIdx.x);
  int32_t emitted = 0;
  if (i < header.num_lanes) {
    emitted = commit_lane(a, i);
  } else if (header.num_lanes == 0 && i < header.num_admissions) {
    const AdmissionInput& admission = a.inputs.admissions[i];
    begin_record(a, header.frame, admission.slot, admission.state.epoch);
  }
  const unsigned sum = __reduce_add_sync(~0u, static_cast<unsigned>(emitted));
  if (threadIdx.x == 0 && sum > 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&a.counters->emitted), static_cast<unsigned long long>(sum));
  }
}

}  // namespace

void commit_records(const CommitArgs& args, const Launcher& on) {
  const auto blocks = static_cast<unsigned>((args.max_lanes + kCommitThreads - 1) / kCommitThreads);
  simt::launch(commit_kernel, dim3(blocks), dim3(kCommitThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
