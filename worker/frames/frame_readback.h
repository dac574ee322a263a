// Frame to host memory: a copy stream and a transfer event for each frame, into preallocated pinned storage (R26).
//
// enqueue() runs on the rank thread behind the producing event; collect() on the readback thread behind the transfer
// event. Rank 0 copies the records and, only for slots that asked and sample, the first W pairs of the positions that
// an operation can emit; peers copy the record digest alone (R28). A frame belongs to one thread at a time: the
// executor enqueues it again only after it was collected.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/contract/completion.h"
#include "common/contract/submission.h"
#include "worker/backend/backend.h"
#include "worker/frames/completion_outputs.h"

namespace helios {

class FrameReadback {
 public:
  /// `digests` [2] uint64 device words, one a frame, written by the commit. Borrows all. Throws DeviceError.
  FrameReadback(const CompletionOutputs& outputs, const uint64_t* digests, Rank rank, Backend& backend);

  /// Copies the submission's frame once `produced` is reached. Remembers lanes and the mask of slots that asked.
  void enqueue(const Submission& submission, Event& produced);

  /// Waits for the frame's transfer. Throws what stopped the streams.
  Completion collect(FrameIndex frame);

  int64_t pinned_bytes() const { return pinned_bytes_; }
  /// Payload copies enqueued so far; rank thread.
  int64_t payload_copies() const { return payload_copies_; }

 private:
  struct Frame {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> transferred;
    Memory records;  // pinned [capacity, 16 + T]
    Memory payload;  // pinned [capacity, T, words_per_position], positions packed_words(width) apart
    Memory digest;   // pinned uint64
    uint32_t incarnation = 0;
    Sequence sequence;
    std::vector<int32_t> lane_slots;  // reserved for the capacity
    std::vector<uint8_t> asked;       // [capacity]: whose payload was copied
    int32_t width = 0;
    int64_t bytes_copied = 0;
  };

  void note_requests(const Submission& submission, Frame& frame) const;
  void copy_payload(Frame& frame, FrameIndex index);

  const CompletionOutputs& outputs_;
  const uint64_t* digests_;
  const Rank rank_;
  Frame frames_[kNumFrames];
  int64_t pinned_bytes_ = 0;
  int64_t payload_copies_ = 0;
};

}  // namespace helios
