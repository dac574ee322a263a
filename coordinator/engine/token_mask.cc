#include "coordinator/engine/token_mask.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace helios {
namespace {

// Ids outside the words change nothing: a model's end may be an id that it has no row for.

void allow(TokenId id, std::vector<uint32_t>& words) {
  const size_t word = static_cast<size_t>(id) / 32;
  if (id >= 0 && word < words.size()) words[word] |= 1u << (id % 32);
}

void forbid(TokenId id, std::vector<uint32_t>& words) {
  const size_t word = static_cast<size_t>(id) / 32;
  if (id >= 0 && word < words.size()) words[word] &= ~(1u << (id % 32));
}

bool allows_nothing(const std::vector<uint32_t>& words) {
  return std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; });
}

size_t words_for(int64_t vocab_size) { return static_cast<size_t>((vocab_size + 31) / 32); }

/// A tokenizer may know ids that the model has no row for, and a model may have rows that are no text.
void cut_to(int64_t vocab_size, std::vector<uint32_t>& words) {
  words.resize(words_for(vocab_size));
  if (vocab_size % 32 != 0) words.back() &= (1u << (vocab_size % 32)) - 1;
}

}  // namespace

TokenMask::TokenMask(std::shared_ptr<const CompiledGrammar> grammar, SamplingParams* sampling)
    : matcher_(grammar),
      grammar_vocab_size_(grammar->vocabulary().vocab_size()),
      allowed_ids_(std::exchange(sampling->allowed_ids, {})),
      stop_ids_(sampling->stop_ids),
      eos_id_(sampling->eos_id),
      min_tokens_(sampling->min_tokens) {
  sampling->masks = true;
}

Result<std::vector<uint32_t>> TokenMask::next(int32_t generated, int64_t vocab_size) {
  std::vector<uint32_t> words(words_for(std::max(vocab_size, grammar_vocab_size_)));
  if (Status filled = matcher_.fill_mask(words); !filled)
    return Error{Errc::kInvalidArgument,
                 fmt::format("the text cannot go on after {} tokens: {}", generated, filled.error().message)};
  cut_to(vocab_size, words);
  if (matcher_.is_complete()) {
    for (const TokenId id : stop_ids_) allow(id, words);
  }
  if (!allowed_ids_.empty()) {
    std::vector<uint32_t> listed(words.size());
    for (const TokenId id : allowed_ids_) allow(id, listed);
    std::transform(words.begin(), words.end(), listed.begin(), words.begin(), std::bit_and<>());
  }
  if (allows_nothing(words))
    return Error{Errc::kInvalidArgument,
                 fmt::format("after {} tokens the grammar allows no token that {}", generated,
                             allowed_ids_.empty() ? "the model has" : "allowed_token_ids lists"),
                 allowed_ids_.empty() ? "" : "allowed_token_ids"};
  if (generated >= min_tokens_) return words;
  std::vector<uint32_t> left = words;
  forbid(eos_id_, left);
  for (const TokenId id : stop_ids_) forbid(id, left);
  if (!allows_nothing(left)) return words;
  return Error{
      Errc::kInvalidArgument,
      fmt::format("min_tokens={}: after {} tokens the grammar allows only the text's end", min_tokens_, generated),
      "min_tokens"};
}

Status TokenMask::accept(TokenEvent& event) {
  if (event.finish == FinishCode::kStopId) return Ok{};  // it ends the text whatever it is in the grammar
  if (matcher_.accept(event.token)) {
    matcher_.settle();
    return Ok{};
  }
  return Error{Errc::kInternal, fmt::format("token {} came, which the request's grammar does not allow", event.token)};
}

}  // namespace helios
