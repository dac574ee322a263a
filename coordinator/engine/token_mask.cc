#include "coordinator/engine/token_mask.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
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

Error nothing_left(std::string message, std::string param) {
  return {Errc::kInvalidArgument, std::move(message), std::move(param)};
}

}  // namespace

TokenMask::TokenMask(Rules rules, SamplingParams* sampling)
    : rules_(std::move(rules)),
      bad_words_(rules_.bad_words),
      allowed_ids_(std::exchange(sampling->allowed_ids, {})),
      stop_ids_(sampling->stop_ids),
      eos_id_(sampling->eos_id),
      min_tokens_(sampling->min_tokens),
      recent_(bad_words_.context()) {
  sampling->masks = true;
  if (rules_.grammar) matcher_.emplace(rules_.grammar);
  if (!rules_.thinking) return;
  thinks_ = rules_.thinking->in_reasoning;
  may_open_ = !thinks_ && rules_.thinking->may_open;
}

Result<std::vector<uint32_t>> TokenMask::next(int32_t generated, int64_t vocab_size) {
  const int64_t of_grammar = rules_.grammar ? rules_.grammar->vocabulary().vocab_size() : 0;
  std::vector<uint32_t> words(words_for(std::max(vocab_size, of_grammar)));
  if (forces_close()) {
    allow(rules_.thinking->close, words);
    cut_to(vocab_size, words);
  } else {
    if (Status filled = fill(generated, words); !filled) return filled.error();
    cut_to(vocab_size, words);
    if (Status kept = keep_allowed(generated, words); !kept) return kept.error();
  }
  if (Status status = check_min_tokens(generated, words); !status) return status.error();
  return words;
}

Status TokenMask::fill(int32_t generated, std::vector<uint32_t>& words) {
  if (!matcher_ || thinks_) {
    std::ranges::fill(words, ~0u);
    if (!matcher_) return Ok{};
    // The text may not end before what it has to be has begun; but a client may stop it where the reasoning ends.
    forbid(eos_id_, words);
    for (const TokenId id : rules_.grammar->vocabulary().stop_ids()) forbid(id, words);
    for (const TokenId id : stop_ids_) forbid(id, words);
    allow(rules_.thinking->close, words);
    return Ok{};
  }
  if (Status filled = matcher_->fill_mask(words); !filled)
    return nothing_left(fmt::format("the text cannot go on after {} tokens: {}", generated, filled.error().message),
                        "");
  if (matcher_->is_complete()) {
    for (const TokenId id : stop_ids_) allow(id, words);
  }
  if (may_open_) allow(rules_.thinking->open, words);
  return Ok{};
}

Status TokenMask::keep_allowed(int32_t generated, std::vector<uint32_t>& words) const {
  const char* const what = matcher_ && !thinks_ ? "the grammar allows" : "there is";
  if (!allowed_ids_.empty()) {
    std::vector<uint32_t> listed(words.size());
    for (const TokenId id : allowed_ids_) allow(id, listed);
    std::transform(words.begin(), words.end(), listed.begin(), words.begin(), std::bit_and<>());
  }
  if (allows_nothing(words))
    return nothing_left(fmt::format("after {} tokens {} no token that {}", generated, what,
                                    allowed_ids_.empty() ? "the model has" : "allowed_token_ids lists"),
                        allowed_ids_.empty() ? "" : "allowed_token_ids");
  if (rules_.bad_words.empty()) return Ok{};
  bad_words_.forbid(recent_.view(), words);
  if (!allows_nothing(words)) return Ok{};
  return nothing_left(fmt::format("bad_words: after {} tokens {} no token that ends none of them", generated, what),
                      "bad_words");
}

/// Before min_tokens a rank samples neither EOS nor a stop id.
Status TokenMask::check_min_tokens(int32_t generated, const std::vector<uint32_t>& words) const {
  if (generated >= min_tokens_) return Ok{};
  std::vector<uint32_t> left = words;
  forbid(eos_id_, left);
  for (const TokenId id : stop_ids_) forbid(id, left);
  if (!allows_nothing(left)) return Ok{};
  return nothing_left(
      fmt::format("min_tokens={}: after {} tokens only the text's end is allowed", min_tokens_, generated),
      "min_tokens");
}

Status TokenMask::accept(TokenEvent& event) {
  const auto refuse = [&](std::string_view why) {
    return Error{Errc::kInternal, fmt::format("token {} came, {}", event.token, why)};
  };
  if (forces_close()) {
    const TokenId close = rules_.thinking->close;
    if (event.token != close) return refuse(fmt::format("where the thinking budget allows only {}", close));
    event.forced = true;
    event.logprobs.reset();
  } else if (bad_words_.ends_with(recent_.view(), event.token)) {
    return refuse("which ends one of the request's bad words");
  }
  recent_.push(event.token);
  if (event.finish == FinishCode::kStopId) return Ok{};  // it ends the text whatever it is in the grammar
  if (follow_reasoning(event.token) || !matcher_) return Ok{};
  if (!matcher_->accept(event.token)) return refuse("which the request's grammar does not allow");
  matcher_->settle();
  return Ok{};
}

/// False when the token is no part of reasoning. Before a grammar's text it stands once, elsewhere as often as the
/// model opens it.
bool TokenMask::follow_reasoning(TokenId token) {
  if (!rules_.thinking) return false;
  const bool opens = token == rules_.thinking->open && (!matcher_ || may_open_);
  may_open_ = false;
  if (!thinks_ && !opens) return false;
  if (opens) {
    thinks_ = true;
  } else if (token == rules_.thinking->close) {
    thinks_ = false;
  } else {
    ++used_;
  }
  return true;
}

}  // namespace helios
