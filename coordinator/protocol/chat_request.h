// The body of POST /v1/chat/completions as the client wrote it: types checked, nothing else.
//
// Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_request.h"
#include "coordinator/protocol/structured_output.h"

namespace helios {

/// `logprobs` of the base holds top_logprobs when "logprobs" is true; `max_tokens` the one of the two that counts.
struct ChatRequest : GenerationRequest {
  ChatRequest() { add_special_tokens = false; }

  Conversation conversation;
  std::optional<int64_t> top_logprobs;  // as written
  std::string_view max_tokens_field = "max_tokens";
  std::optional<ToolChoice> tool_choice;
  std::vector<ToolSignature> tools;
  bool has_tools = false;
  bool parallel_tool_calls = true;
  bool include_reasoning = true;
  bool return_prompt_text = false;
  std::string replaced_field;  // "functions" or "function_call": what tools took the place of
};

/// Errors: kInvalidArgument with the field's path. Source: wire formats, 4.1, 4.2 and rows 1, 2 of section 10.
Result<ChatRequest> parse_chat_request(std::string_view body);

}  // namespace helios
