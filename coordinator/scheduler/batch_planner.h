// Picks one operation and its lanes: who decodes, whose prompt advances, who enters, who gives way.
//
// Decode lanes always ride along; prompts share what rows a step has for them. A plan reserves blocks for its own lanes
// and for nothing after them. Pure: reads the state, returns a Decision, changes nothing. Thread: engine.
#pragma once

#include <cstdint>
#include <vector>

#include "common/contract/core_manifest.h"
#include "common/contract/operation.h"
#include "common/contract/submission.h"
#include "coordinator/scheduler/block_pool.h"
#include "coordinator/scheduler/prefix_cache.h"
#include "coordinator/scheduler/request_state.h"
#include "coordinator/scheduler/slot_table.h"

namespace helios {

struct PlannedAdmission {
  const RequestState* request = nullptr;
  Tenancy tenancy;
  std::vector<int32_t> cached;  // blocks that hold the first positions; shared with whoever holds them
  // Of those: new ones, which get what blocks of the host tier hold. In order of position.
  std::vector<BlockCopy> returning;
};

struct PlannedLane {
  const RequestState* request = nullptr;
  Tenancy tenancy;
  LaneRole role = LaneRole::kDecode;
  int32_t start = -1;  // prefill: first position of this chunk
  int32_t rows = 0;    // prefill: rows of the chunk; decode: 0
  bool samples = true;
  int32_t first_block = 0;          // where in the slot's block table
  std::vector<int32_t> new_blocks;  // these go
  std::vector<TokenId> proposals;   // decode, in a verify step
};

/// What one submission will do. Valid until the scheduler next changes: it borrows the requests.
struct Decision {
  Operation operation = Operation::kInvalid;
  std::vector<PlannedAdmission> admissions;      // in the order in which they wait
  std::vector<PlannedLane> lanes;                // decode lanes first
  std::vector<const RequestState*> preemptions;  // no lanes here
  bool empty() const { return lanes.empty() && preemptions.empty(); }
};

/// What a plan reads. `running` holds slots, `waiting` does not.
struct PlannerState {
  const Capabilities& capabilities;
  const RequestQueue& running;
  const RequestQueue& waiting;
  const SlotTable& slots;
  const BlockPool& blocks;
  const PrefixCache* cache;      // null: no look-ups
  bool last_was_scored = false;  // the last submission was a scored prefill
  int32_t num_proposals = 0;     // that a lane may bring; 0: none are made
};

/// Rows that prompts get in a step that also decodes, of a chunk: streams wait for the whole step, and prompts gain
/// nothing from longer ones (measured: 128 rows a step prefill as fast as 512).
int32_t mixed_prompt_rows(int32_t prefill_chunk);

/// Order and fairness:
/// - Requests rank by priority, then by arrival, wherever they are. Of those that wait, the first is never overtaken:
///   when it does not fit, nobody behind it enters, so a large request cannot starve. A paused one is passed by.
/// - A request enters when the blocks of its whole prefill fit beside those that running prefills still need, and with
///   them those that it and whoever ranks before it may take until it has generated a block of tokens. So nobody is let
///   in to be preempted at once: unless somebody who ranks before it enters later, a tenancy leaves at least one whole
///   block more in the prefix cache than it found, and a request is preempted at most once for each block that it
///   generates. Nothing is kept for paused requests.
/// - A prompt that cannot finish in this step takes half of the rows left when others can use them: short prompts do
///   not wait for a long one to end, and the long one keeps half the speed.
/// - Who cannot get a block takes one from the last in rank: that one is preempted, unless blocks are about to come
///   free or it is the last itself, which then waits. The first in rank always advances, so all do in the end.
/// - A paused request gives way to anybody: it would hold its place for a consumer that does not read.
/// - Prompts that are scored have steps of their own, without decode lanes and without other prompts (R43): the two
///   kinds of steps take turns as long as both have work. Of those that wait, only the first decides which kind may
///   admit: not being overtaken holds between the kinds too. Scored prompts find nothing in the prefix cache.
/// - A step without prompts verifies proposals (kVerify). They follow from tokens, so a request that has some waits for
///   its tokens in flight, and then everybody does: such steps come one by one, all decode lanes in each. Going on
///   without it, the others would gain what the ranks idle between two steps, a fraction of a millisecond, and it would
///   ride every other step; several such requests would keep apart, and read the weights once each. Whoever has
///   nothing to propose runs two frames deep as ever.
/// - Rows for proposals are dealt out one a request in rank order, then the second: the first are the likeliest to come
///   true. They take blocks only where nobody waits for one.
Decision plan_batch(const PlannerState& state);

}  // namespace helios
