// Continuous batching over slots: requests join and leave at any step.
//
// plan() computes; commit() is the only place where a plan changes state. Two frames may be in flight, planned without
// knowing each other's tokens: the device carries a slot's last token and position, and the lane of a slot that turns
// out to have finished is inert. So a request that leaves keeps its slot and blocks until no frame in flight names it.
//
// There is no preemption in this version: admission reserves KV cache blocks for the prompt and all of max_tokens, so a
// running request never has to give way; the price is that requests with a large max_tokens wait longer to enter.
// No text, no sockets, no clock. Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/scheduler/batch_planner.h"
#include "coordinator/scheduler/block_pool.h"
#include "coordinator/scheduler/request_state.h"
#include "coordinator/scheduler/slot_table.h"

namespace helios {

class Scheduler {
 public:
  explicit Scheduler(const Capabilities& capabilities);

  /// Ok when the core could ever run the request alone. Errors: kInvalidArgument, naming what is needed and what there
  /// is.
  static Status check_fits(const Capabilities& capabilities, const RequestSpec& spec);

  /// Queues a request that check_fits accepts. `id` is new.
  void enqueue(RequestId id, RequestSpec spec);

  /// Empty when nobody can advance. Ignores how many frames are in flight: that is the ledger's affair.
  Decision plan() const;

  /// Makes the decision so: slots, blocks, planned counts, one more frame in flight for every request it names.
  void commit(const Decision& decision);

  /// The frame that named these requests was decoded: slots and blocks of leavers nobody names any more are free.
  void frame_decoded(std::span<const RequestId> requests);

  void note_emitted(RequestId id, int32_t tokens);

  /// Finished, cancelled or failed: never planned again, and forgotten as soon as no frame in flight names it.
  /// Unknown ids are ignored: a cancel may arrive after the end.
  void leave(RequestId id);

  /// A paused request gets no decode lanes; it keeps its place.
  void set_paused(RequestId id, bool paused);

  /// Null when unknown or forgotten. Valid until the scheduler next changes.
  const RequestState* find(RequestId id) const;

  /// Takes out, in order of arrival, everybody who was never admitted. For a new rank set's scheduler.
  std::vector<std::pair<RequestId, RequestSpec>> take_waiting();

  /// Requests that hold a slot, leavers included.
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  const SlotTable& slots() const { return slots_; }
  const BlockPool& blocks() const { return blocks_; }
  const Capabilities& capabilities() const { return capabilities_; }

 private:
  RequestState* find_mutable(RequestId id);
  void admit(const PlannedAdmission& admission);
  void release_if_unnamed(RequestState& request);

  const Capabilities capabilities_;
  SlotTable slots_;
  BlockPool blocks_;
  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;
  std::deque<RequestState*> waiting_;  // order of arrival
  std::deque<RequestState*> running_;  // order of admission
};

}  // namespace helios
