// Frame to host memory: a copy stream and a transfer event for each frame, into preallocated pinned storage (R26).
//
// enqueue() runs on the rank thread behind the producing event; collect() on the readback thread behind the transfer
// event. Every rank copies its step's summary. Rank 0 alone copies the records and, for slots that asked and sample,
// the first W pairs of the positions that the operation can emit (R28): the width is the larger of K and the frame's
// largest selected count. Of a scored prefill it also copies a row for each prompt token of the submission (R40). What
// a slot emitted is read from its record, so stale payload is never handed on (R19). A frame belongs to one thread at a
// time: the executor enqueues it again only after it was collected.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/contract/completion.h"
#include "common/contract/submission.h"
#include "kernels/step/step_summary.h"
#include "worker/backend/backend.h"
#include "worker/frames/completion_outputs.h"

namespace helios {

/// What a frame brought home.
struct CollectedFrame {
  Completion completion;
  StepCounters counters;  // this rank's, at the end of the frame's step
};

class FrameReadback {
 public:
  /// `summaries` [2] in device memory, one a frame. Borrows all. Throws DeviceError.
  FrameReadback(const CompletionOutputs& outputs, const StepSummary* summaries, Rank rank, Backend& backend);

  /// Copies the submission's frame once `produced` is reached. Remembers lanes and the mask of slots that asked.
  void enqueue(const Submission& submission, Event& produced);

  /// Whether collect() would return at once.
  bool arrived(FrameIndex frame) const { return frames_[frame.value].transferred->query(); }
  /// Waits for the frame's transfer. Throws what stopped the streams.
  CollectedFrame collect(FrameIndex frame);

  int64_t pinned_bytes() const { return pinned_bytes_; }
  /// Payload copies enqueued so far; rank thread.
  int64_t payload_copies() const { return payload_copies_; }

 private:
  struct Frame {
    std::unique_ptr<Event> transferred;
    Memory summary;  // pinned StepSummary
    Memory records;  // pinned [capacity, 16 + T]
    Memory payload;  // pinned [capacity, T, words_per_position]
    Memory prompt;   // pinned [C, 43]; empty without prompt scoring
    uint32_t incarnation = 0;
    Sequence sequence;
    std::vector<int32_t> lane_slots;  // reserved for the capacity
    std::vector<uint8_t> asked;       // [capacity]: whose payload was copied
    int32_t width = 0;
    int32_t positions = 0;     // copied of each slot that asked
    int64_t prompt_words = 0;  // copied: 43 for each prompt token of a scored prefill
    int64_t bytes_copied = 0;
    std::unique_ptr<Stream> stream;  // last: when it goes first, what it was told to copy and record is still there
  };

  void note_requests(const Submission& submission, Frame& frame) const;
  void copy_payload(Frame& frame, FrameIndex index);
  void copy_positions(Frame& frame, FrameIndex index, size_t first_slot, size_t num_slots);
  std::vector<int32_t> read_payload(const Frame& frame, int32_t slot, int64_t emitted) const;

  const CompletionOutputs& outputs_;
  const StepSummary* summaries_;
  const Rank rank_;
  Frame frames_[kNumFrames];
  int64_t pinned_bytes_ = 0;
  int64_t payload_copies_ = 0;
};

}  // namespace helios
