#include "coordinator/scheduler/batch_planner.h"

#include <algorithm>

namespace helios {
namespace {

PlannedLane prefill_lane(const RequestState& request, Tenancy tenancy, int32_t budget) {
  const int32_t rows = std::min(budget, request.prompt_size() - request.prompt_planned);
  return {.request = &request,
          .tenancy = tenancy,
          .role = LaneRole::kPrefill,
          .start = request.prompt_planned,
          .rows = rows,
          .samples = request.prompt_planned + rows == request.prompt_size()};
}

Operation operation_of(const std::vector<PlannedLane>& lanes) {
  const auto is_decode = [](const PlannedLane& lane) { return lane.role == LaneRole::kDecode; };
  if (std::all_of(lanes.begin(), lanes.end(), is_decode)) return Operation::kDecode;
  return std::any_of(lanes.begin(), lanes.end(), is_decode) ? Operation::kMixed : Operation::kPrefill;
}

}  // namespace

Decision plan_batch(const Capabilities& capabilities, const std::deque<RequestState*>& running,
                    const std::deque<RequestState*>& waiting, const SlotTable& slots, const BlockPool& blocks) {
  Decision decision;
  for (const RequestState* request : running) {
    if (request->can_decode()) decision.lanes.push_back({.request = request, .tenancy = *request->tenancy});
  }
  int32_t budget = capabilities.prefill_chunk;
  for (const RequestState* request : running) {
    if (budget == 0) break;
    if (request->leaving || request->prompt_done()) continue;
    decision.lanes.push_back(prefill_lane(*request, *request->tenancy, budget));
    budget -= decision.lanes.back().rows;
  }
  int32_t blocks_used = 0;
  for (const RequestState* request : waiting) {
    if (budget == 0) break;
    const auto tenancy = slots.peek(static_cast<int>(decision.admissions.size()));
    const int32_t needed =
        blocks.blocks_for(static_cast<int64_t>(request->prompt_size()) + request->spec.sampling.max_tokens);
    if (!tenancy || needed > blocks.num_free() - blocks_used) break;
    decision.admissions.push_back({request, *tenancy, blocks.peek(blocks_used, needed)});
    blocks_used += needed;
    decision.lanes.push_back(prefill_lane(*request, *tenancy, budget));
    budget -= decision.lanes.back().rows;
  }
  if (!decision.lanes.empty()) decision.operation = operation_of(decision.lanes);
  return decision;
}

}  // namespace helios
