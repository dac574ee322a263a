// Two launches. judge: a warp a lane, because a long context has many blocks to look up. place: one block numbers the
// rows in lane order with a prefix sum, then each warp writes its lanes' rows.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/simt.h"
#include "kernels/step/row_expansion.h"

namespace helios {
namespace {

__global__ void judge_kernel(RowExpansionArgs a) {
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kBlockWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
  const int32_t member = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  if (i >= a.inputs.header->num_lanes) return;  // whole warps
  const LaneInput lane = a.inputs.lanes[i];
  const SlotState& slot = a.slots[lane.slot];
  const int32_t first = lane.decodes ? slot.position : lane.start;
  const int32_t count = lane_rows(lane);
  LaneFate fate = LaneFate::kRuns;
  if (slot.epoch == 0 || slot.epoch != lane.epoch || slot.finished) {
    fate = LaneFate::kDead;
  } else if (lane.decodes ? slot.last_token < 0 : slot.position != 0 && slot.position != lane.start) {
    fate = LaneFate::kBroken;
  } else if (first + count > a.max_model_len) {
    fate = LaneFate::kBroken;
  } else {
    const int32_t* table = a.block_tables + static_cast<int64_t>(lane.slot) * a.max_blocks;
    const int32_t blocks = (first + count + a.block_size - 1) / a.block_size;
    bool missing = false;
    for (int32_t b = member; b < blocks; b += kWarpSize) missing |= table[b] < 0;
    if (__any_sync(~0u, missing)) fate = LaneFate::kBroken;
  }
  if (member != 0) return;
  a.lanes.fates[i] = fate;
  a.lanes.first_positions[i] = fate == LaneFate::kDead ? 0 : first;
  a.lanes.num_rows[i] = fate == LaneFate::kRuns ? count : 0;
  a.lanes.halves[i] = a.private_roles ? lane.decodes : a.inputs.header->frame;
}

struct RowCounts {
  int32_t rows, sampling;
};

/// Inclusive sums over the block's threads.
__device__ inline RowCounts block_scan(RowCounts value, RowCounts* totals) {
  const int32_t member = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpSize;
  for (int32_t step = 1; step < kWarpSize; step *= 2) {
    const int32_t rows = __shfl_up_sync(~0u, value.rows, step), sampling = __shfl_up_sync(~0u, value.sampling, step);
    if (member >= step) value = {value.rows + rows, value.sampling + sampling};
  }
  __syncthreads();
  if (member == kWarpSize - 1) totals[warp] = value;
  __syncthreads();
  for (int32_t w = 0; w < warp; ++w) value = {value.rows + totals[w].rows, value.sampling + totals[w].sampling};
  return value;
}

__device__ inline void place_lane(const RowExpansionArgs& a, int32_t i, int32_t member) {
  const LaneInput lane = a.inputs.lanes[i];
  const int32_t first_row = a.lanes.first_rows[i], position = a.lanes.first_positions[i], count = a.lanes.num_rows[i];
  const int32_t sampling = a.lanes.sampling[i], silent = count - lane_sampling_rows(lane, count);
  for (int32_t t = member; t < count; t += kWarpSize) {
    const int32_t row = first_row + t, token = t - silent;
    a.tokens[row] = lane_token(a, lane, t);
    a.positions[row] = position + t;
    a.row_slots[row] = lane.slot;
    if (token >= 0) place_sampling_row(a, lane, a.lanes.halves[i], sampling + token, row, position + t, token);
  }
}

__global__ void place_kernel(RowExpansionArgs a) {
  __shared__ RowCounts totals[kBlockWarps];
  __shared__ RowCounts carried;
  const int32_t num_lanes = a.inputs.header->num_lanes;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) carried = {0, 0};
  __syncthreads();
  for (int32_t begin = 0; begin < num_lanes; begin += kBlockThreads) {
    const int32_t i = begin + thread;
    const int32_t rows = i < num_lanes ? a.lanes.num_rows[i] : 0;
    const int32_t sampled = rows > 0 ? lane_sampling_rows(a.inputs.lanes[i], rows) : 0;
    const RowCounts before = carried;
    const RowCounts sum = block_scan({rows, sampled}, totals);
    if (i < num_lanes) {
      a.lanes.first_rows[i] = before.rows + sum.rows - rows;
      a.lanes.sampling[i] = sampled > 0 ? before.sampling + sum.sampling - sampled : -1;
    }
    __syncthreads();
    if (thread == kBlockThreads - 1) carried = {before.rows + sum.rows, before.sampling + sum.sampling};
    __syncthreads();
  }
  for (int32_t i = thread / kWarpSize; i < num_lanes; i += kBlockWarps) place_lane(a, i, thread % kWarpSize);
  if (thread != 0) return;
  *a.num_rows = carried.rows;
  *a.num_sampling = carried.sampling;
  ++a.counters->steps;
  a.counters->rows += carried.rows;
  a.counters->sampled += carried.sampling;
}

}  // namespace

void expand_rows(const RowExpansionArgs& args, const Launcher& on) {
  const auto stream = static_cast<simt::Stream>(on.stream());
  const auto blocks = static_cast<unsigned>((args.max_lanes + kBlockWarps - 1) / kBlockWarps);
  simt::launch(judge_kernel, dim3(blocks), dim3(kBlockThreads), 0, stream, args);
  simt::launch(place_kernel, dim3(1), dim3(kBlockThreads), 0, stream, args);
}

}  // namespace helios
