#include "coordinator/protocol/chat_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/structured_output.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

// Rows 7 and 8.
Status check_top_logprobs(const ChatRequest& request) {
  if (request.logprobs || !request.top_logprobs || *request.top_logprobs == 0) return Ok{};
  return invalid_argument("top_logprobs", "top_logprobs needs \"logprobs\": true");
}

// Row 12.

/// What the request's tools ask for; auto where there are tools and no word about them.
Result<ToolChoice> tool_choice(const ChatRequest& request) {
  using Kind = ToolChoice::Kind;
  if (!request.replaced_field.empty()) {
    return invalid_argument(request.replaced_field,
                            fmt::format("{} is not supported; send tools and tool_choice", request.replaced_field));
  }
  if (request.has_tools && request.tools.empty()) return invalid_argument("tools", "tools is an empty list");
  ToolChoice choice = request.tool_choice.value_or(ToolChoice{request.has_tools ? Kind::kAuto : Kind::kNone, ""});
  if (choice.kind == Kind::kNone) return choice;
  if (!request.has_tools) return invalid_argument("tool_choice", "tool_choice needs tools");
  const auto is_named = [&](const ToolSignature& tool) { return tool.name == choice.name; };
  if (choice.kind == Kind::kNamed && std::none_of(request.tools.begin(), request.tools.end(), is_named)) {
    return invalid_argument("tool_choice", "tool_choice names a function that is not in tools");
  }
  return choice;
}

/// How the reply will be told apart. `constrained`: the client says what the answer has to be; then it is content.
Result<OutputParsing> plan_parsing(const ChatRequest& request, const ToolChoice& choice, bool constrained,
                                   ReasoningStart start, const ValidationContext& context) {
  using Kind = ToolChoice::Kind;
  const OutputFormat& format = context.output_format;
  const bool forced = choice.forces_calls();
  if (choice.kind != Kind::kNone && format.tools == ToolFormat::kNone) {
    return invalid_argument(request.tool_choice ? "tool_choice" : "tools",
                            "this server cannot read tool calls of this model; start it with --tool-call-parser NAME, "
                            "or send \"tool_choice\": \"none\"");
  }
  if (forced && constrained) {
    return invalid_argument("tool_choice", "tool_choice and a structured output exclude each other");
  }
  OutputParsing parsing{.include_reasoning = request.include_reasoning,
                        .parallel_tool_calls = request.parallel_tool_calls,
                        .calls_finish = choice.kind != Kind::kNamed,
                        .count_reasoning = format.reasoning != ReasoningFormat::kNone};
  parsing.in_reasoning = start == ReasoningStart::kInside;
  if (constrained || forced)
    HELIOS_RETURN_IF_ERROR(check_constrained_start(start, forced ? "tool_choice" : "response_format", context));
  // What has to be an answer from its first byte on is not searched for reasoning.
  if (start != ReasoningStart::kNone || !(constrained || forced)) parsing.format.reasoning = format.reasoning;
  if (choice.kind != Kind::kNone) parsing.format.tools = format.tools;
  return parsing;
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
  const Result<ToolChoice> choice = tool_choice(request);
  if (!choice) return choice.error();
  const Conversation& conversation = request.conversation;
  const ReasoningStart start = reasoning_start(
      *text, conversation.continue_final_message ? &conversation.final_assistant_text : nullptr, context);
  Result<OutputParsing> parsing = plan_parsing(request, *choice, *grammar != nullptr, start, context);
  if (!parsing) return parsing.error();
  const OutputFormat& format = context.output_format;
  if (auto calls = forced_calls(*choice, request.tools, request.parallel_tool_calls, format.tools)) {
    grammar = compile_constraint(*calls, context);
    if (!grammar) return grammar.error();
  } else if (*grammar && choice->kind == ToolChoice::Kind::kAuto) {
    const StructuredOutput& constrained = request.structured.constraints.front();
    grammar = compile_with_calls(constrained, request.tools, request.parallel_tool_calls, context);
    if (!grammar) return grammar.error();
  }
  HELIOS_RETURN_IF_ERROR(check_token_ids(request, context.capabilities.vocab_size));
  Result<PlannedPrompt> prompt = plan_rendered(*text, request, context, rules);
  if (!prompt) return prompt.error();
  prompt->reasoning = start;
  if (request.echo) prompt->echo_text = std::move(request.conversation.final_assistant_text);
  if (request.return_prompt_text) prompt->text = *text;
  std::vector<PlannedPrompt> prompts;
  prompts.push_back(std::move(*prompt));
  if (parsing->hides_reasoning()) {  // entries would tell it (wire formats, 2.4)
    request.logprobs.reset();
    request.logprob_token_ids.reset();
  }
  Result<GenerationPlan> plan = make_plan(request, std::move(prompts), std::move(*grammar), context, rules);
  if (!plan) return plan;
  set_parsing(*parsing, context.tokenizer, &*plan);
  return plan;
}

}  // namespace helios
