// One block: rows claim their token, the first row of a token wins, and the winners move together in row order.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/logprobs/collect_positions.h"

namespace helios {
namespace {

struct WinnerScratch {
  int32_t winners[kBlockWarps];  // of the rows at hand
  int32_t selected;
};

__device__ inline int32_t* claim_of(const CollectPositionsArgs& a, int64_t row, int token) {
  return a.claims + static_cast<int64_t>(a.row_slots[row]) * a.token_capacity + token;
}

/// Index of this thread's winner among the block's, in row order; *total is their number.
__device__ int winner_index(bool wins, WinnerScratch& scratch, int* total) {
  const unsigned warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const unsigned ballot = __ballot_sync(~0u, wins);
  if (lane == 0) scratch.winners[warp] = __popc(ballot);
  __syncthreads();
  int before = __popc(ballot & ((1u << lane) - 1));
  *total = 0;
  for (unsigned w = 0; w < kBlockWarps; ++w) {
    if (w < warp) before += scratch.winners[w];
    *total += scratch.winners[w];
  }
  __syncthreads();
  return before;
}

__device__ void count_positions(const CollectPositionsArgs& a, int count, int64_t selected) {
  a.counters->logprob_positions += count;
  a.counters->logprob_logits_read += count * (static_cast<int64_t>(a.shard_width) + 1) + selected;
  a.counters->logprob_words += count * static_cast<int64_t>(a.words_a_position);
  a.counters->logprob_launches = a.num_launches;
}

__global__ void __launch_bounds__(kBlockThreads) collect_positions_kernel(CollectPositionsArgs a) {
  __shared__ WinnerScratch scratch;
  const int64_t num_rows = *a.num_rows;
  if (threadIdx.x == 0) scratch.selected = 0;
  for (int64_t row = threadIdx.x; row < num_rows; row += kBlockThreads) {
    const int token = reported_token(a, row);
    if (token >= 0)
      atomicMax(claim_of(a, row, token), static_cast<int32_t>(num_rows - row));  // the first row's is largest
  }
  __syncthreads();
  int count = 0;
  for (int64_t first = 0; first < num_rows; first += kBlockThreads) {
    const int64_t row = first + threadIdx.x;
    const int token = row < num_rows ? reported_token(a, row) : -1;
    const bool wins = token >= 0 && *claim_of(a, row, token) == num_rows - row;
    int total = 0;
    const int index = winner_index(wins, scratch, &total);
    if (wins) {
      const LogprobPosition position = make_position(a, row, token);
      a.positions[count + index] = position;
      atomicAdd(&scratch.selected, position.num_selected);
    }
    count += total;
  }
  __syncthreads();
  for (int64_t row = threadIdx.x; row < num_rows; row += kBlockThreads) {
    const int token = reported_token(a, row);
    if (token >= 0) *claim_of(a, row, token) = 0;
  }
  if (threadIdx.x != 0) return;
  *a.num_positions = count;
  if (a.counters && count > 0) count_positions(a, count, scratch.selected);
}

}  // namespace

void collect_positions(const CollectPositionsArgs& args, const Launcher& on) {
  simt::launch(collect_positions_kernel, dim3(1), dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
