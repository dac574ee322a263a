#include "worker/replay/input_upload.h"

#include <algorithm>

#include "worker/replay/token_choice.h"

namespace helios {

InputUpload::InputUpload(const CoreShape& shape, CompletionOutputs& outputs, Backend& backend)
    : shape_(shape),
      max_blocks_((shape.max_model_len + shape.kv_block_size - 1) / shape.kv_block_size),
      outputs_(outputs) {
  int64_t bytes = 0;
  place(nullptr, nullptr, &bytes);
  device_memory_ = backend.device_memory(static_cast<size_t>(bytes));
  device_ = place(device_memory_.as<std::byte>(), nullptr, &bytes);
  for (Staging& s : staging_) {
    place(nullptr, &s, &bytes);
    s.memory = backend.pinned_memory(static_cast<size_t>(bytes));
    s.inputs = place(s.memory.as<std::byte>(), &s, &bytes);
  }
}

/// Lays the inputs out from `base`; a null base only measures. Staging holds the logprob vectors too, whose device side
/// belongs to the completion bundle.
StepInputs InputUpload::place(std::byte* base, Staging* staging, int64_t* bytes) const {
  int64_t used = 0;
  const auto take = [&](int64_t count, size_t size) {
    std::byte* at = base ? base + used : nullptr;
    used += (count * static_cast<int64_t>(size) + 63) / 64 * 64;
    return at;
  };
  const int64_t capacity = shape_.slot_capacity;
  StepInputs in;
  in.header = reinterpret_cast<StepHeader*>(take(1, sizeof(StepHeader)));
  in.lanes = reinterpret_cast<LaneInput*>(take(capacity, sizeof(LaneInput)));
  in.admissions = reinterpret_cast<AdmissionInput*>(take(capacity, sizeof(AdmissionInput)));
  const int32_t tokens = std::max(shape_.prefill_chunk, row_capacity(shape_, Operation::kVerify));  // or proposals
  in.prompt_tokens = reinterpret_cast<int32_t*>(take(tokens, sizeof(int32_t)));
  in.block_updates = reinterpret_cast<BlockUpdateInput*>(take(capacity * max_blocks_, sizeof(BlockUpdateInput)));
  if (staging) {
    staging->requested = reinterpret_cast<int32_t*>(take(capacity, sizeof(int32_t)));
    staging->token_id_counts = reinterpret_cast<int32_t*>(take(capacity, sizeof(int32_t)));
    staging->token_ids = reinterpret_cast<int32_t*>(take(capacity * kMaxSelectedIds, sizeof(int32_t)));
    if (outputs_.prompt_targets())
      staging->prompt_targets = reinterpret_cast<int32_t*>(take(shape_.prefill_chunk, sizeof(int32_t)));
  }
  *bytes = used;
  return in;
}

int64_t InputUpload::pinned_bytes() const {
  int64_t bytes = 0;
  for (const Staging& s : staging_) bytes += static_cast<int64_t>(s.memory.bytes());
  return bytes;
}

void InputUpload::fill(const Submission& s, StepInputs& to) const {
  StepHeader& h = *to.header;
  h = {.sequence = static_cast<int64_t>(s.sequence.value),
       .operation = static_cast<int32_t>(s.operation),
       .frame = s.frame.value,
       .num_lanes = static_cast<int32_t>(s.lanes.size()),
       .num_admissions = static_cast<int32_t>(s.admissions.size())};
  for (const BlockTableUpdate& u : s.block_updates) {
    for (size_t i = 0; i < u.blocks.size(); ++i) {
      to.block_updates[h.num_block_updates++] = {u.slot.value, u.first + static_cast<int32_t>(i), u.blocks[i]};
    }
  }
  for (size_t i = 0; i < s.lanes.size(); ++i) {
    const Lane& lane = s.lanes[i];
    to.lanes[i] = {.slot = lane.slot.value,
                   .epoch = lane.epoch.value,
                   .decodes = lane.role == LaneRole::kDecode,
                   .samples = lane.samples,
                   .start = lane.start,
                   .first_token = h.num_prompt_tokens,
                   .num_tokens = static_cast<int32_t>(lane.tokens.size())};
    std::copy(lane.tokens.begin(), lane.tokens.end(), to.prompt_tokens + h.num_prompt_tokens);
    h.num_prompt_tokens += static_cast<int32_t>(lane.tokens.size());
  }
  for (size_t i = 0; i < s.admissions.size(); ++i) {
    const SamplingParams& p = s.admissions[i].sampling;
    AdmissionInput& a = to.admissions[i];
    a.slot = s.admissions[i].slot.value;
    a.sampling = slot_sampling(p);
    a.state = {.epoch = s.admissions[i].epoch.value,
               .generated = s.admissions[i].generated,
               .max_tokens = p.max_tokens,
               .min_tokens = p.min_tokens,
               .eos_id = p.eos_id,
               .ignore_eos = p.ignore_eos,
               .finished = 0,
               .num_stop_ids = static_cast<int32_t>(p.stop_ids.size())};
    std::copy(p.stop_ids.begin(), p.stop_ids.end(), a.state.stop_ids);
  }
}

void InputUpload::enqueue(const Submission& s, Stream& stream) {
  Staging& staging = staging_[s.frame.value];
  const StepInputs& from = staging.inputs;
  fill(s, staging.inputs);
  const auto upload = [&stream](auto* to, const auto* source, int32_t count) {
    if (count > 0) stream.copy(to, source, static_cast<size_t>(count) * sizeof(*source));
  };
  upload(device_.header, from.header, 1);
  upload(device_.lanes, from.lanes, from.header->num_lanes);
  upload(device_.admissions, from.admissions, from.header->num_admissions);
  upload(device_.prompt_tokens, from.prompt_tokens, from.header->num_prompt_tokens);
  upload(device_.block_updates, from.block_updates, from.header->num_block_updates);
  if (s.operation != Operation::kAdmission && outputs_.requested()) enqueue_logprob_inputs(s, staging, stream);
  if (s.operation == Operation::kScoredPrefill) {
    std::copy(s.prompt_target_tokens.begin(), s.prompt_target_tokens.end(), staging.prompt_targets);
    upload(outputs_.prompt_targets(), staging.prompt_targets, static_cast<int32_t>(s.prompt_target_tokens.size()));
  }
}

void InputUpload::enqueue_logprob_inputs(const Submission& s, Staging& staging, Stream& stream) {
  const auto vector_bytes = static_cast<size_t>(shape_.slot_capacity) * sizeof(int32_t);
  std::copy(s.logprob_requested.begin(), s.logprob_requested.end(), staging.requested);
  stream.copy(outputs_.requested(), staging.requested, vector_bytes);
  if (!outputs_.token_ids()) return;
  std::copy(s.logprob_token_id_counts.begin(), s.logprob_token_id_counts.end(), staging.token_id_counts);
  stream.copy(outputs_.token_id_counts(), staging.token_id_counts, vector_bytes);
  for (const SelectedIds& selected : s.logprob_token_ids) {
    const int64_t row = int64_t{selected.slot.value} * kMaxSelectedIds;
    std::copy(selected.ids.begin(), selected.ids.end(), staging.token_ids + row);
    stream.copy(outputs_.token_ids() + row, staging.token_ids + row, selected.ids.size() * sizeof(int32_t));
  }
}

}  // namespace helios
