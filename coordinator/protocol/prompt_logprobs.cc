#include "coordinator/protocol/prompt_logprobs.h"

#include <algorithm>

#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/logprob_json.h"

namespace helios {

Status PromptLogprobs::append_token(TokenId id, float logprob, int64_t rank, std::string_view text) {
  elements_ += '"' + std::to_string(id) + R"(":{"logprob":)";
  if (Status status = append_logprob(elements_, logprob); !status) return status;
  elements_ += R"(,"rank":)" + std::to_string(rank) + R"(,"decoded_token":)";
  append_json_string(elements_, text);
  elements_ += '}';
  return Ok{};
}

Status PromptLogprobs::append(std::span<const OutputEntry> prompt) {
  for (const OutputEntry& entry : prompt) {
    if (!elements_.empty()) elements_ += ',';
    if (!entry.has_value) {
      elements_ += "null";
      continue;
    }
    elements_ += '{';
    if (Status status = append_token(entry.id, entry.logprob, entry.rank, entry.text); !status) return status;
    for (size_t i = 0; i < std::min(num_alternatives_, entry.alternatives.size()); ++i) {
      const OutputAlternative& other = entry.alternatives[i];
      if (other.id == entry.id) continue;
      elements_ += ',';
      const auto place = static_cast<int64_t>(i) + 1;
      if (Status status = append_token(other.id, other.logprob, place, other.text); !status) return status;
    }
    elements_ += '}';
  }
  return Ok{};
}

void write_prompt_logprobs(JsonWriter& json, const std::optional<PromptLogprobs>& list) {
  json.key("prompt_logprobs");
  if (!list) {
    json.null();
    return;
  }
  std::string elements;
  list->append_json(elements);
  json.raw(elements);
}

}  // namespace helios
