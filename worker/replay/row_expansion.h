// Slot state and the step's rows in device memory, and the launches that write them. Thread: rank.
#pragma once

#include <cstdint>

#include "kernels/step/row_expansion.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/model/step_rows.h"

namespace helios {

/// Blocks of a slot's table.
int32_t max_blocks(const CoreShape& shape);

class RowExpansion {
 public:
  /// Throws DeviceError.
  RowExpansion(const CoreShape& shape, const StepInputs& inputs, StepCounters* counters, Backend& backend);

  /// Slots change hands, block tables are written.
  void record_updates(Stream& stream) const;
  /// A mixed graph's lanes write private halves of their role, any other's the frame's (R20).
  void record_rows(Stream& stream, Operation operation) const;

  StepRows rows() const;
  LaneTable lanes() const { return args_.lanes; }
  SlotState* slots() const { return slots_; }           // [capacity]
  SlotSampling* sampling() const { return sampling_; }  // [capacity]
  // Of each sampling row, in device memory:
  const int32_t* num_sampling_rows() const { return args_.num_sampling; }  // [1]
  const int32_t* sampling_slots() const { return args_.sampling_slots; }   // [sampling], as all that follow
  const uint32_t* sampling_epochs() const { return args_.sampling_epochs; }
  const int32_t* sampling_positions() const { return args_.sampling_positions; }  // of the token being sampled
  const int32_t* sampling_halves() const { return args_.sampling_halves; }        // half that takes record and payload
  const int32_t* sampling_tokens() const { return args_.sampling_tokens; }        // index within its record; null: 0

  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }

 private:
  int64_t place(std::byte* base);

  const CoreShape shape_;
  Memory memory_;
  RowExpansionArgs args_;
  SlotState* slots_ = nullptr;
  SlotSampling* sampling_ = nullptr;
  int32_t* block_tables_ = nullptr;  // [capacity, max_blocks]; -1: none
};

}  // namespace helios
