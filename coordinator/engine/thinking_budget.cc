#include "coordinator/engine/thinking_budget.h"

#include <utility>

#include <fmt/format.h>

namespace helios {

ThinkingBudgetMask::ThinkingBudgetMask(const ThinkingBudget& budget, SamplingParams* sampling)
    : budget_(budget), allowed_ids_(std::exchange(sampling->allowed_ids, {})), thinks_(budget.in_reasoning) {
  sampling->masks = true;
}

Result<std::vector<uint32_t>> ThinkingBudgetMask::next(int32_t, int64_t vocab_size) {
  std::vector<uint32_t> words(static_cast<size_t>((vocab_size + 31) / 32));
  const auto allow = [&](TokenId id) { words[static_cast<size_t>(id) / 32] |= 1u << (id % 32); };
  if (forces()) {
    allow(budget_.close);
  } else if (!allowed_ids_.empty()) {
    for (const TokenId id : allowed_ids_) allow(id);
  } else {
    for (uint32_t& word : words) word = ~0u;
    if (vocab_size % 32 != 0) words.back() = (1u << (vocab_size % 32)) - 1;
  }
  return words;
}

Status ThinkingBudgetMask::accept(TokenEvent& event) {
  if (forces()) {
    if (event.token != budget_.close) {
      return Error{Errc::kInternal, fmt::format("token {} came where the thinking budget allows only {}", event.token,
                                                budget_.close)};
    }
    event.forced = true;
    event.logprobs.reset();
  }
  if (event.token == budget_.open) {
    thinks_ = true;
  } else if (event.token == budget_.close) {
    thinks_ = false;
  } else if (thinks_) {
    ++used_;
  }
  return Ok{};
}

}  // namespace helios
