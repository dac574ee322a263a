#include "worker/replay/token_choice.h"

#include <algorithm>

namespace helios {
namespace {

int32_t num_generated(const SamplingParams& p) {
  int32_t sum = 0;
  for (const TokenCount& count : p.output_counts) sum += count.count;
  return sum;
}

void write_mask(const std::vector<TokenId>& ids, uint32_t* words, int32_t num_words) {
  std::fill_n(words, num_words, 0);
  for (const TokenId id : ids) words[id / 32] |= 1u << (id % 32);
}

}  // namespace

SlotSampling slot_sampling(const SamplingParams& p) {
  SlotSampling s;
  s.temperature = p.temperature;
  s.top_p = p.top_p;
  s.min_p = p.min_p;
  s.top_k = p.top_k;
  s.seed = p.seed;
  s.num_biases = static_cast<int32_t>(p.logit_bias.size());
  s.masked = p.masks || !p.allowed_ids.empty();
  s.repetition_penalty = p.repetition_penalty;
  s.frequency_penalty = p.frequency_penalty;
  s.presence_penalty = p.presence_penalty;
  if (!s.penalizes()) return s;
  s.num_generated = num_generated(p);
  s.counts_due = 1;
  return s;
}

TokenChoice::TokenChoice(const CoreShape& shape, const RowExpansion& rows, const float* logits, int64_t logits_stride,
                         StepCounters* counters, Communicator& communicator, Backend& backend)
    : shape_(shape),
      rows_(rows),
      mask_words_(static_cast<int32_t>((shape.vocab_size + 31) / 32)),
      shard_(VocabLayout(shape.vocab_size).shard(communicator.rank(), communicator.world_size())),
      shard_words_{shard_.begin / 32, std::max(shard_.begin / 32, (shard_.end + 31) / 32)},
      lists_memory_(backend.device_memory(static_cast<size_t>(lists_bytes()))),
      lists_(place_lists(lists_memory_)),
      token_counts_(backend.device_memory(static_cast<size_t>(shape.slot_capacity * shard_.size()) * sizeof(int32_t))),
      sampler_({.logits = logits,
                .logits_stride = logits_stride,
                .num_rows = rows.num_sampling_rows(),
                .max_rows = most_sampling_rows(shape),
                .row_slots = rows.sampling_slots(),
                .row_positions = rows.sampling_positions(),
                .row_tokens = rows.sampling_tokens(),
                .tables = tables()},
               VocabLayout(shape.vocab_size), counters, communicator, backend) {
  for (Staging& s : staging_) {
    s.memory = backend.pinned_memory(lists_memory_.bytes());
    s.lists = place_lists(s.memory);
  }
}

int64_t TokenChoice::lists_bytes() const {
  return shape_.slot_capacity * (int64_t{kMaxLogitBias} * static_cast<int64_t>(sizeof(LogitBias)) +
                                 (2 * int64_t{mask_words_} + shape_.max_model_len) * 4);
}

TokenChoice::Lists TokenChoice::place_lists(const Memory& memory) const {
  const int64_t capacity = shape_.slot_capacity;
  Lists lists;
  lists.biases = memory.as<LogitBias>();
  lists.allowed = reinterpret_cast<uint32_t*>(lists.biases + capacity * kMaxLogitBias);
  lists.prompt_ids = lists.allowed + capacity * mask_words_;
  lists.generated = reinterpret_cast<TokenId*>(lists.prompt_ids + capacity * mask_words_);
  return lists;
}

TransformTables TokenChoice::tables() const {
  return {.sampling = rows_.sampling(),
          .slots = rows_.slots(),
          .biases = lists_.biases,
          .allowed = lists_.allowed,
          .prompt_ids = lists_.prompt_ids,
          .token_counts = token_counts_.as<int32_t>(),
          .counts_stride = shard_.size(),
          .mask_words = mask_words_};
}

int64_t TokenChoice::workspace_bytes() const {
  return sampler_.workspace_bytes() + static_cast<int64_t>(lists_memory_.bytes() + token_counts_.bytes());
}

int64_t TokenChoice::pinned_bytes() const {
  int64_t bytes = 0;
  for (const Staging& s : staging_) bytes += static_cast<int64_t>(s.memory.bytes());
  return bytes;
}

void TokenChoice::enqueue(const Submission& submission, Stream& stream) {
  for (const SlotAdmission& admission : submission.admissions) {
    enqueue_admission(admission, staging_[submission.frame.value].lists, stream);
  }
  for (const Lane& lane : submission.lanes) enqueue_mask(lane, staging_[submission.frame.value].lists, stream);
}

/// The staging is the one that an admission's allowed ids would take: a slot has either.
void TokenChoice::enqueue_mask(const Lane& lane, Lists& from, Stream& stream) {
  const int64_t count = shard_words_.size();
  if (lane.mask.empty() || count == 0) return;
  const int64_t at = int64_t{lane.slot.value} * mask_words_ + shard_words_.begin;
  std::copy_n(lane.mask.begin() + shard_words_.begin, count, from.allowed + at);
  stream.copy(lists_.allowed + at, from.allowed + at, static_cast<size_t>(count) * sizeof(uint32_t));
  mask_words_uploaded_ += count;
}

void TokenChoice::enqueue_admission(const SlotAdmission& admission, Lists& from, Stream& stream) const {
  const SamplingParams& p = admission.sampling;
  const auto upload = [&](auto* to, auto* staging, int64_t stride, int64_t count) {
    const int64_t at = admission.slot.value * stride;
    if (count > 0) stream.copy(to + at, staging + at, static_cast<size_t>(count) * sizeof(*to));
  };
  std::copy(p.logit_bias.begin(), p.logit_bias.end(), from.biases + int64_t{admission.slot.value} * kMaxLogitBias);
  upload(lists_.biases, from.biases, kMaxLogitBias, static_cast<int64_t>(p.logit_bias.size()));
  const int64_t words = int64_t{admission.slot.value} * mask_words_;
  if (!p.allowed_ids.empty()) {
    write_mask(p.allowed_ids, from.allowed + words, mask_words_);
    upload(lists_.allowed, from.allowed, mask_words_, mask_words_);
  }
  if (!slot_sampling(p).penalizes()) return;
  write_mask(p.prompt_ids, from.prompt_ids + words, mask_words_);
  upload(lists_.prompt_ids, from.prompt_ids, mask_words_, mask_words_);
  TokenId* generated = from.generated + int64_t{admission.slot.value} * shape_.max_model_len;
  for (const TokenCount& count : p.output_counts) generated = std::fill_n(generated, count.count, count.id);
  upload(lists_.generated, from.generated, shape_.max_model_len, num_generated(p));
}

void TokenChoice::record_admissions(Stream& stream) const {
  stream.launch([args = BeginTokenCountsArgs{.sampling = rows_.sampling(),
                                             .capacity = shape_.slot_capacity,
                                             .generated = lists_.generated,
                                             .generated_stride = shape_.max_model_len,
                                             .token_counts = token_counts_.as<int32_t>(),
                                             .counts_stride = shard_.size(),
                                             .first_id = static_cast<int32_t>(shard_.begin),
                                             .width = static_cast<int32_t>(shard_.size())}](const Launcher& on) {
    begin_token_counts(args, on);
  });
}

void TokenChoice::record_counts(Stream& stream, Operation operation, const int64_t* records) const {
  stream.launch([args = CountTokensArgs{.sampling = rows_.sampling(),
                                        .num_rows = rows_.num_sampling_rows(),
                                        .max_rows = sampling_capacity(shape_, operation),
                                        .row_slots = rows_.sampling_slots(),
                                        .row_epochs = rows_.sampling_epochs(),
                                        .row_halves = rows_.sampling_halves(),
                                        .records = records,
                                        .capacity = shape_.slot_capacity,
                                        .token_capacity = shape_.token_capacity,
                                        .token_counts = token_counts_.as<int32_t>(),
                                        .counts_stride = shard_.size(),
                                        .first_id = static_cast<int32_t>(shard_.begin),
                                        .width = static_cast<int32_t>(shard_.size())}](const Launcher& on) {
    count_tokens(args, on);
  });
}

}  // namespace helios
