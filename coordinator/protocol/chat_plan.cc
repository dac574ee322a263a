#include "coordinator/protocol/chat_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

// Rows 7 and 8.
Status check_top_logprobs(const ChatRequest& request) {
  if (request.logprobs || !request.top_logprobs || *request.top_logprobs == 0) return Ok{};
  return invalid_argument("top_logprobs", "top_logprobs needs \"logprobs\": true");
}

// Row 12.
Status check_tools(const ChatRequest& request) {
  using Kind = ToolChoice::Kind;
  if (!request.replaced_field.empty()) {
    return invalid_argument(request.replaced_field,
                            fmt::format("{} is not supported; send tools and tool_choice", request.replaced_field));
  }
  if (request.has_tools && request.tool_names.empty()) return invalid_argument("tools", "tools is an empty list");
  if (!request.tool_choice) {
    if (!request.has_tools) return Ok{};
    return not_implemented("tools",
                           "tools: reading tool calls is not built in this version; send tool_choice \"none\"");
  }
  const ToolChoice& choice = *request.tool_choice;
  if (choice.kind == Kind::kNone) return Ok{};
  if (!request.has_tools) return invalid_argument("tool_choice", "tool_choice needs tools");
  const auto& names = request.tool_names;
  if (choice.kind == Kind::kNamed && std::find(names.begin(), names.end(), choice.name) == names.end()) {
    return invalid_argument("tool_choice", "tool_choice names a function that is not in tools");
  }
  return not_implemented("tool_choice", "tool_choice: only none is built in this version");
}

}  // namespace

Result<PlannedPrompt> plan_rendered(const std::string& text, const GenerationRequest& request,
                                    const ValidationContext& context, const EndpointRules& rules) {
  const int64_t limit = context_limit(context.capabilities);
  const Result<std::optional<int64_t>> kept = prompt_room(request, limit, rules);
  if (!kept) return kept.error();
  Result<std::vector<TokenId>> ids = context.tokenizer.encode(text, request.add_special_tokens);
  if (!ids) return invalid_argument(rules.prompt_field, fmt::format("{}: {}", rules.prompt_field, ids.error().message));
  PlannedPrompt prompt{.ids = std::move(*ids)};
  if (*kept) truncate_prompt(prompt.ids, **kept, cuts_left(request));
  if (prompt.ids.empty()) {
    return invalid_argument(rules.prompt_field, fmt::format("{}: the prompt has no tokens", rules.prompt_field));
  }
  HELIOS_RETURN_IF_ERROR(check_prompt_ids(prompt.ids, context.capabilities.vocab_size, rules.prompt_field));
  return prompt;
}

Result<GenerationPlan> plan_chat(ChatRequest request, const ValidationContext& context,
                                 const ChatTemplates& templates) {
  const EndpointRules rules{.prompt_field = "messages",
                            .alternatives_field = "top_logprobs",
                            .ask_logprobs = "\"logprobs\": true",
                            .max_tokens_field = request.max_tokens_field};
  HELIOS_RETURN_IF_ERROR(check_before_prompt(request, context, rules));
  const Result<std::string> text = render_conversation(request.conversation, templates);
  if (!text) return text.error();
  HELIOS_RETURN_IF_ERROR(check_choices(1, request, context.limits));
  HELIOS_RETURN_IF_ERROR(check_top_logprobs(request));
  Result<std::shared_ptr<const CompiledGrammar>> grammar = check_after_prompt(request, context, rules);
  if (!grammar) return grammar.error();
  HELIOS_RETURN_IF_ERROR(check_tools(request));
  HELIOS_RETURN_IF_ERROR(check_token_ids(request, context.capabilities.vocab_size));
  Result<PlannedPrompt> prompt = plan_rendered(*text, request, context, rules);
  if (!prompt) return prompt.error();
  if (request.echo) prompt->echo_text = std::move(request.conversation.final_assistant_text);
  if (request.return_prompt_text) prompt->text = *text;
  std::vector<PlannedPrompt> prompts;
  prompts.push_back(std::move(*prompt));
  return make_plan(request, std::move(prompts), std::move(*grammar), context, rules);
}

}  // namespace helios
