// Admissions are rare: one block a slot, which clears the shard's counts at the memory's speed and then adds.
#include "common/contract/completion_layout.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/sampling/token_counts.h"

namespace helios {
namespace {

__global__ void __launch_bounds__(kBlockThreads) begin_token_counts_kernel(BeginTokenCountsArgs a) {
  const int64_t slot = blockIdx.x;
  SlotSampling& sampling = a.sampling[slot];
  if (!sampling.counts_due) return;
  int32_t* counts = a.token_counts + slot * a.counts_stride;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < a.width; i += kBlockThreads) counts[i] = 0;
  __syncthreads();  // and every thread has read counts_due
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < sampling.num_generated; i += kBlockThreads) {
    const int32_t column = a.generated[slot * a.generated_stride + i] - a.first_id;
    if (column >= 0 && column < a.width) atomicAdd(counts + column, 1);
  }
  if (threadIdx.x == 0) sampling.counts_due = 0;
}

// One thread a row: slots of one step are distinct.
__global__ void count_tokens_kernel(CountTokensArgs a) {
  const auto r = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= *a.num_rows) return;
  const int32_t slot = a.row_slots[r];
  if (slot < 0 || !a.sampling[slot].penalizes()) return;
  const int64_t* record = a.records + (int64_t{a.row_halves[r]} * a.capacity + slot) * record_words(a.token_capacity);
  if (record[record_word::kSlot] != slot || record[record_word::kEpoch] != a.row_epochs[r]) return;
  for (int64_t i = 0; i < record[record_word::kEmitted]; ++i) {
    const int64_t column = record[record_word::kTokens + i] - a.first_id;
    if (column >= 0 && column < a.width) ++a.token_counts[slot * a.counts_stride + column];
  }
}

}  // namespace

void begin_token_counts(const BeginTokenCountsArgs& args, const Launcher& on) {
  simt::launch(begin_token_counts_kernel, dim3(static_cast<unsigned>(args.capacity)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void count_tokens(const CountTokensArgs& args, const Launcher& on) {
  simt::launch(count_tokens_kernel, dim3(static_cast<unsigned>(args.max_rows + kWarpSize - 1) / kWarpSize),
               dim3(kWarpSize), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
