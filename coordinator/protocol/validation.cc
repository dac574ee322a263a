#include "coordinator/protocol/validation.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>

#include "coordinator/protocol/api_error.h"

namespace helios {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
constexpr double kGreedyBelow = 1e-5;
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

#define HELIOS_RETURN_IF_ERROR(expression) \
  if (Status status_ = (expression); !status_) return std::move(status_).error()

// Row 5.

Status check_sampling_values(const CompletionsRequest& request) {
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

Status check_counts(const CompletionsRequest& request, const ProtocolLimits& limits) {
  HELIOS_RETURN_IF_ERROR(check_range("n", request.n, 1, limits.max_n));
  const int64_t n = request.n.value_or(1);
  if (request.best_of && (*request.best_of < 1 || *request.best_of > n)) {
    return invalid_argument("best_of", fmt::format("best_of must be in [1, n = {}], got {}", n, *request.best_of));
  }
  if (request.max_tokens && *request.max_tokens < 1 &&
      !(*request.max_tokens == 0 && (request.echo || request.prompt_logprobs))) {
    return invalid_argument(
        "max_tokens", fmt::format("max_tokens must be at least 1 (0 only with echo), got {}", *request.max_tokens));
  }
  const int64_t budget = request.max_tokens.value_or(kDefaultMaxTokens);
  if (request.min_tokens && (*request.min_tokens < 0 || *request.min_tokens > budget)) {
    return invalid_argument(
        "min_tokens", fmt::format("min_tokens must be in [0, max_tokens = {}], got {}", budget, *request.min_tokens));
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

Status check_strings(const CompletionsRequest& request, const ProtocolLimits& limits) {
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
  for (const std::string& word : request.bad_words) {
    if (word.empty()) return invalid_argument("bad_words", "bad_words: an empty string is not a word");
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

// Row 6.

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
  const int64_t n = request.n.value_or(1);
  const int64_t choices = static_cast<int64_t>(prompt.size()) * n;
  if (choices > limits.max_choices) {
    return invalid_argument(
        "n", fmt::format("prompts x n must be at most {}, got {} x {}", limits.max_choices, prompt.size(), n));
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

Status check_selected_ids(const CompletionsRequest& request, int64_t vocab_size) {
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
    return invalid_argument(kField, "logprob_token_ids needs logprobs; send \"logprobs\": 0 with it");
  if (request.echo && request.max_tokens == 0) {
    return invalid_argument(kField, "logprob_token_ids applies to generated tokens; max_tokens is 0");
  }
  return Ok{};
}

Status check_prompt_logprobs(const CompletionsRequest& request, int64_t max) {
  if (request.stream && request.prompt_logprobs && *request.prompt_logprobs != 0) {
    return invalid_argument("prompt_logprobs", "prompt_logprobs is not available when streaming");
  }
  return check_logprob_limit("prompt_logprobs", request.prompt_logprobs, max);
}

Status check_capabilities(const CompletionsRequest& request, const Capabilities& capabilities) {
  if (request.logprobs && capabilities.max_logprobs == 0) {  // R34
    return invalid_argument(
        "logprobs", "logprobs are not available: the loaded core reports none; start it with --max-logprobs 1 or more");
  }
  if (request.logprob_token_ids && !capabilities.logprob_token_ids) {  // R35
    return invalid_argument(
        "logprob_token_ids",
        "logprob_token_ids is not available: the loaded core has no id inputs; start it with --logprob-token-ids on");
  }
  const bool scored_echo = request.echo && request.logprobs;
  const std::string_view field = request.prompt_logprobs ? "prompt_logprobs" : "echo";
  if (request.prompt_logprobs || scored_echo) {
    if (!capabilities.prompt_scoring) return invalid_argument(field, std::string(kScoringRemedy));
    return not_implemented(field, fmt::format("{}: prompt scoring is not built in this version", field));
  }
  return Ok{};
}

// Row 12, and the features that are known but not built. A value that changes nothing is accepted.

/// Null: none was asked for.
Result<std::shared_ptr<const CompiledGrammar>> compile_grammar(CompletionsRequest& request,
                                                               const ValidationContext& context) {
  Result<std::optional<StructuredOutput>> output = structured_output(std::move(request.structured));
  if (!output) return output.error();
  if (!*output) return std::shared_ptr<const CompiledGrammar>();
  if (context.defaults.eos_ids.empty())
    return invalid_argument((*output)->param,
                            fmt::format("{}: this model has no EOS token to end the text with", (*output)->param));
  return compile_structured_output(**output, context.grammars);
}

Status check_unbuilt(const CompletionsRequest& request) {
  const auto refuse = [](std::string_view field) {
    return not_implemented(field, fmt::format("{} is not built in this version", field));
  };
  if (!request.unbuilt_field.empty()) return refuse(request.unbuilt_field);
  if (request.use_beam_search) return invalid_argument("use_beam_search", "use_beam_search is not supported");
  if (request.suffix && !request.suffix->empty()) return invalid_argument("suffix", "suffix is not supported");
  if (request.thinking_token_budget) {
    return invalid_argument("thinking_token_budget",
                            "thinking_token_budget needs a reasoning parser; this server has none");
  }
  if (!request.bad_words.empty()) {
    return not_implemented("bad_words",
                           "bad_words is not built in this version: a word of several tokens cannot be kept from being "
                           "generated; ban single tokens with logit_bias -100 or allowed_token_ids");
  }
  return Ok{};
}

// Row 13.

Status check_vocabulary(std::string_view field, const std::vector<int64_t>& ids, int64_t vocab_size) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(field,
                              fmt::format("{}: token id {} is out of vocabulary, [0, {})", field, id, vocab_size));
    }
  }
  return Ok{};
}

/// A key of logit_bias: a decimal token id of the vocabulary.
std::optional<TokenId> bias_id(std::string_view key, int64_t vocab_size) {
  int64_t id = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
  if (!whole || id < 0 || id >= vocab_size) return std::nullopt;
  return static_cast<TokenId>(id);
}

Status check_transformations(const CompletionsRequest& request, int64_t vocab_size) {
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

Status check_ids(const CompletionsRequest& request, int64_t vocab_size) {
  for (const std::vector<int64_t>& ids : request.prompt.ids) {
    HELIOS_RETURN_IF_ERROR(check_vocabulary("prompt", ids, vocab_size));
  }
  HELIOS_RETURN_IF_ERROR(check_vocabulary("stop_token_ids", request.stop_token_ids, vocab_size));
  return check_transformations(request, vocab_size);
}

// Row 14.

Error too_long(int64_t tokens, int64_t max_tokens, int64_t limit) {
  return invalid_argument(
      "prompt", fmt::format("this model's maximum context length is {} tokens; the prompt has {} and max_tokens is {}",
                            limit, tokens, max_tokens));
}

/// How many tokens a prompt may keep; empty when it is not to be cut.
Result<std::optional<int64_t>> truncation(const CompletionsRequest& request, int64_t limit) {
  if (!request.truncate_prompt_tokens) return std::optional<int64_t>();
  int64_t kept = *request.truncate_prompt_tokens;
  if (kept == -1) {
    const int64_t budget = request.max_tokens.value_or(kDefaultMaxTokens);
    if (budget >= limit) {
      return invalid_argument("truncate_prompt_tokens",
                              fmt::format("truncate_prompt_tokens: max_tokens = {} leaves nothing of the context of {} "
                                          "tokens for a prompt",
                                          budget, limit));
    }
    kept = limit - budget;
  }
  if (kept > limit) {
    return invalid_argument(
        "truncate_prompt_tokens",
        fmt::format("truncate_prompt_tokens={} is greater than the context of {} tokens", kept, limit));
  }
  return std::optional<int64_t>(kept);
}

/// Cuts `ids` to `kept`, without the `fixed_front` and `fixed_back` ids that the tokenizer put around a text: those
/// stay while there is room for more than them.
void truncate(std::vector<TokenId>& ids, int64_t kept, bool cut_left, size_t fixed_front = 0, size_t fixed_back = 0) {
  const size_t size = static_cast<size_t>(kept);
  if (ids.size() <= size) return;
  if (fixed_front + fixed_back >= size) fixed_front = fixed_back = 0;
  const size_t excess = ids.size() - size;
  const auto first = cut_left ? ids.begin() + static_cast<ptrdiff_t>(fixed_front)
                              : ids.end() - static_cast<ptrdiff_t>(fixed_back + excess);
  ids.erase(first, first + static_cast<ptrdiff_t>(excess));
}

/// A text's tokens, cut to `kept`. What is echoed is then the text of what is left.
Result<PlannedPrompt> plan_text(std::string text, const CompletionsRequest& request, const Tokenizer& tokenizer,
                                std::optional<int64_t> kept) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, request.add_special_tokens);
  if (!ids) return invalid_argument("prompt", "prompt: " + ids.error().message);
  PlannedPrompt prompt{.ids = std::move(*ids)};
  if (!kept || prompt.ids.size() <= static_cast<size_t>(*kept)) {
    if (request.echo) prompt.echo_text = std::move(text);
    return prompt;
  }
  Result<std::vector<TokenId>> body = tokenizer.encode(text, false);
  if (!body) return invalid_argument("prompt", "prompt: " + body.error().message);
  const auto found = std::search(prompt.ids.begin(), prompt.ids.end(), body->begin(), body->end());
  const auto front = found == prompt.ids.end() ? 0 : static_cast<size_t>(found - prompt.ids.begin());
  const size_t back = prompt.ids.size() - body->size() - front;
  const bool cut_left = request.truncation_side.value_or("left") == "left";
  truncate(prompt.ids, *kept, cut_left, front, back);
  if (request.echo) {
    truncate(*body, std::max<int64_t>(*kept - static_cast<int64_t>(front + back), 0), cut_left);
    prompt.echo_text = tokenizer.decode(*body, false);
  }
  return prompt;
}

Result<std::vector<PlannedPrompt>> tokenize_prompts(CompletionsRequest& request, const ValidationContext& context,
                                                    int64_t limit) {
  const Result<std::optional<int64_t>> kept = truncation(request, limit);
  if (!kept) return kept.error();
  std::vector<PlannedPrompt> prompts;
  prompts.reserve(request.prompt.size());
  for (std::string& text : request.prompt.texts) {
    Result<PlannedPrompt> prompt = plan_text(std::move(text), request, context.tokenizer, *kept);
    if (!prompt) return prompt.error();
    if (prompt->ids.empty()) return invalid_argument("prompt", "a prompt has no tokens");
    // A tokenizer may know more than the model: its added tokens can lie past the last row of the embedding.
    for (const TokenId id : prompt->ids) {
      if (id < 0 || id >= context.capabilities.vocab_size) {
        return invalid_argument("prompt", fmt::format("prompt: its token id {} is out of vocabulary, [0, {})", id,
                                                      context.capabilities.vocab_size));
      }
    }
    prompts.push_back(std::move(*prompt));
  }
  for (const std::vector<int64_t>& ids : request.prompt.ids) {
    PlannedPrompt prompt;
    prompt.ids.assign(ids.begin(), ids.end());
    if (*kept) truncate(prompt.ids, **kept, request.truncation_side.value_or("left") == "left");
    const auto size = static_cast<int64_t>(prompt.ids.size());
    if (size > limit) return too_long(size, request.max_tokens.value_or(kDefaultMaxTokens), limit);
    if (request.echo) prompt.echo_text = context.tokenizer.decode(prompt.ids, false);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

/// The budget of one prompt: what was asked, or the default cut to what the context still holds.
Result<int64_t> token_budget(const CompletionsRequest& request, size_t prompt_tokens, int64_t limit) {
  const auto tokens = static_cast<int64_t>(prompt_tokens);
  if (request.max_tokens) {
    if (*request.max_tokens > limit || tokens + *request.max_tokens > limit)
      return too_long(tokens, *request.max_tokens, limit);
    return *request.max_tokens;
  }
  if (tokens + 1 > limit) return too_long(tokens, kDefaultMaxTokens, limit);
  return std::min(kDefaultMaxTokens, limit - tokens);
}

// What the sequences are made of.

/// Logit bias, allowed ids and penalties, in what a rank takes: distinct ids, clamped values, nothing that is neutral.
void set_transformations(const CompletionsRequest& request, const ValidationContext& context,
                         SamplingParams* sampling) {
  for (const auto& [key, value] : request.logit_bias) {
    const double bias = std::clamp<double>(value, -kMaxBias, kMaxBias);
    if (bias != 0.0)
      sampling->logit_bias.push_back({*bias_id(key, context.capabilities.vocab_size), static_cast<float>(bias)});
  }
  if (request.allowed_token_ids) {
    sampling->allowed_ids.assign(request.allowed_token_ids->begin(), request.allowed_token_ids->end());
    std::sort(sampling->allowed_ids.begin(), sampling->allowed_ids.end());
    const auto end = std::unique(sampling->allowed_ids.begin(), sampling->allowed_ids.end());
    sampling->allowed_ids.erase(end, sampling->allowed_ids.end());
  }
  sampling->repetition_penalty =
      static_cast<float>(request.repetition_penalty.value_or(context.defaults.repetition_penalty.value_or(1.0f)));
  sampling->frequency_penalty = static_cast<float>(request.frequency_penalty.value_or(0.0));
  sampling->presence_penalty = static_cast<float>(request.presence_penalty.value_or(0.0));
}

/// Before min_tokens neither EOS nor a stop id can be sampled: something else must be allowed.
Status check_anything_left(const SamplingParams& sampling) {
  if (sampling.allowed_ids.empty() || sampling.min_tokens == 0) return Ok{};
  for (const TokenId id : sampling.allowed_ids) {
    const bool stops = std::find(sampling.stop_ids.begin(), sampling.stop_ids.end(), id) != sampling.stop_ids.end();
    if (id != sampling.eos_id && !stops) return Ok{};
  }
  return invalid_argument("allowed_token_ids",
                          "allowed_token_ids: only EOS and stop ids are allowed, and none of them before min_tokens");
}

Result<SamplingParams> sampling_params(const CompletionsRequest& request, const ValidationContext& context) {
  const GenerationDefaults& defaults = context.defaults;
  SamplingParams sampling;
  const double temperature = request.temperature.value_or(defaults.temperature.value_or(1.0f));
  sampling.temperature = temperature < kGreedyBelow ? 0.0f : static_cast<float>(temperature);
  sampling.top_p = static_cast<float>(request.top_p.value_or(defaults.top_p.value_or(1.0f)));
  if (!(sampling.top_p > 0.0f)) return invalid_argument("top_p", "top_p is too small for a 32-bit number");
  const int64_t top_k = request.top_k.value_or(defaults.top_k.value_or(0));
  sampling.top_k = top_k <= 0 || top_k >= context.capabilities.vocab_size ? 0 : static_cast<int32_t>(top_k);
  sampling.min_p = static_cast<float>(request.min_p.value_or(defaults.min_p.value_or(0.0f)));
  sampling.min_tokens = static_cast<int32_t>(request.min_tokens.value_or(0));
  sampling.ignore_eos = request.ignore_eos;
  if (!defaults.eos_ids.empty()) sampling.eos_id = defaults.eos_ids.front();
  std::unordered_set<TokenId> seen;
  const auto add_stop = [&](int64_t id) {
    if (seen.insert(static_cast<TokenId>(id)).second) sampling.stop_ids.push_back(static_cast<TokenId>(id));
  };
  for (const int64_t id : request.stop_token_ids) add_stop(id);
  for (size_t i = 1; i < defaults.eos_ids.size() && !request.ignore_eos; ++i) add_stop(defaults.eos_ids[i]);
  if (sampling.stop_ids.size() > kMaxStopIds) {
    return invalid_argument("stop_token_ids",
                            fmt::format("stop_token_ids: at most {} ids, the model's own included, got {}", kMaxStopIds,
                                        sampling.stop_ids.size()));
  }
  set_transformations(request, context, &sampling);
  HELIOS_RETURN_IF_ERROR(check_anything_left(sampling));
  return sampling;
}

OutputOptions output_options(CompletionsRequest& request) {
  return {.skip_special_tokens = request.skip_special_tokens,
          .stop = std::move(request.stop),
          .include_stop_str_in_output = request.include_stop_str_in_output,
          .tokens_as_token_ids = request.return_tokens_as_token_ids,
          .min_tokens = request.min_tokens.value_or(0)};
}

Result<std::vector<SequenceRequest>> make_sequences(const CompletionsRequest& request, const GenerationPlan& plan,
                                                    const ValidationContext& context, int64_t limit) {
  Result<SamplingParams> sampling = sampling_params(request, context);
  if (!sampling) return sampling.error();
  const bool seeded = request.seed && *request.seed != -1;
  std::vector<SequenceRequest> sequences;
  for (const PlannedPrompt& prompt : plan.prompts) {
    Result<int64_t> budget = token_budget(request, prompt.ids.size(), limit);
    if (!budget) return budget.error();
    if (*budget == 0) continue;
    for (int64_t i = 0; i < plan.n; ++i) {
      SequenceRequest sequence{.prompt = prompt.ids, .sampling = *sampling};
      sequence.sampling.max_tokens = static_cast<int32_t>(*budget);
      sequence.sampling.min_tokens = std::min(sequence.sampling.min_tokens, sequence.sampling.max_tokens);
      sequence.sampling.seed = seeded ? choice_seed(static_cast<uint64_t>(*request.seed), i) : random_bits();
      sequence.logprobs = request.logprobs.has_value();
      sequence.num_logprobs = static_cast<int32_t>(request.logprobs.value_or(0));
      if (request.logprob_token_ids) {
        sequence.logprob_token_ids.assign(request.logprob_token_ids->begin(), request.logprob_token_ids->end());
      }
      sequence.priority = request.priority.value_or(0);
      sequence.cache_salt = request.cache_salt.value_or("");
      sequences.push_back(std::move(sequence));
    }
  }
  return sequences;
}

}  // namespace

Status check_model(const std::optional<std::string>& model, const ServedModel& served) {
  if (!model || model->empty() || *model == served.name) return Ok{};
  const std::string shown = model->size() > 128 ? "with that name" : "`" + *model + "`";
  return Error{Errc::kNotFound, fmt::format("the model {} does not exist; this server has `{}`", shown, served.name),
               "model"};
}

uint64_t choice_seed(uint64_t seed, int64_t i) {
  if (i == 0) return seed;
  // splitmix64: neighbouring choices of one seed must not be the first choices of neighbouring seeds.
  uint64_t z = seed + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t context_limit(const Capabilities& capabilities) {
  const int64_t kv_positions = static_cast<int64_t>(capabilities.kv_num_blocks) * capabilities.kv_block_size;
  return kv_positions > 0 ? std::min<int64_t>(capabilities.max_model_len, kv_positions) : capabilities.max_model_len;
}

Result<GenerationPlan> plan_completions(CompletionsRequest request, const ValidationContext& context) {
  const Capabilities& capabilities = context.capabilities;
  HELIOS_RETURN_IF_ERROR(check_model(request.model, context.model));
  if (request.has_stream_options && !request.stream) {
    return invalid_argument("stream_options", "stream_options needs stream: true");
  }
  HELIOS_RETURN_IF_ERROR(check_sampling_values(request));
  HELIOS_RETURN_IF_ERROR(check_counts(request, context.limits));
  HELIOS_RETURN_IF_ERROR(check_strings(request, context.limits));
  HELIOS_RETURN_IF_ERROR(check_prompt_form(request, context.limits));
  // A core without logprobs has no limit to name: row 11 says what it lacks.
  const int64_t max_logprobs = capabilities.max_logprobs > 0 ? capabilities.max_logprobs : kMaxNaturalAlternatives;
  HELIOS_RETURN_IF_ERROR(check_logprob_limit("logprobs", request.logprobs, max_logprobs));
  HELIOS_RETURN_IF_ERROR(check_selected_ids(request, capabilities.vocab_size));
  HELIOS_RETURN_IF_ERROR(check_prompt_logprobs(request, max_logprobs));
  HELIOS_RETURN_IF_ERROR(check_capabilities(request, capabilities));
  Result<std::shared_ptr<const CompiledGrammar>> grammar = compile_grammar(request, context);
  if (!grammar) return grammar.error();
  HELIOS_RETURN_IF_ERROR(check_unbuilt(request));
  HELIOS_RETURN_IF_ERROR(check_ids(request, capabilities.vocab_size));

  const int64_t limit = context_limit(capabilities);
  Result<std::vector<PlannedPrompt>> prompts = tokenize_prompts(request, context, limit);
  if (!prompts) return prompts.error();
  GenerationPlan plan{.prompts = std::move(*prompts), .n = request.n.value_or(1)};
  Result<std::vector<SequenceRequest>> sequences = make_sequences(request, plan, context, limit);
  if (!sequences) return sequences.error();
  for (SequenceRequest& sequence : *sequences) sequence.grammar = *grammar;
  plan.sequences = std::move(*sequences);
  plan.output = output_options(request);
  plan.echo = request.echo;
  plan.stream = request.stream;
  plan.stream_interval = request.stream_interval.value_or(1);
  plan.stream_options = request.stream_options;
  plan.logprobs = request.logprobs.has_value();
  plan.return_token_ids = request.return_token_ids;
  plan.request_id = request.request_id.value_or("");
  return plan;
}

}  // namespace helios
