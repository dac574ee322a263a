// The body of POST /v1/responses as the client wrote it: types checked, its input turned into a conversation.
//
// Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/protocol/chat_request.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_request.h"
#include "coordinator/protocol/structured_output.h"

namespace helios {

/// What the response object repeats of its request; each is JSON.
struct ResponsesEcho {
  std::string instructions = "null", metadata = "null", reasoning = "null", user = "null", max_tool_calls = "null";
  std::string max_output_tokens = "null";
  std::string tools = "[]", tool_choice = R"("auto")", text = R"({"format":{"type":"text"}})";
  std::string truncation = R"("disabled")";
  std::string temperature = "1.0", top_p = "1.0";  // the effective ones, once planned
  int64_t top_logprobs = 0;
  bool parallel_tool_calls = true;
};

/// `logprobs` of the base holds top_logprobs when the include asks for entries; `max_tokens` is max_output_tokens.
struct ResponsesRequest : GenerationRequest {
  ResponsesRequest() { add_special_tokens = false; }

  Conversation conversation;
  std::optional<int64_t> top_logprobs;  // as written
  std::vector<std::string> include;
  ToolChoice tool_choice{ToolChoice::Kind::kAuto, ""};
  std::vector<ToolSignature> tools;
  bool parallel_tool_calls = true;
  std::optional<std::string> previous_response_id;
  std::optional<Error> refused;  // the first field that is known and cannot be had; told in its turn
  ResponsesEcho echoed;
};

/// Errors: kInvalidArgument with the field's path. Source: wire formats, 5.1 and rows 1, 2 of section 10.
Result<ResponsesRequest> parse_responses_request(std::string_view body);

}  // namespace helios
