// One block a lane. Bytes a lane: 2 * 8 * (16 + T) and, when it asked, 2 * 4 * packed_words a position.
#include "common/contract/completion_layout.h"
#include "kernels/base/simt.h"
#include "kernels/step/role_merge.h"

namespace helios {
namespace {

constexpr int kMergeThreads = 64;

__global__ void merge_kernel(RoleMergeArgs a) {
  const StepHeader& header = *a.inputs.header;
  const int32_t i = static_cast<int32_t>(blockIdx.x);
  if (i >= header.num_lanes) return;
  const LaneInput lane = a.inputs.lanes[i];
  const int64_t words = record_word::kTokens + a.token_capacity;
  const int64_t slot_words = static_cast<int64_t>(a.token_capacity) * a.packed_words;
  const int64_t from = static_cast<int64_t>(lane.decodes != 0) * a.capacity + lane.slot;
  const int64_t to = static_cast<int64_t>(header.frame) * a.capacity + lane.slot;
  const int64_t* record = a.role_records + from * words;
  for (int64_t w = threadIdx.x; w < words; w += kMergeThreads) a.records[to * words + w] = record[w];
  const bool asked = a.packed && a.requested[lane.slot] != 0;
  const int64_t emitted = asked ? record[record_word::kEmitted] : 0;
  for (int64_t w = threadIdx.x; w < emitted * a.packed_words; w += kMergeThreads) {
    a.packed[to * slot_words + w] = a.role_packed[from * slot_words + w];
  }
  if (threadIdx.x != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&a.counters->merged_records), 1ull);
  atomicAdd(reinterpret_cast<unsigned long long*>(&a.counters->merged_positions),
            static_cast<unsigned long long>(emitted));
}

}  // namespace

void merge_roles(const RoleMergeArgs& args, const Launcher& on) {
  simt::launch(merge_kernel, dim3(static_cast<unsigned>(args.max_lanes)), dim3(kMergeThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
