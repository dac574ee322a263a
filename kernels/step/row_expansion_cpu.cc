// One pass over the lanes, one thread: lanes are few and what follows needs their order.
#include "kernels/step/row_expansion.h"

#include <algorithm>

namespace helios {
namespace {

bool has_blocks(const RowExpansionArgs& a, int32_t slot, int32_t end) {
  const int32_t* table = a.block_tables + int64_t{slot} * a.max_blocks;
  const int32_t blocks = (end + a.block_size - 1) / a.block_size;
  return std::all_of(table, table + blocks, [](int32_t block) { return block >= 0; });
}

/// What becomes of a lane, and the positions [first, first + count) of its rows.
LaneFate judge(const RowExpansionArgs& a, const LaneInput& lane, int32_t* first, int32_t* count) {
  const SlotState& slot = a.slots[lane.slot];
  if (slot.epoch == 0 || slot.epoch != lane.epoch || slot.finished) return LaneFate::kDead;
  *first = lane.decodes ? slot.position : lane.start;
  *count = lane_rows(lane);
  if (lane.decodes && slot.last_token < 0) return LaneFate::kBroken;
  // A fresh slot may begin anywhere (its prefix came from the cache); from then on without gaps.
  if (!lane.decodes && slot.position != 0 && slot.position != lane.start) return LaneFate::kBroken;
  if (*first + *count > a.max_model_len || !has_blocks(a, lane.slot, *first + *count)) return LaneFate::kBroken;
  return LaneFate::kRuns;
}

}  // namespace

void expand_rows(const RowExpansionArgs& a, const Launcher&) {
  const StepHeader& header = *a.inputs.header;
  int32_t rows = 0, sampling = 0;
  for (int32_t i = 0; i < header.num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    int32_t first = 0, count = 0;
    const LaneFate fate = judge(a, lane, &first, &count);
    if (fate != LaneFate::kRuns) count = 0;
    const int32_t half = a.private_roles ? lane.decodes : header.frame;
    a.lanes.fates[i] = fate;
    a.lanes.first_rows[i] = rows;
    a.lanes.first_positions[i] = first;
    a.lanes.num_rows[i] = count;
    a.lanes.halves[i] = half;
    const int32_t sampled = lane_sampling_rows(lane, count), silent = count - sampled;
    a.lanes.sampling[i] = sampled > 0 ? sampling : -1;
    for (int32_t t = 0; t < count; ++t, ++rows) {
      a.tokens[rows] = lane_token(a, lane, t);
      a.positions[rows] = first + t;
      a.row_slots[rows] = lane.slot;
      if (t >= silent) place_sampling_row(a, lane, half, sampling++, rows, first + t, t - silent);
    }
  }
  *a.num_rows = rows;
  *a.num_sampling = sampling;
  ++a.counters->steps;
  a.counters->rows += rows;
  a.counters->sampled += sampling;
}

}  // namespace helios
