// See output_format.h.
#include "coordinator/parser/output_format.h"

#include <string>

#include "coordinator/parser/reasoning_parser.h"

namespace helios {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // npos + 1 is 0
}

Error unknown_format(std::string_view what, std::string_view name, std::string_view known) {
  return {Errc::kInvalidArgument,
          "unknown " + std::string(what) + " parser '" + std::string(name) + "'; known are " + std::string(known), ""};
}

}  // namespace

OutputFormat format_of_template(std::string_view chat_template) {
  OutputFormat format;
  if (has(chat_template, kThinkClose)) format.reasoning = ReasoningFormat::kThinkTags;
  // The same delimiter around calls that are not JSON (Qwen3 Coder's <function=..>, GLM's <arg_key>) is another format.
  const bool other = has(chat_template, "<function=") || has(chat_template, "<arg_key>");
  if (has(chat_template, "[TOOL_CALLS]")) {
    format.tools = ToolFormat::kMistral;
  } else if (has(chat_template, "<tool_call>") && !other) {
    format.tools = ToolFormat::kHermes;
  } else if (has(chat_template, "<|python_tag|>") ||
             has(chat_template, "\"parameters\": dictionary of argument name")) {
    format.tools = ToolFormat::kLlama3Json;
  }
  return format;
}

Result<ReasoningFormat> reasoning_format(std::string_view name, const OutputFormat& of_model) {
  if (name == "auto") return of_model.reasoning;
  if (name == "none") return ReasoningFormat::kNone;
  if (name == "qwen3" || name == "deepseek_r1") return ReasoningFormat::kThinkTags;
  return unknown_format("reasoning", name, "auto, none, qwen3, deepseek_r1");
}

Result<ToolFormat> tool_format(std::string_view name, const OutputFormat& of_model) {
  if (name == "auto") return of_model.tools;
  if (name == "none") return ToolFormat::kNone;
  if (name == "hermes") return ToolFormat::kHermes;
  if (name == "llama3_json") return ToolFormat::kLlama3Json;
  if (name == "mistral") return ToolFormat::kMistral;
  return unknown_format("tool", name, "auto, none, hermes, llama3_json, mistral");
}

std::vector<std::string_view> delimiters(const OutputFormat& format) {
  std::vector<std::string_view> all;
  if (format.reasoning == ReasoningFormat::kThinkTags) all = {kThinkOpen, kThinkClose};
  if (format.tools == ToolFormat::kHermes) all.insert(all.end(), {"<tool_call>", "</tool_call>"});
  if (format.tools == ToolFormat::kLlama3Json) all.push_back("<|python_tag|>");
  if (format.tools == ToolFormat::kMistral) all.insert(all.end(), {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"});
  return all;
}

bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt, std::string_view continued) {
  if (format == ReasoningFormat::kNone) return false;
  if (without_trailing_space(prompt).ends_with(kThinkOpen)) return true;
  const size_t open = continued.rfind(kThinkOpen);
  return open != std::string_view::npos && continued.find(kThinkClose, open) == std::string_view::npos;
}

bool may_reason(ReasoningFormat format, std::string_view prompt) {
  const std::string_view text = without_trailing_space(prompt);
  return format != ReasoningFormat::kNone && !text.ends_with(kThinkOpen) && !text.ends_with(kThinkClose);
}

}  // namespace helios
