// The tables that sampling kernels read of slots, filled from a definition of what each slot asks for, and definitions
// of every kind.
#pragma once

#include <algorithm>
#include <vector>

#include "common/base/vocab_range.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/token_transforms.h"
#include "tests/support/logit_rows.h"

namespace helios::testing {

/// One rank's. A fresh slot's lists, masks and counts hold what a former tenant might have left there.
struct SamplingTables {
  SamplingTables(int capacity, int64_t vocab_size, Range shard_range)
      : shard(shard_range),
        mask_words(static_cast<int32_t>((vocab_size + 31) / 32)),
        sampling(capacity),
        slots(capacity),
        biases(static_cast<size_t>(capacity) * kMaxLogitBias, LogitBias{0, 99.0f}),
        allowed(static_cast<size_t>(capacity) * mask_words, 0x55555555u),
        prompt_ids(static_cast<size_t>(capacity) * mask_words, 0x33333333u),
        counts(static_cast<size_t>(capacity) * shard.size(), 7) {}

  void set(int slot, SlotSampling parameters, const reference::TransformDefinition& definition) {
    std::copy(definition.logit_bias.begin(), definition.logit_bias.end(), biases.begin() + slot * kMaxLogitBias);
    parameters.num_biases = static_cast<int32_t>(definition.logit_bias.size());
    parameters.masked = !definition.allowed_ids.empty();
    parameters.repetition_penalty = static_cast<float>(definition.repetition_penalty);
    parameters.frequency_penalty = static_cast<float>(definition.frequency_penalty);
    parameters.presence_penalty = static_cast<float>(definition.presence_penalty);
    if (parameters.masked) set_mask(allowed, slot, definition.allowed_ids);
    if (parameters.penalizes()) {
      set_mask(prompt_ids, slot, definition.prompt_ids);
      std::fill_n(counts.begin() + slot * shard.size(), shard.size(), 0);
      for (const TokenCount& count : definition.output_counts) {
        if (shard.contains(count.id)) counts[slot * shard.size() + count.id - shard.begin] = count.count;
      }
    }
    sampling[slot] = parameters;
    slots[slot] = {.generated = 2, .min_tokens = definition.forbidden_ids.empty() ? 2 : 3};
    for (const TokenId id : definition.forbidden_ids) {  // the first as EOS, the others as stop ids
      if (slots[slot].eos_id < 0) {
        slots[slot].eos_id = id;
      } else {
        slots[slot].stop_ids[slots[slot].num_stop_ids++] = id;
      }
    }
    if (definition.forbidden_ids.empty()) slots[slot].eos_id = 0;  // min_tokens reached: it may end
  }

  TransformTables view() const {
    return {.sampling = sampling.data(),
            .slots = slots.data(),
            .biases = biases.data(),
            .allowed = allowed.data(),
            .prompt_ids = prompt_ids.data(),
            .token_counts = counts.data(),
            .counts_stride = shard.size(),
            .mask_words = mask_words};
  }

  const Range shard;
  const int32_t mask_words;
  std::vector<SlotSampling> sampling;
  std::vector<SlotState> slots;
  std::vector<LogitBias> biases;
  std::vector<uint32_t> allowed, prompt_ids;
  std::vector<int32_t> counts;

 private:
  void set_mask(std::vector<uint32_t>& words, int slot, const std::vector<TokenId>& ids) {
    std::fill_n(words.begin() + int64_t{slot} * mask_words, mask_words, 0u);
    for (const TokenId id : ids) words[int64_t{slot} * mask_words + id / 32] |= 1u << (id % 32);
  }
};

// One kind of transformation each, then all of them together.
inline std::vector<reference::TransformDefinition> transform_kinds(const std::vector<float>& row, uint64_t seed) {
  Random random(seed);
  const auto vocab = static_cast<TokenId>(row.size());
  const auto some_ids = [&](int count) {
    std::vector<TokenId> ids;  // the largest logits among them, where it matters
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random.below(vocab)));
    for (TokenId id = 0; id < vocab; ++id) {
      if (row[id] > 6.0f && random.below(2)) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  };
  std::vector<reference::TransformDefinition> kinds(8);
  for (const TokenId id : some_ids(9)) {
    kinds[0].logit_bias.push_back({id, static_cast<float>(8.0 * random.uniform() - 4.0)});
  }
  kinds[1].allowed_ids = some_ids(static_cast<int>(vocab / 3));
  kinds[2].forbidden_ids = some_ids(5);
  if (kinds[2].forbidden_ids.size() > kMaxStopIds) kinds[2].forbidden_ids.resize(kMaxStopIds);
  kinds[3].repetition_penalty = 1.7;
  kinds[3].prompt_ids = some_ids(static_cast<int>(vocab / 4));
  kinds[4].repetition_penalty = 0.6;
  kinds[5].frequency_penalty = 0.9;
  kinds[6].presence_penalty = -1.5;
  for (const int kind : {3, 4, 5, 6}) {
    for (const TokenId id : some_ids(20))
      kinds[kind].output_counts.push_back({id, 1 + static_cast<int>(random.below(5))});
  }
  kinds[7] = {.logit_bias = kinds[0].logit_bias,
              .allowed_ids = kinds[1].allowed_ids,
              .forbidden_ids = kinds[2].forbidden_ids,
              .repetition_penalty = 1.3,
              .frequency_penalty = -0.4,
              .presence_penalty = 0.8,
              .prompt_ids = kinds[3].prompt_ids,
              .output_counts = kinds[5].output_counts};
  return kinds;
}

}  // namespace helios::testing
