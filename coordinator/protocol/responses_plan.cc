#include "coordinator/protocol/responses_plan.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "coordinator/protocol/chat_plan.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

constexpr std::array<std::string_view, 8> kIncludes = {
    "message.output_text.logprobs",   "file_search_call.results",      "web_search_call.results",
    "web_search_call.action.sources", "message.input_image.image_url", "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",  "reasoning.encrypted_content"};

constexpr EndpointRules kRules{.prompt_field = "input",
                               .alternatives_field = "top_logprobs",
                               .ask_logprobs = "\"include\": [\"message.output_text.logprobs\"]",
                               .max_tokens_field = "max_output_tokens"};

// Rows 7, 8 and 11 in this endpoint's words.
Status check_include(const ResponsesRequest& request, const Capabilities& capabilities) {
  for (const std::string& wanted : request.include) {
    if (std::find(kIncludes.begin(), kIncludes.end(), wanted) != kIncludes.end()) continue;
    return invalid_argument("include",
                            "include has a value that is not known; for logprobs it is "
                            "\"message.output_text.logprobs\"");
  }
  const int64_t most = capabilities.max_logprobs;
  if (request.logprobs && most == 0) {  // R34
    return invalid_argument("include",
                            "include: logprobs are not available: the loaded core reports none; start it "
                            "with --max-logprobs 1 or more");
  }
  if (request.top_logprobs && (*request.top_logprobs < 0 || *request.top_logprobs > most)) {
    return invalid_argument("top_logprobs",
                            fmt::format("top_logprobs must be in [0, {}], got {}", most, *request.top_logprobs));
  }
  return Ok{};
}

bool reads_calls(const ResponsesRequest& request) {
  return !request.tools.empty() && request.tool_choice.kind != ToolChoice::Kind::kNone;
}

/// Calls that must be made are a constraint on the text. What is wrong with them, check_tools says in its turn.
void constrain_to_calls(ResponsesRequest& request, const OutputFormat& of_server) {
  auto calls = forced_calls(request.tool_choice, request.tools, request.parallel_tool_calls, of_server.tools);
  if (calls) request.structured.constraints.push_back(*std::move(calls));
}

// Row 12.

/// How the text is told apart. `constrained`: a grammar says what the answer has to be.
Result<OutputParsing> plan_parsing(const ResponsesRequest& request, bool constrained, ReasoningStart start,
                                   const ValidationContext& context) {
  const OutputFormat& of_server = context.output_format;
  const ToolChoice& choice = request.tool_choice;
  const bool forced = request.tool_choice.forces_calls();
  if (forced && request.tools.empty()) return invalid_argument("tool_choice", "tool_choice needs tools");
  const auto is_chosen = [&](const ToolSignature& tool) { return tool.name == choice.name; };
  if (choice.kind == ToolChoice::Kind::kNamed && std::ranges::none_of(request.tools, is_chosen)) {
    return invalid_argument("tool_choice", "tool_choice names a function that is not in tools");
  }
  if (reads_calls(request) && of_server.tools == ToolFormat::kNone) {
    return invalid_argument("tools",
                            "tools: this server cannot read tool calls of this model; start it with "
                            "--tool-call-parser NAME, or send tool_choice \"none\"");
  }
  OutputParsing parsing{.in_reasoning = start == ReasoningStart::kInside,
                        .parallel_tool_calls = request.parallel_tool_calls};
  if (constrained)
    HELIOS_RETURN_IF_ERROR(check_constrained_start(start, forced ? "tool_choice" : "text.format", context));
  // What has to be an answer from its first byte on is not searched for reasoning.
  if (start != ReasoningStart::kNone || !constrained) parsing.format.reasoning = of_server.reasoning;
  if (reads_calls(request)) parsing.format.tools = of_server.tools;
  return parsing;
}

/// A value as a client writes it: the shortest that reads back as the same 32-bit number.
std::string number_json(std::optional<double> sent, std::optional<float> of_model) {
  std::string out;
  if (sent || !of_model) {
    append_json_number(out, sent.value_or(1.0));
  } else {
    append_json_number(out, std::stod(fmt::format("{}", *of_model)));
  }
  return out;
}

}  // namespace

ApiError response_not_found() {
  return {404, "invalid_request_error", "no response has this id: responses are not stored on this server",
          "response_id"};
}

Result<GenerationPlan> plan_responses(ResponsesRequest& request, const ValidationContext& context,
                                      const ChatTemplates& templates) {
  HELIOS_RETURN_IF_ERROR(check_before_prompt(request, context, kRules));
  if (request.refused) return *request.refused;
  const Result<std::string> text = render_conversation(request.conversation, templates);
  if (!text) return text.error();
  HELIOS_RETURN_IF_ERROR(check_include(request, context.capabilities));
  constrain_to_calls(request, context.output_format);
  Result<std::shared_ptr<const CompiledGrammar>> grammar = check_after_prompt(request, context, kRules);
  if (!grammar) return grammar.error();
  const ReasoningStart start = reasoning_start(*text, nullptr, context);
  const Result<OutputParsing> parsing = plan_parsing(request, *grammar != nullptr, start, context);
  if (!parsing) return parsing.error();
  if (*grammar && reads_calls(request) && !request.tool_choice.forces_calls()) {
    const StructuredOutput& constrained = request.structured.constraints.front();
    grammar = compile_with_calls(constrained, request.tools, request.parallel_tool_calls, context);
    if (!grammar) return grammar.error();
  }
  HELIOS_RETURN_IF_ERROR(check_token_ids(request, context.capabilities.vocab_size));
  Result<PlannedPrompt> prompt = plan_rendered(*text, request, context, kRules);
  if (!prompt) return prompt.error();
  prompt->reasoning = start;
  request.echoed.temperature = number_json(request.temperature, context.defaults.temperature);
  request.echoed.top_p = number_json(request.top_p, context.defaults.top_p);
  std::vector<PlannedPrompt> prompts;
  prompts.push_back(std::move(*prompt));
  Result<GenerationPlan> plan = make_plan(request, std::move(prompts), std::move(*grammar), context, kRules);
  if (plan) set_parsing(*parsing, context.tokenizer, &*plan);
  return plan;
}

}  // namespace helios
