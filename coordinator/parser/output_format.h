// How a family of models marks its reasoning and its tool calls: names for flags, and what a model's own template says.
//
// Thread: any.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace helios {

enum class ReasoningFormat {
  kNone,
  kThinkTags,  // <think>..</think>: Qwen3, QwQ, DeepSeek R1
};

enum class ToolFormat {
  kNone,
  kHermes,      // <tool_call>{"name": .., "arguments": {..}}</tool_call>: Hermes, Qwen
  kLlama3Json,  // {"name": .., "parameters": {..}}, or behind <|python_tag|>; several separated by ;
  kMistral,     // [TOOL_CALLS][{"name": .., "arguments": {..}}, ..], or each call [TOOL_CALLS]name[ARGS]{..}
};

struct OutputFormat {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  ToolFormat tools = ToolFormat::kNone;
  friend bool operator==(const OutputFormat&, const OutputFormat&) = default;
};

/// What the source of a model's chat template says; kNone where it says nothing, or something else.
OutputFormat format_of_template(std::string_view chat_template);

/// `name`: "auto" (what `of_model` says), "none", or a format's name: "qwen3" and "deepseek_r1"; "hermes",
/// "llama3_json", "mistral". Errors: kInvalidArgument, listing the names.
Result<ReasoningFormat> reasoning_format(std::string_view name, const OutputFormat& of_model);
Result<ToolFormat> tool_format(std::string_view name, const OutputFormat& of_model);

/// The delimiters. Where a vocabulary has one as a special token, it must stay in the text that is parsed.
std::vector<std::string_view> delimiters(const OutputFormat& format);

/// Whether a generation after this text starts inside reasoning: `prompt` ends with an opening delimiter, whitespace
/// aside, or `continued`, the text of an assistant's message that it goes on with, has one and no closing one behind
/// it.
bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt, std::string_view continued = {});

/// Whether an answer that begins behind `prompt` may begin with reasoning: not where the prompt ends inside it, nor
/// where it has closed it already, as templates do for models that are told not to think.
bool may_reason(ReasoningFormat format, std::string_view prompt);

}  // namespace helios
