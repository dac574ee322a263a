#include "worker/replay/token_choice.h"

#include <cmath>
#include <cstring>

namespace helios {
namespace {

bool may_not_stop(const SlotState& slot) {
  return slot.generated < slot.min_tokens && (slot.eos_id >= 0 || slot.num_stop_ids > 0);
}

}  // namespace

TokenChoice::TokenChoice(const RowExpansion& rows, const float* logits, int64_t logits_stride, Range shard,
                         int slot_capacity, Sampler& sampler, Backend& backend)
    : rows_(rows),
      logits_(logits),
      stride_(logits_stride),
      shard_(shard),
      sampler_(sampler),
      scratch_(backend.device_memory(static_cast<size_t>(kFilteredRows * logits_stride) * sizeof(float))),
      free_slots_(static_cast<size_t>(slot_capacity), -1),
      tokens_(static_cast<size_t>(slot_capacity), -1) {}

void TokenChoice::run(const Launcher& on) {
  const int32_t count = rows_.num_sampling();
  int32_t num_free = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t slot = rows_.sampling_slots()[i];
    const bool filtered = may_not_stop(rows_.slots()[slot]);
    free_slots_[static_cast<size_t>(i)] = filtered ? -1 : slot;
    num_free += !filtered;
  }
  if (num_free > 0) {
    sampler_.run({.logits = logits_,
                  .logits_stride = stride_,
                  .rows = count,
                  .row_slots = free_slots_.data(),
                  .row_positions = rows_.sampling_positions(),
                  .slots = rows_.sampling(),
                  .tokens = tokens_.data()},
                 on);
  }
  int32_t group[kFilteredRows];
  int in_group = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (free_slots_[static_cast<size_t>(i)] >= 0) continue;
    group[in_group++] = i;
    if (in_group == kFilteredRows) run_filtered(group, std::exchange(in_group, 0), on);
  }
  if (in_group > 0) run_filtered(group, in_group, on);
}

void TokenChoice::run_filtered(const int32_t* rows, int count, const Launcher& on) {
  int32_t slots[kFilteredRows], positions[kFilteredRows];
  TokenId tokens[kFilteredRows];
  for (int i = 0; i < count; ++i) {
    float* row = scratch_.as<float>() + i * stride_;
    slots[i] = rows_.sampling_slots()[rows[i]];
    positions[i] = rows_.sampling_positions()[rows[i]];
    std::memcpy(row, logits_ + rows[i] * stride_, static_cast<size_t>(stride_) * sizeof(float));
    mask_stops(rows_.slots()[slots[i]], row);
  }
  sampler_.run({.logits = scratch_.as<float>(),
                .logits_stride = stride_,
                .rows = count,
                .row_slots = slots,
                .row_positions = positions,
                .slots = rows_.sampling(),
                .tokens = tokens},
               on);
  for (int i = 0; i < count; ++i) tokens_[static_cast<size_t>(rows[i])] = tokens[i];
}

void TokenChoice::mask_stops(const SlotState& slot, float* row) const {
  const auto mask = [&](TokenId id) {
    if (id >= 0 && shard_.contains(id)) row[id - shard_.begin] = -INFINITY;
  };
  mask(slot.eos_id);
  for (int32_t i = 0; i < slot.num_stop_ids; ++i) mask(slot.stop_ids[i]);
}

}  // namespace helios
