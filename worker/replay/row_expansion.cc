#include "worker/replay/row_expansion.h"

#include <algorithm>
#include <new>

namespace helios {

RowExpansion::RowExpansion(const CoreShape& shape, const StepInputs& inputs, Backend& backend)
    : shape_(shape),
      max_blocks_((shape.max_model_len + shape.kv_block_size - 1) / shape.kv_block_size),
      inputs_(inputs) {
  memory_ = backend.device_memory(static_cast<size_t>(place(nullptr)));
  place(memory_.as<std::byte>());
  std::fill_n(slots_, shape_.slot_capacity, SlotState{});
  std::fill_n(sampling_, shape_.slot_capacity, SlotSampling{});
  std::fill_n(block_tables_, int64_t{shape_.slot_capacity} * max_blocks_, -1);
}

int64_t RowExpansion::place(std::byte* base) {
  int64_t used = 0;
  const auto take = [&]<class T>(T*& to, int64_t count) {
    to = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const int64_t capacity = shape_.slot_capacity, rows = row_capacity(shape_, Operation::kMixed);
  take(slots_, capacity);
  take(sampling_, capacity);
  take(block_tables_, capacity * max_blocks_);
  take(counts_, 2);
  take(tokens_, rows);
  take(positions_, rows);
  take(row_slots_, rows);
  take(sampling_rows_, capacity);
  take(sampling_slots_, capacity);
  take(sampling_epochs_, capacity);
  take(sampling_positions_, capacity);
  take(lane_fates_, capacity);
  take(lane_sampling_, capacity);
  return used;
}

StepRows RowExpansion::rows() const {
  return {.num_rows = counts_,
          .num_sampling = counts_ + 1,
          .tokens = tokens_,
          .positions = positions_,
          .slots = row_slots_,
          .sampling_rows = sampling_rows_,
          .block_tables = block_tables_,
          .max_blocks = max_blocks_};
}

void RowExpansion::apply_updates() {
  for (int32_t i = 0; i < inputs_.header->num_admissions; ++i) {
    const AdmissionInput& a = inputs_.admissions[i];
    slots_[a.slot] = a.state;
    sampling_[a.slot] = a.sampling;
    std::fill_n(block_tables_ + int64_t{a.slot} * max_blocks_, max_blocks_, -1);
  }
  for (int32_t i = 0; i < inputs_.header->num_block_updates; ++i) {
    const BlockUpdateInput& u = inputs_.block_updates[i];
    block_tables_[int64_t{u.slot} * max_blocks_ + u.index] = u.block;
  }
}

bool RowExpansion::has_blocks(int32_t slot, int32_t end) const {
  const int32_t* table = block_tables_ + int64_t{slot} * max_blocks_;
  const int32_t blocks = (end + shape_.kv_block_size - 1) / shape_.kv_block_size;
  return std::all_of(table, table + blocks, [](int32_t block) { return block >= 0; });
}

/// What becomes of a lane, and the positions [first, first + count) of its rows.
LaneFate RowExpansion::judge(const LaneInput& lane, int32_t* first, int32_t* count) const {
  const SlotState& slot = slots_[lane.slot];
  if (slot.epoch != lane.epoch || slot.finished) return LaneFate::kDead;
  *first = lane.decodes ? slot.position : lane.start;
  *count = lane.decodes ? 1 : lane.num_tokens;
  if (lane.decodes && slot.last_token < 0) return LaneFate::kBroken;
  // A fresh slot may begin anywhere (its prefix came from the cache); from then on without gaps.
  if (!lane.decodes && slot.position != 0 && slot.position != lane.start) return LaneFate::kBroken;
  if (*first + *count > shape_.max_model_len || !has_blocks(lane.slot, *first + *count)) return LaneFate::kBroken;
  return LaneFate::kRuns;
}

void RowExpansion::expand() {
  int32_t rows = 0, sampling = 0;
  for (int32_t i = 0; i < inputs_.header->num_lanes; ++i) {
    const LaneInput& lane = inputs_.lanes[i];
    int32_t first = 0, count = 0;
    lane_fates_[i] = judge(lane, &first, &count);
    lane_sampling_[i] = -1;
    if (lane_fates_[i] != LaneFate::kRuns) continue;
    for (int32_t t = 0; t < count; ++t, ++rows) {
      tokens_[rows] = lane.decodes ? slots_[lane.slot].last_token : inputs_.prompt_tokens[lane.first_token + t];
      positions_[rows] = first + t;
      row_slots_[rows] = lane.slot;
    }
    if (!lane.samples) continue;
    sampling_rows_[sampling] = rows - 1;
    sampling_slots_[sampling] = lane.slot;
    sampling_epochs_[sampling] = lane.epoch;
    sampling_positions_[sampling] = first + count;
    lane_sampling_[i] = sampling++;
  }
  counts_[0] = rows;
  counts_[1] = sampling;
}

}  // namespace helios
