// Where each reason would end the lane, and then the earliest; among equals the contract's order of reasons.
#include <algorithm>

#include "common/contract/completion_layout.h"
#include "kernels/step/reference.h"

namespace helios::reference {
namespace {

struct End {
  int32_t emitted;  // tokens out when it ends
  FinishCode reason;
};

End find_end(const CommitArgs& a, const SlotState& before, int32_t position, const TokenId* chosen, int32_t count) {
  const TokenId* end = chosen + count;
  const auto upto = [&](const TokenId* at) { return static_cast<int32_t>(at - chosen) + 1; };
  std::vector<End> ends;
  if (!before.ignore_eos) {
    if (const auto* at = std::find(chosen, end, before.eos_id); at != end) ends.push_back({upto(at), FinishCode::kEos});
  }
  const auto* stop = std::find_first_of(chosen, end, before.stop_ids, before.stop_ids + before.num_stop_ids);
  if (stop != end) ends.push_back({upto(stop), FinishCode::kStopId});
  ends.push_back({std::max(0, before.max_tokens - before.generated), FinishCode::kTokenLimit});
  ends.push_back({std::max(1, a.max_model_len - position), FinishCode::kContextLimit});
  ends.push_back({std::min(count, a.token_capacity), FinishCode::kNone});
  if (const auto* bad = std::find(chosen, end, -1); bad != end) {
    ends.push_back({static_cast<int32_t>(bad - chosen), FinishCode::kError});
  }
  return *std::min_element(ends.begin(), ends.end(), [](const End& x, const End& y) { return x.emitted < y.emitted; });
}

}  // namespace

Committed commit_lane(const CommitArgs& a, int32_t i) {
  const LaneInput& lane = a.inputs.lanes[i];
  Committed out{.record = std::vector<int64_t>(record_words(a.token_capacity), 0), .slot = a.slots[lane.slot]};
  std::vector<int64_t>& r = out.record;
  r[record_word::kAbi] = 6;
  r[record_word::kSlot] = lane.slot;
  r[record_word::kEpoch] = lane.epoch;
  r[record_word::kOperation] = a.inputs.header->operation;
  r[record_word::kSequence] = a.inputs.header->sequence;
  if (a.lanes.fates[i] == LaneFate::kDead) return out;
  End end{0, FinishCode::kError};
  if (a.lanes.fates[i] == LaneFate::kRuns) {
    out.slot.position = lane.decodes ? out.slot.position + 1 : lane.start + lane.num_tokens;
    end.reason = FinishCode::kNone;
    if (a.lanes.sampling[i] >= 0) {
      const TokenId* chosen = a.chosen + a.lanes.sampling[i];
      const int32_t count = a.lane_chosen ? a.lane_chosen[i] : 1;
      end = find_end(a, a.slots[lane.slot], out.slot.position, chosen, count);
      for (int32_t t = 0; t < end.emitted; ++t) {
        r[record_word::kTokens + t] = out.slot.last_token = chosen[t];
        if (a.slots[lane.slot].ignore_eos && chosen[t] == out.slot.eos_id)
          r[record_word::kFlags] = kRecordFlagSilentEos;
        if (a.lane_forced) r[record_word::kForcedMask] |= a.lane_forced[i] & (int64_t{1} << t);
      }
      out.slot.generated += end.emitted;
      out.slot.position += std::max(0, end.emitted - 1);
      if (a.lane_offered) {
        r[record_word::kProposalsOffered] = a.lane_offered[i];
        r[record_word::kProposalsAccepted] = std::min(count - 1, end.emitted);
      }
    }
  }
  r[record_word::kEmitted] = end.emitted;
  r[record_word::kFinish] = static_cast<int64_t>(end.reason);
  r[record_word::kKvLength] = out.slot.position;
  if (end.reason != FinishCode::kNone) out.slot.finished = 1;
  return out;
}

}  // namespace helios::reference
