// Scores a chunk of prompt rows: 64 hidden rows at a time through the head, reduced to 43 words a row before the next
// block overwrites the logits. At TP > 1 two all-gathers of 64 words a row a rank; never a vocabulary on the wire, no
// allocation after construction (R40, R41).
//
// The reduction's tiles, trees and keys are the generation reduction's (kernels/logprobs/prompt_rows.h): a token's
// value has the same bits whether it was prompted or generated (X1). The top 20 are always found; what a request wants
// of them costs nothing here. Thread: rank.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/step_counters.h"
#include "kernels/step/prompt_targets.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/collective/communicator.h"
#include "worker/frames/completion_outputs.h"
#include "worker/model/prompt_head.h"
#include "worker/replay/row_expansion.h"

namespace helios {

class PromptScoring {
 public:
  /// Borrows everything for its life; `counters` in device memory. Throws DeviceError.
  PromptScoring(const CoreShape& shape, const StepInputs& inputs, const RowExpansion& rows, const PromptHead& head,
                const CompletionOutputs& outputs, StepCounters* counters, Communicator& communicator, Backend& backend);
  ~PromptScoring();

  /// Inside a capture, behind the forward pass of a graph of `max_rows` rows: writes that many rows of the active frame
  /// and nothing else of either. A block without rows reads nothing and, on the CPU, exchanges nothing. A replay throws
  /// CollectiveError.
  void record(Stream& stream, int64_t max_rows) const;

  int64_t workspace_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
