#include "coordinator/submission/submission_builder.h"

#include "common/base/check.h"

#include <map>

namespace helios {
namespace {

Lane build_lane(const PlannedLane& planned) {
  Lane lane{.slot = planned.tenancy.slot,
            .epoch = planned.tenancy.epoch,
            .role = planned.role,
            .start = planned.start,
            .samples = planned.samples};
  if (planned.role == LaneRole::kPrefill) {
    const auto first = planned.request->tokens.begin() + planned.start;
    lane.tokens.assign(first, first + planned.rows);
  } else {
    lane.tokens = planned.proposals;
  }
  return lane;
}

/// R38: what stands behind each prompt token of the chunk. A readmitted request's prompt ends where it always did
/// (R43).
void append_targets(const PlannedLane& planned, std::vector<TokenId>* targets) {
  const RequestState& request = *planned.request;
  for (int32_t next = planned.start + 1; next <= planned.start + planned.rows; ++next) {
    targets->push_back(next < request.prompt_size ? request.tokens[next] : kNoTarget);
  }
}

/// The ids that the ranks report, where they are not to find the best ones. Whoever reads the chosen token alone names
/// one id, any, and passes over what comes of it: reading one logit costs a rank less than the best twenty of a row.
std::vector<TokenId> selected_ids(const RequestSpec& spec, const Capabilities& capabilities) {
  if (spec.chosen_alone && capabilities.logprob_token_ids) return {0};
  return spec.logprob_token_ids;
}

/// A request that was preempted goes on where it was: so many tokens are out, and these are their counts.
SlotAdmission build_admission(const PlannedAdmission& planned) {
  const RequestState& request = *planned.request;
  SlotAdmission out{planned.tenancy.slot, planned.tenancy.epoch, request.spec.sampling, request.generated()};
  if (!has_penalty(out.sampling)) return out;
  std::map<TokenId, int32_t> counts;
  for (auto it = request.tokens.begin() + request.prompt_size; it != request.tokens.end(); ++it) counts[*it] += 1;
  for (const auto& [id, count] : counts) out.sampling.output_counts.push_back({id, count});
  return out;
}

}  // namespace

bool lane_requests_logprobs(const PlannedLane& lane, const Capabilities& capabilities) {
  return capabilities.max_logprobs > 0 && lane.samples && lane.request->spec.logprobs;
}

Submission build_submission(const Decision& decision, const Capabilities& capabilities, uint32_t incarnation,
                            Sequence sequence, FrameIndex frame) {
  Submission out{.incarnation = incarnation, .sequence = sequence, .frame = frame, .operation = decision.operation};
  for (const PlannedAdmission& admission : decision.admissions) {
    out.admissions.push_back(build_admission(admission));
    if (!admission.cached.empty()) out.block_updates.push_back({admission.tenancy.slot, 0, admission.cached});
  }
  out.logprob_requested.assign(capabilities.slot_capacity, 0);
  out.logprob_token_id_counts.assign(capabilities.slot_capacity, 0);
  out.lanes.reserve(decision.lanes.size());
  for (const PlannedLane& lane : decision.lanes) {
    out.lanes.push_back(build_lane(lane));
    if (decision.operation == Operation::kScoredPrefill) append_targets(lane, &out.prompt_target_tokens);
    if (!lane.new_blocks.empty()) out.block_updates.push_back({lane.tenancy.slot, lane.first_block, lane.new_blocks});
    if (!lane_requests_logprobs(lane, capabilities)) continue;
    const int32_t slot = lane.tenancy.slot.value;
    out.logprob_requested[slot] = 1;
    std::vector<TokenId> ids = selected_ids(lane.request->spec, capabilities);
    if (ids.empty()) continue;
    HELIOS_CHECK(capabilities.logprob_token_ids, slot);  // refused before admission otherwise
    out.logprob_token_id_counts[slot] = static_cast<int32_t>(ids.size());
    out.logprob_token_ids.push_back({lane.tenancy.slot, std::move(ids)});
  }
  return out;
}

}  // namespace helios
