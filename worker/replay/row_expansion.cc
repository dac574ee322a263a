#include "worker/replay/row_expansion.h"

#include "kernels/step/updates.h"

namespace helios {

int32_t max_blocks(const CoreShape& shape) {
  return (shape.max_model_len + shape.kv_block_size - 1) / shape.kv_block_size;
}

RowExpansion::RowExpansion(const CoreShape& shape, const StepInputs& inputs, StepCounters* counters, Backend& backend)
    : shape_(shape),
      args_{.inputs = inputs,
            .max_lanes = shape.slot_capacity,
            .max_blocks = max_blocks(shape),
            .block_size = shape.kv_block_size,
            .max_model_len = shape.max_model_len,
            .counters = counters} {
  memory_ = backend.device_memory(static_cast<size_t>(place(nullptr)));
  place(memory_.as<std::byte>());
  args_.slots = slots_;
  args_.block_tables = block_tables_;
}

/// Zeroes are right to begin with: no slot has an owner, and an admission empties its block table.
int64_t RowExpansion::place(std::byte* base) {
  int64_t used = 0;
  const auto take = [&]<class T>(T*& to, int64_t count) {
    to = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const int64_t capacity = shape_.slot_capacity, rows = most_rows(shape_), sampling = most_sampling_rows(shape_);
  take(slots_, capacity);
  take(sampling_, capacity);
  take(block_tables_, capacity * args_.max_blocks);
  take(args_.lanes.fates, capacity);
  take(args_.lanes.first_rows, capacity);
  take(args_.lanes.first_positions, capacity);
  take(args_.lanes.num_rows, capacity);
  take(args_.lanes.sampling, capacity);
  take(args_.lanes.halves, capacity);
  take(args_.num_rows, 1);
  take(args_.tokens, rows);
  take(args_.positions, rows);
  take(args_.row_slots, rows);
  take(args_.num_sampling, 1);
  take(args_.sampling_rows, sampling);
  take(args_.sampling_slots, sampling);
  take(args_.sampling_epochs, sampling);
  take(args_.sampling_positions, sampling);
  take(args_.sampling_halves, sampling);
  if (shape_.num_speculative_tokens > 0) take(args_.sampling_tokens, sampling);
  return used;
}

StepRows RowExpansion::rows() const {
  return {.num_rows = args_.num_rows,
          .num_sampling = args_.num_sampling,
          .tokens = args_.tokens,
          .positions = args_.positions,
          .slots = args_.row_slots,
          .sampling_rows = args_.sampling_rows,
          .block_tables = block_tables_,
          .max_blocks = args_.max_blocks};
}

void RowExpansion::record_updates(Stream& stream) const {
  const UpdatesArgs args{.inputs = args_.inputs,
                         .slots = slots_,
                         .sampling = sampling_,
                         .block_tables = block_tables_,
                         .max_blocks = args_.max_blocks};
  stream.launch([args](const Launcher& on) { apply_updates(args, on); });
}

void RowExpansion::record_rows(Stream& stream, Operation operation) const {
  RowExpansionArgs args = args_;
  args.private_roles = operation == Operation::kMixed;
  stream.launch([args](const Launcher& on) { expand_rows(args, on); });
}

}  // namespace helios
