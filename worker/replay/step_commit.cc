#include "worker/replay/step_commit.h"

#include "common/contract/completion_layout.h"
#include "kernels/step/role_merge.h"

namespace helios {

StepCommit::StepCommit(const CoreShape& shape, const StepInputs& inputs, const RowExpansion& rows,
                       const CompletionOutputs& outputs, const TokenId* chosen, StepCounters* counters,
                       Backend& backend)
    : shape_(shape), inputs_(inputs), rows_(rows), outputs_(outputs), chosen_(chosen), counters_(counters) {
  const auto slots = static_cast<size_t>(shape.slot_capacity), t = static_cast<size_t>(shape.token_capacity);
  constexpr size_t kRoles = 2;
  role_records_ = backend.device_memory(kRoles * slots * record_words(shape.token_capacity) * sizeof(int64_t));
  role_packed_ = backend.device_memory(kRoles * slots * t * outputs.words_per_position() * sizeof(int32_t));
  lane_digests_ = backend.device_memory(slots * sizeof(uint64_t));
  summaries_ = backend.device_memory(kNumFrames * sizeof(StepSummary));
  if (shape.num_speculative_tokens == 0) return;
  lane_chosen_ = backend.device_memory(slots * sizeof(int32_t));
  lane_offered_ = backend.device_memory(slots * sizeof(int32_t));
}

int64_t StepCommit::bytes() const {
  return static_cast<int64_t>(role_records_.bytes() + role_packed_.bytes() + lane_digests_.bytes() +
                              summaries_.bytes() + lane_chosen_.bytes() + lane_offered_.bytes());
}

OutputHalves StepCommit::halves(Operation operation) const {
  if (operation == Operation::kMixed) return {role_records_.as<int64_t>(), role_packed_.as<int32_t>()};
  return {outputs_.records(FrameIndex(0)), outputs_.packed(FrameIndex(0))};
}

void StepCommit::record_verification(Stream& stream) const {
  const VerifyProposalsArgs args{.inputs = inputs_,
                                 .max_lanes = shape_.slot_capacity,
                                 .lanes = rows_.lanes(),
                                 .chosen = chosen_,
                                 .lane_chosen = lane_chosen_.as<int32_t>(),
                                 .lane_offered = lane_offered_.as<int32_t>()};
  stream.launch([args](const Launcher& on) { verify_proposals(args, on); });
}

void StepCommit::record_commit(Stream& stream, Operation operation) const {
  const bool verifies = operation == Operation::kVerify;
  if (verifies) record_verification(stream);
  const CommitArgs args{.inputs = inputs_,
                        .max_lanes = shape_.slot_capacity,
                        .slots = rows_.slots(),
                        .lanes = rows_.lanes(),
                        .chosen = chosen_,
                        .lane_chosen = verifies ? lane_chosen_.as<int32_t>() : nullptr,
                        .lane_offered = verifies ? lane_offered_.as<int32_t>() : nullptr,
                        .records = halves(operation).records,
                        .capacity = shape_.slot_capacity,
                        .token_capacity = shape_.token_capacity,
                        .max_model_len = shape_.max_model_len,
                        .counters = counters_};
  stream.launch([args](const Launcher& on) { commit_records(args, on); });
}

void StepCommit::record_merge(Stream& stream, Operation operation) const {
  if (operation != Operation::kMixed) return;
  const RoleMergeArgs args{.inputs = inputs_,
                           .max_lanes = shape_.slot_capacity,
                           .role_records = role_records_.as<int64_t>(),
                           .role_packed = role_packed_.as<int32_t>(),
                           .requested = outputs_.requested(),
                           .records = outputs_.records(FrameIndex(0)),
                           .packed = outputs_.packed(FrameIndex(0)),
                           .capacity = shape_.slot_capacity,
                           .token_capacity = shape_.token_capacity,
                           .packed_words = outputs_.words_per_position(),
                           .counters = counters_};
  stream.launch([args](const Launcher& on) { merge_roles(args, on); });
}

void StepCommit::record_summary(Stream& stream) const {
  const StepSummaryArgs args{.inputs = inputs_,
                             .records = outputs_.records(FrameIndex(0)),
                             .capacity = shape_.slot_capacity,
                             .token_capacity = shape_.token_capacity,
                             .lane_digests = lane_digests_.as<uint64_t>(),
                             .counters = counters_,
                             .summaries = summaries_.as<StepSummary>()};
  stream.launch([args](const Launcher& on) { summarize_step(args, on); });
}

}  // namespace helios
