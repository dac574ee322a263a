// The operations of this room straight from their definitions, on copies, without regard to speed. For tests.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/step/commit_records.h"
#include "kernels/step/prompt_targets.h"
#include "kernels/step/role_merge.h"
#include "kernels/step/row_expansion.h"
#include "kernels/step/step_summary.h"
#include "kernels/step/updates.h"
#include "kernels/step/verify_proposals.h"

namespace helios::reference {

struct Slots {
  std::vector<SlotState> states;
  std::vector<SlotSampling> sampling;
  std::vector<int32_t> block_tables;
};
Slots apply_updates(const UpdatesArgs& args, int32_t capacity);

struct Rows {
  std::vector<LaneFate> fates;
  std::vector<int32_t> sampling, halves;  // by lane
  std::vector<int32_t> tokens, positions, slots;
  std::vector<int32_t> sampling_rows, sampling_slots, sampling_positions, sampling_halves, sampling_tokens;
  std::vector<uint32_t> sampling_epochs;
};
Rows expand_rows(const RowExpansionArgs& args);

struct Verified {
  std::vector<int32_t> chosen, offered;  // by lane
};
Verified verify_proposals(const VerifyProposalsArgs& args);

struct PromptTargets {
  std::vector<int32_t> targets, tokens;  // by row
};
PromptTargets prompt_targets(const PromptTargetsArgs& args);

/// One lane's record and its slot afterwards. Reads the slot as it is before the commit.
struct Committed {
  std::vector<int64_t> record;
  SlotState slot;
};
Committed commit_lane(const CommitArgs& args, int32_t lane);

/// Both frames, [2, capacity, ...], after the merge.
struct Frames {
  std::vector<int64_t> records;
  std::vector<int32_t> packed;
};
Frames merge_roles(const RoleMergeArgs& args);

uint64_t step_digest(const StepSummaryArgs& args);

}  // namespace helios::reference
