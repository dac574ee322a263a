// The end of a step on the device: of a verification, how many of each lane's tokens stand; commit, the merge of a
// mixed graph's roles, and the summary that goes home.
//
// Prefill, decode and verify graphs write the active frame. A mixed graph's prompt and decode lanes write private
// halves, where the logprobs of each find the record of their role, and the merge brings both into the active frame
// (R20). The private halves are reused by every mixed step: the compute stream orders them. Thread: rank.
#pragma once

#include <cstdint>

#include "kernels/step/commit_records.h"
#include "kernels/step/step_summary.h"
#include "kernels/step/verify_proposals.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/frames/completion_outputs.h"
#include "worker/replay/row_expansion.h"

namespace helios {

/// Two halves of records and of packed logprobs; a lane's half says which of them takes its own.
struct OutputHalves {
  int64_t* records = nullptr;  // [2, capacity, 16 + T]
  int32_t* packed = nullptr;   // [2, capacity, T, words_per_position], or null
};

class StepCommit {
 public:
  /// `chosen` by sampling row, in device memory. Borrows all. Throws DeviceError.
  StepCommit(const CoreShape& shape, const StepInputs& inputs, const RowExpansion& rows,
             const CompletionOutputs& outputs, const TokenId* chosen, StepCounters* counters, Backend& backend);

  /// Where a graph's lanes write before the merge: the frames, or a mixed graph's roles.
  OutputHalves halves(Operation operation) const;

  /// Behind the choice of tokens.
  void record_commit(Stream& stream, Operation operation) const;
  /// After the logprobs; of a mixed graph only.
  void record_merge(Stream& stream, Operation operation) const;
  /// Last: everything has been written and counted.
  void record_summary(Stream& stream) const;

  const StepSummary* summaries() const { return summaries_.as<StepSummary>(); }  // [2], one a frame
  int64_t bytes() const;

 private:
  void record_verification(Stream& stream) const;

  const CoreShape shape_;
  const StepInputs inputs_;
  const RowExpansion& rows_;
  const CompletionOutputs& outputs_;
  const TokenId* chosen_;
  StepCounters* counters_;
  Memory role_records_, role_packed_;  // prompt, decode
  Memory lane_digests_, summaries_;
  Memory lane_chosen_, lane_offered_;  // int32 [capacity]; empty without speculation
};

}  // namespace helios
