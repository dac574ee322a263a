// Continuous batching over slots: requests join and leave at any step.
//
// plan() computes; commit() is the only place where a plan changes state. Two frames may be in flight, planned without
// knowing each other's tokens: the device carries a slot's last token and position, and the lane of a slot that turns
// out to have finished is inert. So a request that leaves keeps its slot and blocks until no frame in flight names it.
//
// A request holds blocks for what is planned of it, not for what it may still generate. When blocks run out, the last
// in rank is preempted: it gets no more lanes, the frames in flight bring their tokens as ever, then its slot and
// blocks are free, what it knows stays in the prefix cache, and it waits in its old place. It enters again with prompt
// and generated tokens as its prefill, and goes on as if nothing had happened: the same tokens, the same bits (X1). A
// request whose prompt was not scored to its end scores it again, and only what is new of it counts (R43).
//
// Behind the KV cache there may be a host tier: a known block that is taken for something else moves there, and comes
// back when a request begins with its prefix, in the submission that admits it. A request that leaves between changes
// nothing of that: the block is known in the cache from its commit on. No text, no sockets, no clock. Thread: engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/scheduler/batch_planner.h"
#include "coordinator/scheduler/request_state.h"
#include "coordinator/scheduler/slot_table.h"
#include "coordinator/scheduler/tiered_cache.h"

namespace helios {

struct SchedulerOptions {
  bool prefix_cache = true;       // find and keep whole blocks of known tokens
  PromptLookupOptions proposals;  // at most as many as the core verifies
};

class Scheduler {
 public:
  explicit Scheduler(const Capabilities& capabilities, SchedulerOptions options = {});

  /// Ok when the core could ever run the request alone. Errors: kInvalidArgument, naming what is needed and what there
  /// is.
  static Status check_fits(const Capabilities& capabilities, const RequestSpec& spec);

  /// Queues a request that check_fits accepts. `id` is new.
  void enqueue(RequestId id, RequestSpec spec);

  /// Empty when nobody can advance. Ignores how many frames are in flight: that is the ledger's affair. A decision
  /// without lanes is no submission, but has to be committed.
  Decision plan() const;

  /// Makes the decision so: slots, blocks, planned counts, one more frame in flight for every lane's request. What the
  /// decision's submission has to copy for it, none when that has no lanes.
  CacheMoves commit(const Decision& decision);

  /// What a decoded lane of a request that has not left brought. `prompt_rows`: the lane's, 0 for decode. `tokens`:
  /// those that were emitted, one and as many as proposals came true. Whole blocks of known positions become findable.
  void note_decoded(RequestId id, int32_t prompt_rows, std::span<const TokenId> tokens);

  /// The frame that named these requests was decoded: slots and blocks of those who go and whom no frame names any more
  /// are free.
  void frame_decoded(std::span<const RequestId> requests);

  /// Finished, cancelled or failed: never planned again, and forgotten as soon as no frame in flight names it.
  /// Unknown ids are ignored: a cancel may arrive after the end.
  void leave(RequestId id);

  /// A paused request gets no decode lanes; it keeps its place unless others need it.
  void set_paused(RequestId id, bool paused);

  /// Null when unknown or forgotten. Valid until the scheduler next changes.
  const RequestState* find(RequestId id) const;

  /// Takes out, in rank order, everybody who was never admitted. For a new rank set's scheduler.
  std::vector<std::pair<RequestId, RequestSpec>> take_waiting();

  /// Requests that hold a slot, leavers included.
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// Of those that wait: preempted ones.
  int64_t num_waiting_again() const { return num_waiting_again_; }
  const SlotTable& slots() const { return slots_; }
  const BlockPool& blocks() const { return cache_.blocks(); }
  const TieredCache& cache() const { return cache_; }
  const Capabilities& capabilities() const { return capabilities_; }

 private:
  RequestState* find_mutable(RequestId id);
  void admit(const PlannedAdmission& admission);
  void add_lane(const PlannedLane& lane);
  void publish(RequestState& request);
  void look_up(RequestState& request);
  void release_if_unnamed(RequestState& request);
  void end_tenancy(RequestState& request);

  const Capabilities capabilities_;
  const SchedulerOptions options_;
  SlotTable slots_;
  TieredCache cache_;
  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;
  RequestQueue waiting_, running_;
  bool last_was_scored_ = false;  // the last submission
  uint64_t num_arrived_ = 0;
  int64_t num_waiting_again_ = 0;
};

}  // namespace helios
