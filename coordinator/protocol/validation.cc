#include "coordinator/protocol/validation.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>

#include "coordinator/parser/reasoning_parser.h"
#include "coordinator/protocol/api_error.h"

namespace helios {
namespace {

constexpr double kSmallestFloat = std::numeric_limits<float>::min();
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr size_t kMaxRequestIdBytes = 256;
constexpr std::string_view kScoringRemedy = "prompt logprobs are disabled; start the server with --prompt-logprobs";

Status check_range(std::string_view field, const std::optional<double>& value, double low, double high) {
  if (!value || (*value >= low && *value <= high)) return Ok{};
  return invalid_argument(field, fmt::format("{} must be in [{}, {}], got {}", field, low, high, *value));
}

Status check_range(std::string_view field, const std::optional<int64_t>& value, int64_t low, int64_t high) {
  if (!value || (*value >= low && *value <= high)) return Ok{};
  if (high == INT64_MAX)
    return invalid_argument(field, fmt::format("{} must be at least {}, got {}", field, low, *value));
  return invalid_argument(field, fmt::format("{} must be in [{}, {}], got {}", field, low, high, *value));
}

// Row 5.

Status check_sampling_values(const GenerationRequest& request) {
  HELIOS_RETURN_IF_ERROR(check_range("temperature", request.temperature, 0.0, 2.0));
  if (request.top_p && !(*request.top_p > 0.0 && *request.top_p <= 1.0)) {
    return invalid_argument("top_p", fmt::format("top_p must be in (0, 1], got {}", *request.top_p));
  }
  HELIOS_RETURN_IF_ERROR(check_range("top_k", request.top_k, -1, INT64_MAX));
  HELIOS_RETURN_IF_ERROR(check_range("min_p", request.min_p, 0.0, 1.0));
  HELIOS_RETURN_IF_ERROR(check_range("presence_penalty", request.presence_penalty, -2.0, 2.0));
  HELIOS_RETURN_IF_ERROR(check_range("frequency_penalty", request.frequency_penalty, -2.0, 2.0));
  // The ranks compute in 32 bits: what rounds to nothing or to infinity there is no penalty.
  if (const auto& penalty = request.repetition_penalty;
      penalty && !(*penalty >= kSmallestFloat && *penalty <= kLargestFloat)) {
    return invalid_argument(
        "repetition_penalty",
        fmt::format("repetition_penalty must be above 0 and fit a 32-bit number, got {}", *penalty));
  }
  return Ok{};
}

Status check_counts(const GenerationRequest& request, const ValidationContext& context, const EndpointRules& rules) {
  HELIOS_RETURN_IF_ERROR(check_range("n", request.n, 1, context.limits.max_n));
  const int64_t n = request.n.value_or(1);
  if (request.best_of && (*request.best_of < 1 || *request.best_of > n)) {
    return invalid_argument("best_of", fmt::format("best_of must be in [1, n = {}], got {}", n, *request.best_of));
  }
  if (request.max_tokens && *request.max_tokens < (rules.zero_budget ? 0 : 1)) {
    return invalid_argument(rules.max_tokens_field,
                            fmt::format("{} must be at least 1{}, got {}", rules.max_tokens_field,
                                        rules.default_max_tokens ? " (0 only with echo)" : "", *request.max_tokens));
  }
  const int64_t budget =
      request.max_tokens.value_or(rules.default_max_tokens.value_or(context_limit(context.capabilities)));
  if (request.min_tokens && (*request.min_tokens < 0 || *request.min_tokens > budget)) {
    return invalid_argument("min_tokens", fmt::format("min_tokens must be in [0, {} = {}], got {}",
                                                      rules.max_tokens_field, budget, *request.min_tokens));
  }
  HELIOS_RETURN_IF_ERROR(check_range("stream_interval", request.stream_interval, 1, INT64_MAX));
  if (request.truncate_prompt_tokens && *request.truncate_prompt_tokens != -1) {
    HELIOS_RETURN_IF_ERROR(check_range("truncate_prompt_tokens", request.truncate_prompt_tokens, 1, INT64_MAX));
  }
  if (request.truncation_side && *request.truncation_side != "left" && *request.truncation_side != "right") {
    return invalid_argument("truncation_side", "truncation_side must be \"left\" or \"right\"");
  }
  return Ok{};
}

Status check_strings(const GenerationRequest& request, const ProtocolLimits& limits) {
  if (static_cast<int64_t>(request.stop.size()) > limits.max_stop_strings) {
    return invalid_argument(
        "stop", fmt::format("stop: at most {} strings, got {}", limits.max_stop_strings, request.stop.size()));
  }
  size_t stop_bytes = 0;
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return invalid_argument("stop", "stop: an empty string would stop at once");
    stop_bytes += stop.size();
  }
  if (static_cast<int64_t>(stop_bytes) > limits.max_stop_bytes) {
    return invalid_argument("stop",
                            fmt::format("stop: at most {} bytes in all, got {}", limits.max_stop_bytes, stop_bytes));
  }
  if (static_cast<int64_t>(request.bad_words.size()) > limits.max_bad_words) {
    return invalid_argument("bad_words", fmt::format("bad_words: at most {} words, got {}", limits.max_bad_words,
                                                     request.bad_words.size()));
  }
  size_t bad_word_bytes = 0;
  for (const std::string& word : request.bad_words) {
    if (word.empty()) return invalid_argument("bad_words", "bad_words: an empty string is not a word");
    bad_word_bytes += word.size();
  }
  if (static_cast<int64_t>(bad_word_bytes) > limits.max_bad_word_bytes) {
    return invalid_argument("bad_words", fmt::format("bad_words: at most {} bytes in all, got {}",
                                                     limits.max_bad_word_bytes, bad_word_bytes));
  }
  if (request.cache_salt) {
    const std::string& salt = *request.cache_salt;
    if (salt.empty() || salt.size() > 128 || salt.find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos) {
      return invalid_argument("cache_salt", "cache_salt must have 1 to 128 characters, none of them @ / \\ or NUL");
    }
  }
  if (request.request_id && (request.request_id->empty() || request.request_id->size() > kMaxRequestIdBytes)) {
    return invalid_argument("request_id", fmt::format("request_id must have 1 to {} bytes", kMaxRequestIdBytes));
  }
  return Ok{};
}

// Rows 7 to 11.

Status check_logprob_limit(std::string_view field, const std::optional<int64_t>& value, int64_t max) {
  if (!value) return Ok{};
  if (*value < 0)
    return invalid_argument(field,
                            fmt::format("{}={} must not be negative; at most {} are reported", field, *value, max));
  if (*value > max)
    return invalid_argument(field, fmt::format("{}={} is greater than max allowed: {}", field, *value, max));
  return Ok{};
}

Status check_selected_ids(const GenerationRequest& request, int64_t vocab_size, const EndpointRules& rules) {
  constexpr std::string_view kField = "logprob_token_ids";
  if (!request.logprob_token_ids) return Ok{};
  const std::vector<int64_t>& ids = *request.logprob_token_ids;
  if (ids.empty()) return invalid_argument(kField, "logprob_token_ids must not be empty");
  if (ids.size() > kMaxSelectedIds) {
    return invalid_argument(kField,
                            fmt::format("logprob_token_ids: at most {} ids, got {}", kMaxSelectedIds, ids.size()));
  }
  std::unordered_set<int64_t> seen;
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(kField,
                              fmt::format("logprob_token_ids: {} is out of vocabulary, [0, {})", id, vocab_size));
    }
    if (!seen.insert(id).second)
      return invalid_argument(kField, fmt::format("logprob_token_ids: {} is listed twice", id));
  }
  if (!request.logprobs)
    return invalid_argument(kField,
                            fmt::format("logprob_token_ids needs logprobs; send {} with it", rules.ask_logprobs));
  if (request.echo && request.max_tokens == 0) {
    return invalid_argument(kField, "logprob_token_ids applies to generated tokens; max_tokens is 0");
  }
  return Ok{};
}

Status check_prompt_logprobs(const GenerationRequest& request, int64_t max) {
  if (request.stream && request.prompt_logprobs && *request.prompt_logprobs != 0) {
    return invalid_argument("prompt_logprobs", "prompt_logprobs is not available when streaming");
  }
  return check_logprob_limit("prompt_logprobs", request.prompt_logprobs, max);
}

Status check_capabilities(const GenerationRequest& request, const Capabilities& capabilities,
                          const EndpointRules& rules) {
  if (request.logprobs && capabilities.max_logprobs == 0) {  // R34
    return invalid_argument(
        "logprobs", "logprobs are not available: the loaded core reports none; start it with --max-logprobs 1 or more");
  }
  if (request.logprob_token_ids && !capabilities.logprob_token_ids) {  // R35
    return invalid_argument(
        "logprob_token_ids",
        "logprob_token_ids is not available: the loaded core has no id inputs; start it with --logprob-token-ids on");
  }
  if (capabilities.prompt_scoring) return Ok{};  // R45
  if (request.prompt_logprobs) return invalid_argument("prompt_logprobs", std::string(kScoringRemedy));
  if (rules.echo_is_prompt && request.echo && request.logprobs) {
    return invalid_argument("echo", std::string(kScoringRemedy));
  }
  return Ok{};
}

// Row 12, and the features that are known but not built. A value that changes nothing is accepted.

/// Null: none was asked for.
Result<std::shared_ptr<const CompiledGrammar>> compile_grammar(const GenerationRequest& request,
                                                               const ValidationContext& context) {
  Result<std::optional<StructuredOutput>> output = structured_output(request.structured);
  if (!output) return output.error();
  if (!*output) return std::shared_ptr<const CompiledGrammar>();
  return compile_constraint(**output, context);
}

Status check_thinking_budget(const GenerationRequest& request, const ValidationContext& context) {
  constexpr std::string_view kField = "thinking_token_budget";
  if (!request.thinking_token_budget) return Ok{};
  const int64_t budget = *request.thinking_token_budget;
  if (context.output_format.reasoning == ReasoningFormat::kNone) {
    return invalid_argument(kField,
                            "thinking_token_budget needs a reasoning parser; start the server with "
                            "--reasoning-parser NAME");
  }
  if (budget < -1) return invalid_argument(kField, "thinking_token_budget must be at least 0, or -1 for no limit");
  if (budget == -1) return Ok{};
  if (think_tokens(context)) return Ok{};
  return invalid_argument(
      kField, fmt::format("thinking_token_budget: this model has no token for {} or for {}", kThinkOpen, kThinkClose));
}

Status check_unbuilt(const GenerationRequest& request, const ValidationContext& context) {
  const auto refuse = [](std::string_view field) {
    return not_implemented(field, fmt::format("{} is not built in this version", field));
  };
  if (!request.unbuilt_field.empty()) return refuse(request.unbuilt_field);
  if (request.use_beam_search) return invalid_argument("use_beam_search", "use_beam_search is not supported");
  if (!request.suffix.value_or("").empty()) return invalid_argument("suffix", "suffix is not supported");
  return check_thinking_budget(request, context);
}

// Row 13.

Status check_transformations(const GenerationRequest& request, int64_t vocab_size) {
  if (request.logit_bias.size() > kMaxLogitBias) {
    return invalid_argument("logit_bias", fmt::format("logit_bias: at most {} token ids, got {}", kMaxLogitBias,
                                                      request.logit_bias.size()));
  }
  std::unordered_set<TokenId> seen;
  for (const auto& member : request.logit_bias) {
    const std::optional<TokenId> id = bias_id(member.first, vocab_size);
    if (!id) {
      return invalid_argument("logit_bias",
                              fmt::format("logit_bias: a key is no token id of the vocabulary, [0, {})", vocab_size));
    }
    if (!seen.insert(*id).second)  // "5" and "05"
      return invalid_argument("logit_bias", fmt::format("logit_bias: token id {} is listed twice", *id));
  }
  if (!request.allowed_token_ids) return Ok{};
  if (request.allowed_token_ids->empty()) {
    return invalid_argument("allowed_token_ids", "allowed_token_ids must not be empty");
  }
  return check_vocabulary("allowed_token_ids", *request.allowed_token_ids, vocab_size);
}

}  // namespace

Status check_model(const std::optional<std::string>& model, const ServedModel& served) {
  if (!model || model->empty() || *model == served.name) return Ok{};
  const std::string shown = model->size() > 128 ? "with that name" : "`" + *model + "`";
  return Error{Errc::kNotFound, fmt::format("the model {} does not exist; this server has `{}`", shown, served.name),
               "model"};
}

Status check_vocabulary(std::string_view field, const std::vector<int64_t>& ids, int64_t vocab_size) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(field,
                              fmt::format("{}: token id {} is out of vocabulary, [0, {})", field, id, vocab_size));
    }
  }
  return Ok{};
}

std::optional<TokenId> bias_id(std::string_view key, int64_t vocab_size) {
  int64_t id = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
  if (!whole || id < 0 || id >= vocab_size) return std::nullopt;
  return static_cast<TokenId>(id);
}

Status check_before_prompt(const GenerationRequest& request, const ValidationContext& context,
                           const EndpointRules& rules) {
  HELIOS_RETURN_IF_ERROR(check_model(request.model, context.model));
  if (request.has_stream_options && !request.stream) {
    return invalid_argument("stream_options", "stream_options needs stream: true");
  }
  HELIOS_RETURN_IF_ERROR(check_sampling_values(request));
  HELIOS_RETURN_IF_ERROR(check_counts(request, context, rules));
  return check_strings(request, context.limits);
}

Status check_choices(size_t num_prompts, const GenerationRequest& request, const ProtocolLimits& limits) {
  const int64_t n = request.n.value_or(1);
  if (static_cast<int64_t>(num_prompts) * n <= limits.max_choices) return Ok{};
  return invalid_argument(
      "n", fmt::format("prompts x n must be at most {}, got {} x {}", limits.max_choices, num_prompts, n));
}

Result<std::shared_ptr<const CompiledGrammar>> check_after_prompt(GenerationRequest& request,
                                                                  const ValidationContext& context,
                                                                  const EndpointRules& rules) {
  const Capabilities& capabilities = context.capabilities;
  // A core without logprobs has no limit to name: row 11 says what it lacks.
  const int64_t max_logprobs = capabilities.max_logprobs > 0 ? capabilities.max_logprobs : kMaxNaturalAlternatives;
  HELIOS_RETURN_IF_ERROR(check_logprob_limit(rules.alternatives_field, request.logprobs, max_logprobs));
  HELIOS_RETURN_IF_ERROR(check_selected_ids(request, capabilities.vocab_size, rules));
  HELIOS_RETURN_IF_ERROR(check_prompt_logprobs(request, max_logprobs));
  HELIOS_RETURN_IF_ERROR(check_capabilities(request, capabilities, rules));
  Result<std::shared_ptr<const CompiledGrammar>> grammar = compile_grammar(request, context);
  if (!grammar) return grammar.error();
  HELIOS_RETURN_IF_ERROR(check_unbuilt(request, context));
  return grammar;
}

Result<std::shared_ptr<const CompiledGrammar>> compile_constraint(const StructuredOutput& output,
                                                                  const ValidationContext& context) {
  if (context.defaults.eos_ids.empty())
    return invalid_argument(output.param,
                            fmt::format("{}: this model has no EOS token to end the text with", output.param));
  return compile_structured_output(output, context.grammars);
}

Result<std::shared_ptr<const CompiledGrammar>> compile_with_calls(const StructuredOutput& constrained,
                                                                  std::span<const ToolSignature> tools, bool parallel,
                                                                  const ValidationContext& context) {
  const ToolFormat format = context.output_format.tools;
  if (format == ToolFormat::kMistral) {
    const std::optional<TokenId> mark = context.tokenizer.find_piece("[TOOL_CALLS]");
    if (mark && context.tokenizer.is_special(*mark)) {
      return not_implemented(
          "tools",
          "tools: beside a constraint on the text this model's calls cannot be read in this version, "
          "since a control token marks them; send \"tool_choice\": \"none\" with the constraint");
    }
  }
  const GrammarSpec either[] = {constrained.spec, tool_call_grammar(tools, parallel, format)};
  return compile_constraint({"tools", any_of(either)}, context);
}

Status check_token_ids(const GenerationRequest& request, int64_t vocab_size) {
  HELIOS_RETURN_IF_ERROR(check_vocabulary("stop_token_ids", request.stop_token_ids, vocab_size));
  return check_transformations(request, vocab_size);
}

}  // namespace helios
