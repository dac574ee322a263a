// The body of POST /v1/completions as the client wrote it: types checked, nothing else. What it may ask is
// validation's.
//
// Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/protocol/generation_request.h"

namespace helios {

/// One of the four prompt forms; texts and ids are never both filled.
struct PromptField {
  bool present = false;
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  size_t size() const { return texts.size() + ids.size(); }
};

struct CompletionsRequest : GenerationRequest {
  PromptField prompt;
};

/// Errors: kInvalidArgument with the field's path. Source: wire formats, 3.1 and rows 1, 2 of section 10.
Result<CompletionsRequest> parse_completions_request(std::string_view body);

}  // namespace helios
