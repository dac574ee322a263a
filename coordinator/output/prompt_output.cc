#include "coordinator/output/prompt_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"
#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {

std::vector<int64_t> prompt_text_offsets(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                                         std::string_view echo, size_t hidden_front, size_t hidden_back) {
  IncrementalDecoder decoder(tokenizer, false, {});
  DecodedText decoded;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool hidden = i < hidden_front || i + hidden_back >= prompt.size();
    decoder.push(prompt[i], &decoded, hidden ? IncrementalDecoder::Show::kNever : IncrementalDecoder::Show::kByKind);
    decoded.text.clear();
  }
  decoder.finish(&decoded);
  const int64_t end = count_code_points(echo);
  std::vector<int64_t> offsets;
  offsets.reserve(prompt.size());
  for (const TextStart& start : decoded.starts) offsets.push_back(std::min(start.code_points, end));
  HELIOS_CHECK(offsets.size() == prompt.size(), offsets.size(), prompt.size());
  return offsets;
}

PromptOutput::PromptOutput(const Tokenizer& tokenizer, bool tokens_as_token_ids, std::span<const TokenId> prompt,
                           std::span<const int64_t> text_offsets)
    : tokenizer_(&tokenizer),
      tokens_as_token_ids_(tokens_as_token_ids),
      prompt_(prompt),
      offsets_(text_offsets),
      context_(tokenizer, false, {}) {
  HELIOS_CHECK(offsets_.empty() || offsets_.size() == prompt_.size(), offsets_.size(), prompt_.size());
}

TokenText PromptOutput::shown_text(TokenId id) const {
  return tokens_as_token_ids_ ? fmt::format("token_id:{}", id) : context_.text(id);
}

/// The next position's token; its value is still to be filled in.
OutputEntry PromptOutput::next_entry() {
  HELIOS_CHECK(next_ < prompt_.size(), next_);
  const TokenId id = prompt_[next_];
  OutputEntry entry{.id = id, .text = shown_text(id), .bytes = TokenText::borrow(tokenizer_->token_bytes(id))};
  if (!offsets_.empty()) entry.text_offset = offsets_[next_];
  entry.has_value = false;
  return entry;
}

void PromptOutput::begin(std::vector<OutputEntry>* out) {
  if (next_ > 0) return;
  out->push_back(next_entry());
  context_.push(prompt_[next_++]);
}

void PromptOutput::push(const PromptScores& scores, std::vector<OutputEntry>* out) {
  begin(out);
  HELIOS_CHECK(scores.scores.empty() || scores.first == static_cast<int32_t>(next_), scores.first, next_);
  out->reserve(out->size() + scores.scores.size());
  for (const std::optional<PromptScore>& score : scores.scores) {
    OutputEntry entry = next_entry();
    if (score) {
      HELIOS_CHECK(score->token == entry.id, score->token, entry.id);
      entry.has_value = true;
      entry.logprob = score->logprob;
      entry.rank = score->rank;
      entry.alternatives.reserve(score->alternatives.size());
      for (const TokenLogprob& alternative : score->alternatives) {
        entry.alternatives.push_back({alternative.id, shown_text(alternative.id), alternative.logprob});
      }
    }
    out->push_back(std::move(entry));
    context_.push(prompt_[next_++]);
  }
}

}  // namespace helios
