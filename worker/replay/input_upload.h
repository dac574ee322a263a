// Submission to graph inputs: pinned staging for each frame, then copies on the compute stream. Thread: rank.
//
// The whole flag and count vectors go up with every sampling submission, which clears slots that no longer ask, and of
// the ids only the prefixes of selecting slots (R13). A graph without logprob inputs gets none of them.
#pragma once

#include <cstdint>

#include "common/contract/submission.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/frames/completion_outputs.h"
#include "kernels/step/step_inputs.h"

namespace helios {

class InputUpload {
 public:
  /// Throws DeviceError.
  InputUpload(const CoreShape& shape, CompletionOutputs& outputs, Backend& backend);

  /// The inputs in device memory; fixed for life.
  const StepInputs& device() const { return device_; }

  /// Enqueues the copies of a checked submission, whose frame was collected (so that its staging is free).
  void enqueue(const Submission& submission, Stream& stream);

  int64_t device_bytes() const { return static_cast<int64_t>(device_memory_.bytes()); }
  int64_t pinned_bytes() const;

 private:
  struct Staging {
    Memory memory;
    StepInputs inputs;
    int32_t* requested = nullptr;        // [capacity]
    int32_t* token_id_counts = nullptr;  // [capacity]
    int32_t* token_ids = nullptr;        // [capacity, 128]
    int32_t* prompt_targets = nullptr;   // [prefill_chunk]; null without prompt scoring
  };

  StepInputs place(std::byte* base, Staging* staging, int64_t* bytes) const;
  void fill(const Submission& submission, StepInputs& to) const;
  void enqueue_logprob_inputs(const Submission& submission, Staging& staging, Stream& stream);

  const CoreShape shape_;
  const int32_t max_blocks_;
  CompletionOutputs& outputs_;
  Memory device_memory_;
  StepInputs device_;
  Staging staging_[kNumFrames];
};

}  // namespace helios
