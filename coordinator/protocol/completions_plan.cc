#include "coordinator/protocol/completions_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "coordinator/output/prompt_output.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

Status check_prompt_form(const CompletionsRequest& request, const ProtocolLimits& limits) {
  const PromptField& prompt = request.prompt;
  if (!prompt.present) return invalid_argument("prompt", "prompt is required");
  if (prompt.size() == 0) return invalid_argument("prompt", "prompt is an empty list");
  if (static_cast<int64_t>(prompt.size()) > limits.max_prompts) {
    return invalid_argument(
        "prompt", fmt::format("at most {} prompts in one request, got {}", limits.max_prompts, prompt.size()));
  }
  const auto is_empty = [](const auto& one) { return one.empty(); };
  if (std::any_of(prompt.texts.begin(), prompt.texts.end(), is_empty) ||
      std::any_of(prompt.ids.begin(), prompt.ids.end(), is_empty)) {
    return invalid_argument("prompt", "a prompt is empty");
  }
  return check_choices(prompt.size(), request, limits);
}

bool scores_echo(const CompletionsRequest& request) { return request.echo && request.logprobs; }

/// A text's tokens, cut to `kept`. What is echoed is then the text of what is left.
Result<PlannedPrompt> plan_text(std::string text, const CompletionsRequest& request, const Tokenizer& tokenizer,
                                std::optional<int64_t> kept) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, request.add_special_tokens);
  if (!ids) return invalid_argument("prompt", "prompt: " + ids.error().message);
  PlannedPrompt prompt{.ids = std::move(*ids)};
  const bool fits = !kept || prompt.ids.size() <= static_cast<size_t>(*kept);
  if (fits && !scores_echo(request)) {
    if (request.echo) prompt.echo_text = std::move(text);
    return prompt;
  }
  Result<std::vector<TokenId>> body = tokenizer.encode(text, false);
  if (!body) return invalid_argument("prompt", "prompt: " + body.error().message);
  const auto found = std::search(prompt.ids.begin(), prompt.ids.end(), body->begin(), body->end());
  const auto front = found == prompt.ids.end() ? 0 : static_cast<size_t>(found - prompt.ids.begin());
  const size_t back = prompt.ids.size() - body->size() - front;
  if (fits) {
    prompt.echo_text = std::move(text);
    prompt.text_offsets = prompt_text_offsets(tokenizer, prompt.ids, prompt.echo_text, front, back);
    return prompt;
  }
  const bool cut_left = cuts_left(request);
  truncate_prompt(prompt.ids, *kept, cut_left, front, back);
  if (request.echo) {
    truncate_prompt(*body, std::max<int64_t>(*kept - static_cast<int64_t>(front + back), 0), cut_left);
    prompt.echo_text = tokenizer.decode(*body, false);
  }
  if (scores_echo(request)) {
    prompt.text_offsets = prompt_text_offsets(tokenizer, prompt.ids, prompt.echo_text, front, back);
  }
  return prompt;
}

/// A bare prompt ends inside reasoning when the last of its delimiters opens some.
ReasoningStart reasoning_start(const std::vector<TokenId>& prompt, const ThinkTokens& tokens) {
  const auto last =
      std::find_if(prompt.rbegin(), prompt.rend(), [&](TokenId id) { return id == tokens.open || id == tokens.close; });
  return last != prompt.rend() && *last == tokens.open ? ReasoningStart::kInside : ReasoningStart::kNone;
}

Result<std::vector<PlannedPrompt>> tokenize_prompts(CompletionsRequest& request, const ValidationContext& context,
                                                    int64_t limit, const EndpointRules& rules) {
  const Result<std::optional<int64_t>> kept = prompt_room(request, limit, rules);
  if (!kept) return kept.error();
  std::vector<PlannedPrompt> prompts;
  prompts.reserve(request.prompt.size());
  for (std::string& text : request.prompt.texts) {
    Result<PlannedPrompt> prompt = plan_text(std::move(text), request, context.tokenizer, *kept);
    if (!prompt) return prompt.error();
    if (prompt->ids.empty()) return invalid_argument("prompt", "a prompt has no tokens");
    HELIOS_RETURN_IF_ERROR(check_prompt_ids(prompt->ids, context.capabilities.vocab_size, "prompt"));
    prompts.push_back(std::move(*prompt));
  }
  for (const std::vector<int64_t>& ids : request.prompt.ids) {
    PlannedPrompt prompt;
    prompt.ids.assign(ids.begin(), ids.end());
    if (*kept) truncate_prompt(prompt.ids, **kept, cuts_left(request));
    const auto size = static_cast<int64_t>(prompt.ids.size());
    if (size > limit) return too_long(size, request, limit, rules);
    if (request.echo) prompt.echo_text = context.tokenizer.decode(prompt.ids, false);
    if (scores_echo(request)) {
      prompt.text_offsets = prompt_text_offsets(context.tokenizer, prompt.ids, prompt.echo_text);
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Result<GenerationPlan> plan_completions(CompletionsRequest request, const ValidationContext& context) {
  const EndpointRules rules{.default_max_tokens = kDefaultMaxTokens,
                            .zero_budget = request.echo || request.prompt_logprobs.has_value(),
                            .echo_is_prompt = true};
  HELIOS_RETURN_IF_ERROR(check_before_prompt(request, context, rules));
  HELIOS_RETURN_IF_ERROR(check_prompt_form(request, context.limits));
  Result<std::shared_ptr<const CompiledGrammar>> grammar = check_after_prompt(request, context, rules);
  if (!grammar) return grammar.error();
  for (const std::vector<int64_t>& ids : request.prompt.ids) {
    HELIOS_RETURN_IF_ERROR(check_vocabulary("prompt", ids, context.capabilities.vocab_size));
  }
  HELIOS_RETURN_IF_ERROR(check_token_ids(request, context.capabilities.vocab_size));
  Result<std::vector<PlannedPrompt>> prompts =
      tokenize_prompts(request, context, context_limit(context.capabilities), rules);
  if (!prompts) return prompts.error();
  if (const std::optional<ThinkTokens> tokens = think_tokens(context)) {
    for (PlannedPrompt& prompt : *prompts) prompt.reasoning = reasoning_start(prompt.ids, *tokens);
  }
  return make_plan(request, std::move(*prompts), std::move(*grammar), context, rules);
}

}  // namespace helios
