// How slots choose their tokens: what admissions ask for, kept in device tables, and the step's sampler over them.
//
// Lists and masks go up with the submission that admits their slot, each only when its request has one: biases as a
// prefix, masks as this shard's words of the vocabulary, so that an upload of a slot's words is all it takes to change
// what it may say next: a lane's own mask does so at every step. Token counts are kept on the device: the host need not
// know this step's token to plan the next. Thread: rank, and the rank's compute stream.
#pragma once

#include <cstdint>

#include "common/base/vocab_range.h"
#include "common/contract/completion_layout.h"
#include "common/contract/submission.h"
#include "kernels/sampling/token_counts.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/replay/row_expansion.h"
#include "worker/replay/sampler.h"

namespace helios {

/// A request's parameters as its slot keeps them. Lists and masks are uploaded apart.
SlotSampling slot_sampling(const SamplingParams& params);

class TokenChoice {
 public:
  /// `logits` [most sampling rows, logits_stride], this rank's shard; `counters` in device memory. Borrows all. Throws
  /// DeviceError.
  TokenChoice(const CoreShape& shape, const RowExpansion& rows, const float* logits, int64_t logits_stride,
              StepCounters* counters, Communicator& communicator, Backend& backend);

  /// Enqueues the copies of what a checked submission's admissions and lanes bring; its frame was collected, so that
  /// its staging is free.
  void enqueue(const Submission& submission, Stream& stream);

  /// Behind the hand-over of slots, in every graph.
  void record_admissions(Stream& stream) const;
  void record(Stream& stream, Operation operation) const {
    sampler_.record(stream, sampling_capacity(shape_, operation));
  }
  /// Behind the commit, which wrote `records` [2, capacity, 16 + T]. A slot that counts brings no proposals
  /// (SubmissionCheck), so it has one row.
  void record_counts(Stream& stream, Operation operation, const int64_t* records) const;

  const TokenId* tokens() const { return sampler_.tokens(); }  // [sampling]

  /// Words of lanes' masks that went up. Thread: rank.
  int64_t mask_words_uploaded() const { return mask_words_uploaded_; }
  int64_t workspace_bytes() const;
  int64_t pinned_bytes() const;

 private:
  // One layout in device memory and in each frame's staging. All [capacity, ...].
  struct Lists {
    LogitBias* biases = nullptr;     // [kMaxLogitBias]
    uint32_t* allowed = nullptr;     // [mask_words]
    uint32_t* prompt_ids = nullptr;  // [mask_words]
    TokenId* generated = nullptr;    // [max_model_len]
  };
  struct Staging {
    Memory memory;
    Lists lists;
  };

  int64_t lists_bytes() const;
  Lists place_lists(const Memory& memory) const;
  TransformTables tables() const;
  void enqueue_admission(const SlotAdmission& admission, Lists& from, Stream& stream) const;
  void enqueue_mask(const Lane& lane, Lists& from, Stream& stream);

  const CoreShape shape_;
  const RowExpansion& rows_;
  const int32_t mask_words_;  // ceil(V / 32)
  const Range shard_;
  const Range shard_words_;  // of a mask: those that hold this shard's bits
  Memory lists_memory_;
  const Lists lists_;
  Memory token_counts_;  // int32 [capacity, shard]
  Staging staging_[kNumFrames];
  int64_t mask_words_uploaded_ = 0;
  Sampler sampler_;
};

}  // namespace helios
