// Lanes to rows, on the device: admissions and block table updates first, then the live lanes' rows and sampling rows.
//
// A lane is live when its slot has this epoch and is not finished. Dead lanes have no rows, so they cost nothing and
// disturb nobody; the commit still writes their records. Every rank holds the same slot states and decides alike.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/model/step_rows.h"
#include "kernels/step/step_inputs.h"

namespace helios {

enum class LaneFate : int32_t {
  kDead = 0,  // stale epoch, or a finished slot: emits nothing
  kRuns = 1,
  kBroken = 2,  // its slot has no such position: missing block, a gap in the prompt, nothing to decode from
};

class RowExpansion {
 public:
  /// Throws DeviceError.
  RowExpansion(const CoreShape& shape, const StepInputs& inputs, Backend& backend);

  /// Hands slots over and writes block tables.
  void apply_updates();
  void expand();

  StepRows rows() const;
  SlotState* slots() const { return slots_; }                      // [capacity]
  const SlotSampling* sampling() const { return sampling_; }       // [capacity]
  const LaneFate* lane_fates() const { return lane_fates_; }       // [lanes]
  const int32_t* lane_sampling() const { return lane_sampling_; }  // [lanes] index into the sampling rows, or -1
  // Of each sampling row, [sampling]:
  int32_t num_sampling() const { return counts_[1]; }
  int32_t num_rows() const { return counts_[0]; }
  const int32_t* sampling_slots() const { return sampling_slots_; }
  const uint32_t* sampling_epochs() const { return sampling_epochs_; }
  const int32_t* sampling_positions() const { return sampling_positions_; }  // of the token being sampled

  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }

 private:
  int64_t place(std::byte* base);
  LaneFate judge(const LaneInput& lane, int32_t* first, int32_t* count) const;
  bool has_blocks(int32_t slot, int32_t end) const;

  const CoreShape shape_;
  const int32_t max_blocks_;
  const StepInputs inputs_;
  Memory memory_;
  SlotState* slots_ = nullptr;
  SlotSampling* sampling_ = nullptr;
  int32_t* block_tables_ = nullptr;  // [capacity, max_blocks]; -1: none
  int32_t* counts_ = nullptr;        // rows, sampling rows
  int32_t* tokens_ = nullptr;
  int32_t* positions_ = nullptr;
  int32_t* row_slots_ = nullptr;
  int32_t* sampling_rows_ = nullptr;
  int32_t* sampling_slots_ = nullptr;
  uint32_t* sampling_epochs_ = nullptr;
  int32_t* sampling_positions_ = nullptr;
  LaneFate* lane_fates_ = nullptr;
  int32_t* lane_sampling_ = nullptr;
};

}  // namespace helios
