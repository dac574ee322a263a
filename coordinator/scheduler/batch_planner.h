// Picks one operation and its lanes: who decodes, whose prompt advances, who enters.
//
// Every decoding slot gets one decode lane; up to prefill_chunk prompt rows are shared by several prompts in order of
// arrival. Pure: reads the state, returns a Decision, changes nothing. Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "common/contract/core_manifest.h"
#include "common/contract/operation.h"
#include "common/contract/submission.h"
#include "coordinator/scheduler/block_pool.h"
#include "coordinator/scheduler/request_state.h"
#include "coordinator/scheduler/slot_table.h"

namespace helios {

struct PlannedAdmission {
  const RequestState* request = nullptr;
  Tenancy tenancy;
  std::vector<int32_t> blocks;
};

struct PlannedLane {
  const RequestState* request = nullptr;
  Tenancy tenancy;
  LaneRole role = LaneRole::kDecode;
  int32_t start = -1;  // prefill: first prompt position of this chunk
  int32_t rows = 0;    // prefill: prompt rows; decode: 0
  bool samples = true;
};

/// What one submission will do. Valid until the scheduler next changes: it borrows the requests.
struct Decision {
  Operation operation = Operation::kInvalid;
  std::vector<PlannedAdmission> admissions;  // in order of arrival
  std::vector<PlannedLane> lanes;            // decode lanes first, then prompts in order of arrival
  bool empty() const { return lanes.empty(); }
};

/// `running` holds slots, in order of admission; `waiting` does not, in order of arrival. The head of `waiting` is
/// never overtaken: when it does not fit, nobody behind it enters, so a large request cannot starve.
Decision plan_batch(const Capabilities& capabilities, const std::deque<RequestState*>& running,
                    const std::deque<RequestState*>& waiting, const SlotTable& slots, const BlockPool& blocks);

}  // namespace helios
