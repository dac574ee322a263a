#include "worker/replay/submission_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "common/contract/completion_layout.h"
#include "worker/replay/token_choice.h"

namespace helios {
namespace {

template <class... Args>
Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {Errc::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}

bool is_sampling_graph(Operation operation, const CoreShape& shape) {
  return operation == Operation::kPrefill || operation == Operation::kDecode || operation == Operation::kMixed ||
         (operation == Operation::kScoredPrefill && shape.prompt_scoring) ||
         (operation == Operation::kVerify && shape.num_speculative_tokens > 0);
}

Status check_penalties(const SamplingParams& p, int32_t slot, const CoreShape& shape) {
  const auto outside = [&](TokenId id) { return id < 0 || id >= shape.vocab_size; };
  if (!(p.repetition_penalty > 0.0f) || !std::isfinite(p.repetition_penalty)) {
    return invalid("admission of slot {}: repetition_penalty: expected a finite number > 0, found {}", slot,
                   p.repetition_penalty);
  }
  if (!(std::abs(p.frequency_penalty) <= 2.0f))
    return invalid("admission of slot {}: frequency_penalty: expected [-2, 2], found {}", slot, p.frequency_penalty);
  if (!(std::abs(p.presence_penalty) <= 2.0f))
    return invalid("admission of slot {}: presence_penalty: expected [-2, 2], found {}", slot, p.presence_penalty);
  for (const TokenId id : p.prompt_ids) {
    if (outside(id))
      return invalid("admission of slot {}: prompt id {} is outside the vocabulary of {}", slot, id, shape.vocab_size);
  }
  int64_t generated = 0;
  for (const TokenCount& count : p.output_counts) {
    if (outside(count.id)) {
      return invalid("admission of slot {}: output id {} is outside the vocabulary of {}", slot, count.id,
                     shape.vocab_size);
    }
    if (count.count < 1)
      return invalid("admission of slot {}: output id {}: expected a count >= 1, found {}", slot, count.id,
                     count.count);
    generated += count.count;
  }
  if (generated > shape.max_model_len) {
    return invalid("admission of slot {}: output_counts: expected at most the context of {}, found {}", slot,
                   shape.max_model_len, generated);
  }
  return Ok{};
}

Status check_allowed(const SamplingParams& p, int32_t slot, int64_t vocab_size) {
  const auto outside = [&](TokenId id) { return id < 0 || id >= vocab_size; };
  if (p.logit_bias.size() > kMaxLogitBias) {
    return invalid("admission of slot {}: logit_bias: expected at most {} ids, found {}", slot, kMaxLogitBias,
                   p.logit_bias.size());
  }
  std::array<TokenId, kMaxLogitBias> sorted;
  size_t count = 0;
  for (const LogitBias& bias : p.logit_bias) {
    if (outside(bias.id))
      return invalid("admission of slot {}: biased id {} is outside the vocabulary of {}", slot, bias.id, vocab_size);
    if (!std::isfinite(bias.bias))
      return invalid("admission of slot {}: logit_bias of id {}: expected a finite number", slot, bias.id);
    sorted[count++] = bias.id;
  }
  std::sort(sorted.begin(), sorted.begin() + count);
  const auto twice = std::adjacent_find(sorted.begin(), sorted.begin() + count);
  if (twice != sorted.begin() + count) return invalid("admission of slot {}: biased id {} twice", slot, *twice);
  if (p.masks && !p.allowed_ids.empty())
    return invalid("admission of slot {}: allowed_ids: expected none beside masks, found {}", slot,
                   p.allowed_ids.size());
  for (const TokenId id : p.allowed_ids) {
    if (outside(id))
      return invalid("admission of slot {}: allowed id {} is outside the vocabulary of {}", slot, id, vocab_size);
  }
  return Ok{};
}

Status check_sampling(const SamplingParams& p, int32_t slot, const CoreShape& shape) {
  const int64_t vocab_size = shape.vocab_size;
  const auto in_vocabulary = [&](TokenId id) { return id >= 0 && id < vocab_size; };
  if (!(p.temperature >= 0.0f) || !std::isfinite(p.temperature)) {
    return invalid("admission of slot {}: temperature: expected a finite number >= 0, found {}", slot, p.temperature);
  }
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f))
    return invalid("admission of slot {}: top_p: expected (0, 1], found {}", slot, p.top_p);
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f))
    return invalid("admission of slot {}: min_p: expected [0, 1], found {}", slot, p.min_p);
  if (p.top_k < 0) return invalid("admission of slot {}: top_k: expected >= 0, found {}", slot, p.top_k);
  if (p.max_tokens < 0) return invalid("admission of slot {}: max_tokens: expected >= 0, found {}", slot, p.max_tokens);
  if (p.min_tokens < 0) return invalid("admission of slot {}: min_tokens: expected >= 0, found {}", slot, p.min_tokens);
  if (p.eos_id != -1 && !in_vocabulary(p.eos_id)) {
    return invalid("admission of slot {}: eos_id: expected -1 or an id under {}, found {}", slot, vocab_size, p.eos_id);
  }
  if (p.stop_ids.size() > kMaxStopIds) {
    return invalid("admission of slot {}: stop_ids: expected at most {}, found {}", slot, kMaxStopIds,
                   p.stop_ids.size());
  }
  for (const TokenId id : p.stop_ids) {
    if (!in_vocabulary(id))
      return invalid("admission of slot {}: stop id {} is outside the vocabulary of {}", slot, id, vocab_size);
  }
  if (auto status = check_allowed(p, slot, vocab_size); !status) return status;
  return check_penalties(p, slot, shape);
}

}  // namespace

SubmissionCheck::SubmissionCheck(const CoreShape& shape)
    : shape_(shape),
      max_blocks_((shape.max_model_len + shape.kv_block_size - 1) / shape.kv_block_size),
      marks_(static_cast<size_t>(shape.slot_capacity), 0),
      masked_(static_cast<size_t>(shape.slot_capacity), false),
      masked_then_(masked_),
      penalized_(masked_),
      penalized_then_(masked_),
      cache_marks_(shape.host_num_blocks > 0 ? static_cast<size_t>(shape.kv_num_blocks) : 0, 0),
      host_marks_(static_cast<size_t>(shape.host_num_blocks), 0),
      host_filled_(static_cast<size_t>(shape.host_num_blocks), false),
      block_marks_(static_cast<size_t>(shape.slot_capacity) * static_cast<size_t>(max_blocks_), 0) {}

bool SubmissionCheck::first_mark(int32_t slot) {
  return std::exchange(marks_[static_cast<size_t>(slot)], round_) != round_;
}

Status SubmissionCheck::check(const Submission& s) {
  if (s.frame.value < 0 || s.frame.value >= kNumFrames)
    return invalid("frame: expected 0 or 1, found {}", s.frame.value);
  if (s.operation != Operation::kAdmission && !is_sampling_graph(s.operation, shape_)) {
    return invalid("operation: this core has no graph for {} ({})", to_string(s.operation),
                   static_cast<int>(s.operation));
  }
  if (auto status = check_copies(s); !status) return status;
  if (auto status = check_admissions(s); !status) return status;
  if (auto status = check_block_updates(s); !status) return status;
  if (auto status = check_lanes(s); !status) return status;
  if (auto status = check_prompt_targets(s); !status) return status;
  if (auto status = check_logprobs(s); !status) return status;
  masked_.swap(masked_then_);
  penalized_.swap(penalized_then_);
  for (const BlockCopy& copy : s.blocks_out) host_filled_[static_cast<size_t>(copy.host_block)] = true;
  return Ok{};
}

/// Copies of one kind go in any order, so a target has one source; and what comes back was kept by an earlier
/// submission.
Status SubmissionCheck::check_copies(const Submission& s) {
  const auto check_range = [&](std::string_view name, const BlockCopy& copy) -> Status {
    if (copy.block < 0 || copy.block >= shape_.kv_num_blocks)
      return invalid("{}: block {} is outside the cache's {}", name, copy.block, shape_.kv_num_blocks);
    if (copy.host_block < 0 || copy.host_block >= shape_.host_num_blocks)
      return invalid("{}: host block {} is outside the host tier's {}", name, copy.host_block, shape_.host_num_blocks);
    return Ok{};
  };
  const auto twice = [&](std::vector<uint64_t>& marks, int32_t block) {
    return std::exchange(marks[static_cast<size_t>(block)], round_) == round_;
  };
  ++round_;
  for (const BlockCopy& copy : s.blocks_out) {
    if (auto status = check_range("blocks_out", copy); !status) return status;
    if (twice(cache_marks_, copy.block)) return invalid("blocks_out: block {} twice", copy.block);
    if (twice(host_marks_, copy.host_block)) return invalid("blocks_out: host block {} twice", copy.host_block);
  }
  const uint64_t out = round_++;
  for (const BlockCopy& copy : s.blocks_in) {
    if (auto status = check_range("blocks_in", copy); !status) return status;
    const auto host = static_cast<size_t>(copy.host_block);
    if (twice(cache_marks_, copy.block)) return invalid("blocks_in: block {} twice", copy.block);
    if (!host_filled_[host]) return invalid("blocks_in: host block {} was never filled", copy.host_block);
    if (host_marks_[host] == out)
      return invalid("blocks_in: host block {} is overwritten by this submission", copy.host_block);
  }
  return Ok{};
}

Status SubmissionCheck::check_admissions(const Submission& s) {
  ++round_;
  masked_then_ = masked_;
  penalized_then_ = penalized_;
  for (const SlotAdmission& a : s.admissions) {
    const int32_t slot = a.slot.value;
    if (slot < 0 || slot >= shape_.slot_capacity)
      return invalid("admission: slot {} is outside the capacity of {}", slot, shape_.slot_capacity);
    if (!first_mark(slot)) return invalid("admission: slot {} twice", slot);
    if (a.epoch.value == 0) return invalid("admission of slot {}: epoch 0 means never owned", slot);
    if (auto status = check_sampling(a.sampling, slot, shape_); !status) return status;
    const int32_t most = std::max(a.sampling.max_tokens - 1, 0);  // a budget of 0 prefills only
    if (a.generated < 0 || a.generated > most) {
      return invalid("admission of slot {}: generated: expected 0 to {}, found {}", slot, most, a.generated);
    }
    masked_then_[static_cast<size_t>(slot)] = a.sampling.masks;
    penalized_then_[static_cast<size_t>(slot)] = slot_sampling(a.sampling).penalizes();
  }
  return Ok{};
}

Status SubmissionCheck::check_block_updates(const Submission& s) {
  ++round_;
  for (const BlockTableUpdate& u : s.block_updates) {
    const int32_t slot = u.slot.value;
    const auto count = static_cast<int64_t>(u.blocks.size());
    if (slot < 0 || slot >= shape_.slot_capacity)
      return invalid("block update: slot {} is outside the capacity of {}", slot, shape_.slot_capacity);
    if (u.first < 0 || count > max_blocks_ - u.first) {
      return invalid("block update of slot {}: entries [{}, {}) are outside a table of {}", slot, u.first,
                     u.first + count, max_blocks_);
    }
    for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {  // a device writes them in any order
      auto& mark = block_marks_[static_cast<size_t>(int64_t{slot} * max_blocks_ + u.first + i)];
      if (std::exchange(mark, round_) == round_)
        return invalid("block update of slot {}: entry {} twice", slot, u.first + i);
    }
    for (const int32_t block : u.blocks) {
      if (block < 0 || block >= shape_.kv_num_blocks) {
        return invalid("block update of slot {}: block {} is outside the cache's {}", slot, block,
                       shape_.kv_num_blocks);
      }
    }
  }
  return Ok{};
}

Status SubmissionCheck::check_lanes(const Submission& s) {
  ++round_;
  if (s.operation == Operation::kAdmission && !s.lanes.empty()) {
    return invalid("lanes: expected none in an admission, found {}", s.lanes.size());
  }
  if (s.operation != Operation::kAdmission && s.lanes.empty())
    return invalid("lanes: expected some in {}, found none", to_string(s.operation));
  const bool verifies = s.operation == Operation::kVerify;
  int64_t tokens = 0;
  for (const Lane& lane : s.lanes) {
    const int32_t slot = lane.slot.value;
    if (slot < 0 || slot >= shape_.slot_capacity)
      return invalid("lane: slot {} is outside the capacity of {}", slot, shape_.slot_capacity);
    if (!first_mark(slot)) return invalid("lane: slot {} twice", slot);
    if (auto status = check_lane(lane, s.operation); !status) return status;
    if (auto status = check_mask(lane); !status) return status;
    if (verifies) {
      if (auto status = check_proposals(lane); !status) return status;
    }
    tokens += static_cast<int64_t>(lane.tokens.size());
  }
  if (!verifies && tokens > shape_.prefill_chunk) {
    return invalid("lanes: expected at most {} prompt tokens, found {}", shape_.prefill_chunk, tokens);
  }
  const int64_t rows = static_cast<int64_t>(s.lanes.size()) + tokens;
  if (verifies && rows > row_capacity(shape_, Operation::kVerify)) {
    return invalid("lanes: expected at most {} rows in a verify, a lane's and its proposals', found {}",
                   row_capacity(shape_, Operation::kVerify), rows);
  }
  return Ok{};
}

Status SubmissionCheck::check_lane(const Lane& lane, Operation operation) const {
  const int32_t slot = lane.slot.value;
  if (lane.role == LaneRole::kDecode) {
    if (operation == Operation::kPrefill || operation == Operation::kScoredPrefill)
      return invalid("lane of slot {}: a decode lane in a {}", slot, to_string(operation));
    const bool offers = operation == Operation::kVerify && !lane.tokens.empty();
    if ((!lane.tokens.empty() && !offers) || lane.start != -1 || !lane.samples) {
      return invalid(
          "lane of slot {}: a decode lane has no tokens, start -1 and samples; found {} tokens, start {}, samples {}",
          slot, lane.tokens.size(), lane.start, lane.samples);
    }
    return Ok{};
  }
  if (lane.role != LaneRole::kPrefill)
    return invalid("lane of slot {}: unknown role {}", slot, static_cast<int>(lane.role));
  if (operation == Operation::kDecode || operation == Operation::kVerify)
    return invalid("lane of slot {}: a prefill lane in a {}", slot, to_string(operation));
  const auto count = static_cast<int64_t>(lane.tokens.size());
  if (count == 0) return invalid("lane of slot {}: a prefill lane without tokens", slot);
  if (lane.start < 0 || lane.start + count > shape_.max_model_len) {
    return invalid("lane of slot {}: positions [{}, {}) are outside the context of {}", slot, lane.start,
                   lane.start + count, shape_.max_model_len);
  }
  for (const TokenId id : lane.tokens) {
    if (id < 0 || id >= shape_.vocab_size)
      return invalid("lane of slot {}: token id {} is outside the vocabulary of {}", slot, id, shape_.vocab_size);
  }
  return Ok{};
}

/// What a slot with penalties or masks samples depends on the tokens that this step emits before it, which a row of the
/// same step cannot know.
Status SubmissionCheck::check_proposals(const Lane& lane) const {
  const int32_t slot = lane.slot.value;
  const auto count = static_cast<int32_t>(lane.tokens.size());
  if (count > shape_.num_speculative_tokens) {
    return invalid("lane of slot {}: expected at most {} proposals, found {}", slot, shape_.num_speculative_tokens,
                   count);
  }
  const bool penalized = penalized_then_[static_cast<size_t>(slot)];
  if (count > 0 && (penalized || masked_then_[static_cast<size_t>(slot)])) {
    return invalid("lane of slot {}: expected no proposals for a slot with {}, found {}", slot,
                   penalized ? "penalties" : "masks", count);
  }
  for (const TokenId id : lane.tokens) {
    if (id < 0 || id >= shape_.vocab_size)
      return invalid("lane of slot {}: proposed id {} is outside the vocabulary of {}", slot, id, shape_.vocab_size);
  }
  return Ok{};
}

Status SubmissionCheck::check_prompt_targets(const Submission& s) const {
  size_t expected = 0;
  if (s.operation == Operation::kScoredPrefill) {
    for (const Lane& lane : s.lanes) expected += lane.tokens.size();
  }
  if (s.prompt_target_tokens.size() != expected) {
    return invalid("prompt_target_tokens: expected {} in this {}, found {}", expected, to_string(s.operation),
                   s.prompt_target_tokens.size());
  }
  for (const TokenId id : s.prompt_target_tokens) {
    if (id < kNoTarget || id >= shape_.vocab_size) {
      return invalid("prompt_target_tokens: expected -1 or an id under {}, found {}", shape_.vocab_size, id);
    }
  }
  return Ok{};
}

/// A masked slot's mask is what its last lane brought: one that brings none would sample under a stale one.
Status SubmissionCheck::check_mask(const Lane& lane) const {
  const int32_t slot = lane.slot.value;
  const int64_t words = (shape_.vocab_size + 31) / 32;
  const bool wanted = masked_then_[static_cast<size_t>(slot)] && lane.samples;
  if (!wanted && !lane.mask.empty()) {
    return invalid("lane of slot {}: mask: expected none, since {}, found {} words", slot,
                   lane.samples ? "its admission announced none" : "it samples nothing", lane.mask.size());
  }
  if (wanted && static_cast<int64_t>(lane.mask.size()) != words)
    return invalid("lane of slot {}: mask: expected {} words, found {}", slot, words, lane.mask.size());
  return Ok{};
}

Status SubmissionCheck::check_logprobs(const Submission& s) {
  const auto check_vector = [&](const std::vector<int32_t>& v, const char* name, bool usable) -> Status {
    const bool whole = v.size() == static_cast<size_t>(shape_.slot_capacity);
    if (!whole && (usable || !v.empty())) {
      return invalid("{}: expected the whole vector of {}, found {}", name, shape_.slot_capacity, v.size());
    }
    if (usable) return Ok{};
    for (const int32_t value : v) {
      if (value != 0) return invalid("{}: this core or operation has no such input, found a value of {}", name, value);
    }
    return Ok{};
  };
  const bool graph = is_sampling_graph(s.operation, shape_);
  const bool flags = graph && shape_.alternatives > 0, ids = flags && shape_.token_ids;
  if (auto status = check_vector(s.logprob_requested, "logprob_requested", flags); !status) return status;
  if (auto status = check_vector(s.logprob_token_id_counts, "logprob_token_id_counts", ids); !status) return status;
  if (!ids && !s.logprob_token_ids.empty())
    return invalid("logprob_token_ids: this core or operation has no such input");
  if (!flags) return Ok{};
  // The marks of check_lanes' round tell which slots have a lane here.
  for (int32_t slot = 0; slot < shape_.slot_capacity; ++slot) {
    const auto i = static_cast<size_t>(slot);
    if (s.logprob_requested[i] != 0 && marks_[i] != round_)
      return invalid("logprob_requested: slot {} has no lane in this submission", slot);
    if (ids && s.logprob_token_id_counts[i] != 0 && s.logprob_requested[i] == 0) {
      return invalid("logprob_token_id_counts: slot {} has {} but did not ask", slot, s.logprob_token_id_counts[i]);
    }
  }
  return ids ? check_selected_ids(s) : Status(Ok{});
}

Status SubmissionCheck::check_selected_ids(const Submission& s) {
  ++round_;
  for (const SelectedIds& selected : s.logprob_token_ids) {
    const int32_t slot = selected.slot.value;
    if (slot < 0 || slot >= shape_.slot_capacity)
      return invalid("logprob_token_ids: slot {} is outside the capacity of {}", slot, shape_.slot_capacity);
    if (!first_mark(slot)) return invalid("logprob_token_ids: slot {} twice", slot);
    const size_t count = selected.ids.size();
    if (count < 1 || count > kMaxSelectedIds)
      return invalid("logprob_token_ids of slot {}: expected 1 to {}, found {}", slot, kMaxSelectedIds, count);
    if (s.logprob_token_id_counts[static_cast<size_t>(slot)] != static_cast<int32_t>(count)) {
      return invalid("logprob_token_ids of slot {}: {} ids, but the count is {}", slot, count,
                     s.logprob_token_id_counts[static_cast<size_t>(slot)]);
    }
    std::array<TokenId, kMaxSelectedIds> sorted;
    std::copy(selected.ids.begin(), selected.ids.end(), sorted.begin());
    std::sort(sorted.begin(), sorted.begin() + count);
    for (size_t i = 0; i < count; ++i) {
      if (sorted[i] < 0 || sorted[i] >= shape_.vocab_size) {
        return invalid("logprob_token_ids of slot {}: id {} is outside the vocabulary of {}", slot, sorted[i],
                       shape_.vocab_size);
      }
      if (i > 0 && sorted[i] == sorted[i - 1])
        return invalid("logprob_token_ids of slot {}: id {} twice", slot, sorted[i]);
    }
  }
  for (int32_t slot = 0; slot < shape_.slot_capacity; ++slot) {
    const auto i = static_cast<size_t>(slot);
    if (s.logprob_token_id_counts[i] != 0 && marks_[i] != round_) {
      return invalid("logprob_token_id_counts: slot {} has {} but no ids", slot, s.logprob_token_id_counts[i]);
    }
  }
  return Ok{};
}

}  // namespace helios
