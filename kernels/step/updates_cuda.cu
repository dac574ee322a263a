// One block: admissions are few, and a barrier separates them from the block updates of the same slots.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/step/updates.h"

namespace helios {
namespace {

__global__ void updates_kernel(UpdatesArgs a) {
  const StepHeader& header = *a.inputs.header;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < header.num_admissions; i += kBlockThreads) {
    const AdmissionInput& admission = a.inputs.admissions[i];
    a.slots[admission.slot] = admission.state;
    a.sampling[admission.slot] = admission.sampling;
  }
  for (int32_t i = 0; i < header.num_admissions; ++i) {
    int32_t* table = a.block_tables + static_cast<int64_t>(a.inputs.admissions[i].slot) * a.max_blocks;
    for (int32_t b = thread; b < a.max_blocks; b += kBlockThreads) table[b] = -1;
  }
  __syncthreads();
  for (int32_t i = thread; i < header.num_block_updates; i += kBlockThreads) {
    const BlockUpdateInput& u = a.inputs.block_updates[i];
    a.block_tables[static_cast<int64_t>(u.slot) * a.max_blocks + u.index] = u.block;
  }
}

}  // namespace

void apply_updates(const UpdatesArgs& args, const Launcher& on) {
  simt::launch(updates_kernel, dim3(1), dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
