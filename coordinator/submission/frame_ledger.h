// Which frames are in flight, what their lanes were, and which slots asked for logprobs.
//
// The coordinator names the next frame, so a frame stays reserved until it has decoded it, without an extra message
// (R26, R27). A frame counts as done when every rank has reported it and the records' digests agree (R28). Thread:
// engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/contract/completion.h"
#include "common/contract/core_manifest.h"
#include "common/contract/submission.h"
#include "coordinator/scheduler/batch_planner.h"

namespace helios {

struct LedgerLane {
  RequestId request;
  Tenancy tenancy;
  LaneRole role = LaneRole::kDecode;
  int32_t start = -1;  // first position of a prompt chunk
  int32_t rows = 0;    // prompt rows
  bool samples = true;
  bool requested = false;  // the slot's logprob flag
  std::vector<TokenId> proposals;
};

struct FrameInFlight {
  Sequence sequence;
  FrameIndex frame;
  Operation operation = Operation::kInvalid;
  std::vector<LedgerLane> lanes;      // the submission's order
  std::vector<bool> requested_slots;  // [capacity]: only these slots' payloads are ever decoded
  int32_t width = 0;                  // W: max(K, largest selected count) when anybody asked, else 0
  std::chrono::steady_clock::time_point submitted;

  bool any_requested() const { return width > 0; }
};

class FrameLedger {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  FrameLedger(int world_size, const Capabilities& capabilities);

  bool can_submit() const { return frames_.size() < static_cast<size_t>(kNumFrames); }
  bool idle() const { return frames_.empty(); }

  /// Notes the decision as the next submission; can_submit() holds. The frame alternates.
  const FrameInFlight& begin(const Decision& decision, TimePoint now);

  /// A rank's report. Ranks report in order, each frame once.
  /// Errors: kMismatch naming rank, sequence and what differs (order, frame, T, number of records, digest): the set is
  /// broken then, for the ranks no longer agree on what they did.
  Status arrived(Rank rank, Completion completion);

  /// The oldest frame once every rank has reported it, else null; `completion()` is rank 0's report of it.
  const FrameInFlight* done() const;
  const Completion& completion() const;

  /// Decoding is over: the frame may be submitted again.
  void release();

  int64_t num_in_flight() const { return static_cast<int64_t>(frames_.size()); }
  /// When the oldest frame in flight became the oldest; empty when idle.
  std::optional<TimePoint> waiting_since() const;

 private:
  struct Entry {
    FrameInFlight frame;
    Completion from_rank0;
    std::vector<bool> reported;                       // [world]
    std::optional<std::pair<Rank, uint64_t>> digest;  // the first one seen
    int num_reported = 0;
  };
  Status check(Rank rank, const Completion& completion, const Entry& entry) const;

  const int world_size_;
  const Capabilities capabilities_;
  std::deque<Entry> frames_;  // oldest first
  uint64_t next_sequence_ = 1;
  TimePoint oldest_since_{};
};

}  // namespace helios
