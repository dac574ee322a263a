// The prompt_logprobs list of a reply: one element a prompt token, null or an object keyed by token ids.
//
// Rendered as the scores come, so that a long prompt keeps its JSON and not its entries: at most what one context of
// tokens makes. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"

namespace helios {

class JsonWriter;

class PromptLogprobs {
 public:
  /// `num_alternatives`: natural ones of every position, beside the prompt's own token.
  explicit PromptLogprobs(int32_t num_alternatives) : num_alternatives_(static_cast<size_t>(num_alternatives)) {}

  /// The actual token comes first, then the alternatives that are not that token, each with its place among all of
  /// them. Errors: kInternal when a value to be reported is NaN; the list is then of no use. Source: wire formats, 2.8.
  Status append(std::span<const OutputEntry> prompt);

  /// The whole list.
  void append_json(std::string& out) const { out += "[" + elements_ + "]"; }

 private:
  Status append_token(TokenId id, float logprob, int64_t rank, std::string_view text);

  const size_t num_alternatives_;
  std::string elements_;  // comma-separated
};

/// "prompt_logprobs": the list, or null when it was not asked for.
void write_prompt_logprobs(JsonWriter& json, const std::optional<PromptLogprobs>& list);

}  // namespace helios
