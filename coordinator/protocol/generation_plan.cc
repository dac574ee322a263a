#include "coordinator/protocol/generation_plan.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include <fmt/format.h>

#include "coordinator/parser/reasoning_parser.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

constexpr double kGreedyBelow = 1e-5;

/// The budget of one prompt: what was asked, or the default cut to what the context still holds.
Result<int64_t> token_budget(const GenerationRequest& request, size_t prompt_tokens, int64_t limit,
                             const EndpointRules& rules) {
  const auto tokens = static_cast<int64_t>(prompt_tokens);
  if (request.max_tokens) {
    if (*request.max_tokens > limit || tokens + *request.max_tokens > limit)
      return too_long(tokens, request, limit, rules);
    return *request.max_tokens;
  }
  if (tokens + 1 > limit) return too_long(tokens, request, limit, rules);
  return std::min(rules.default_max_tokens.value_or(limit), limit - tokens);
}

/// Logit bias, allowed ids and penalties, in what a rank takes: distinct ids, clamped values, nothing that is neutral.
void set_transformations(const GenerationRequest& request, const ValidationContext& context, SamplingParams* sampling) {
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

Result<SamplingParams> sampling_params(const GenerationRequest& request, const ValidationContext& context) {
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

/// A stream has no place for the list; it may be asked for with 0 all the same.
PromptScoring prompt_scoring(const GenerationRequest& request, const EndpointRules& rules) {
  PromptScoring scoring;
  if (rules.echo_is_prompt && request.echo && request.logprobs) {
    scoring.echo_alternatives = static_cast<int32_t>(*request.logprobs);
  }
  if (request.prompt_logprobs && !request.stream) {
    scoring.list_alternatives = static_cast<int32_t>(*request.prompt_logprobs);
  }
  return scoring;
}

/// A plain reply keeps the JSON of all its scores: a batch may not make it larger than a server can hold.
Status check_scored_size(const GenerationPlan& plan, const ProtocolLimits& limits, const EndpointRules& rules) {
  if (!plan.prompt_scoring.any() || plan.stream) return Ok{};
  int64_t values = 0, shown = 0;
  for (const PlannedPrompt& prompt : plan.prompts) {
    const int64_t copies = rules.echo_is_prompt ? plan.n : 1;
    shown += copies;
    values += copies * static_cast<int64_t>(prompt.ids.size()) * (plan.prompt_scoring.most_alternatives() + 1);
  }
  if (shown == 1 || values <= limits.max_prompt_values) return Ok{};
  return invalid_argument(rules.prompt_field,
                          fmt::format("{}: the reply would hold {} prompt logprobs, at most {} in one; send fewer "
                                      "prompts, choices or alternatives",
                                      rules.prompt_field, values, limits.max_prompt_values));
}

OutputOptions output_options(GenerationRequest& request) {
  return {.skip_special_tokens = request.skip_special_tokens,
          .stop = std::move(request.stop),
          .include_stop_str_in_output = request.include_stop_str_in_output,
          .tokens_as_token_ids = request.return_tokens_as_token_ids,
          .min_tokens = request.min_tokens.value_or(0)};
}

/// What the sequence has to know of its reasoning: with a budget, or before a constrained text.
std::optional<Thinking> thinking_of(const GenerationRequest& request, ReasoningStart start, bool constrained,
                                    const ValidationContext& context) {
  const bool budgeted = request.thinking_token_budget.value_or(-1) >= 0;
  if (!budgeted && (!constrained || start == ReasoningStart::kNone)) return std::nullopt;
  const std::optional<ThinkTokens> tokens = think_tokens(context);
  if (!tokens) return std::nullopt;  // with a budget or inside reasoning they exist: validation saw
  Thinking thinking{.open = tokens->open, .close = tokens->close};
  thinking.in_reasoning = start == ReasoningStart::kInside;
  thinking.may_open = constrained && start == ReasoningStart::kMay;
  if (budgeted) thinking.budget = *request.thinking_token_budget;
  return thinking;
}

/// Each word at a text's beginning and behind a space, as the tokenizer spells them.
Result<std::vector<std::vector<TokenId>>> bad_word_ids(const GenerationRequest& request,
                                                       const ValidationContext& context) {
  std::set<std::vector<TokenId>> sequences;
  for (const std::string& word : request.bad_words) {
    std::vector<std::string> spellings = {word};
    if (const size_t begin = word.find_first_not_of(" \t\r\n"); begin != std::string::npos) {
      spellings = {word.substr(begin), " " + word.substr(begin)};
    }
    for (const std::string& text : spellings) {
      Result<std::vector<TokenId>> ids = context.tokenizer.encode(text, false);
      if (!ids) return invalid_argument("bad_words", "bad_words: " + ids.error().message);
      HELIOS_RETURN_IF_ERROR(check_prompt_ids(*ids, context.capabilities.vocab_size, "bad_words"));
      if (!ids->empty()) sequences.insert(std::move(*ids));
    }
  }
  return std::vector<std::vector<TokenId>>(sequences.begin(), sequences.end());
}

Result<std::vector<SequenceRequest>> make_sequences(const GenerationRequest& request, const GenerationPlan& plan,
                                                    const std::shared_ptr<const CompiledGrammar>& grammar,
                                                    const ValidationContext& context, const EndpointRules& rules) {
  Result<SamplingParams> sampling = sampling_params(request, context);
  if (!sampling) return sampling.error();
  const Result<std::vector<std::vector<TokenId>>> bad_words = bad_word_ids(request, context);
  if (!bad_words) return bad_words.error();
  const bool seeded = request.seed && *request.seed != -1;
  std::vector<SequenceRequest> sequences;
  for (const PlannedPrompt& prompt : plan.prompts) {
    Result<int64_t> budget = token_budget(request, prompt.ids.size(), context_limit(context.capabilities), rules);
    if (!budget) return budget.error();
    if (*budget == 0 && !plan.prompt_scoring.any()) continue;
    const int64_t generating = *budget == 0 ? 1 : plan.n;
    for (int64_t i = 0; i < generating; ++i) {
      SequenceRequest sequence{.prompt = prompt.ids, .sampling = *sampling};
      sequence.sampling.max_tokens = static_cast<int32_t>(*budget);
      sequence.sampling.min_tokens = std::min(sequence.sampling.min_tokens, sequence.sampling.max_tokens);
      sequence.sampling.seed = seeded ? choice_seed(static_cast<uint64_t>(*request.seed), i) : random_bits();
      sequence.logprobs = request.logprobs.has_value();
      sequence.num_logprobs = static_cast<int32_t>(request.logprobs.value_or(0));
      if (request.logprob_token_ids) {
        sequence.logprob_token_ids.assign(request.logprob_token_ids->begin(), request.logprob_token_ids->end());
      }
      sequence.prompt_scores = plan.prompt_scoring.any() && i == 0;
      if (sequence.prompt_scores) sequence.num_prompt_logprobs = plan.prompt_scoring.most_alternatives();
      sequence.grammar = grammar;
      sequence.bad_words = *bad_words;
      sequence.thinking = thinking_of(request, prompt.reasoning, grammar != nullptr, context);
      sequence.priority = request.priority.value_or(0);
      sequence.cache_salt = request.cache_salt.value_or("");
      sequences.push_back(std::move(sequence));
    }
  }
  return sequences;
}

}  // namespace

std::optional<ThinkTokens> think_tokens(const ValidationContext& context) {
  if (context.output_format.reasoning == ReasoningFormat::kNone) return std::nullopt;
  const std::optional<TokenId> open = context.tokenizer.find_piece(kThinkOpen);
  const std::optional<TokenId> close = context.tokenizer.find_piece(kThinkClose);
  const int64_t rows = context.capabilities.vocab_size;
  if (!open || !close || *open >= rows || *close >= rows) return std::nullopt;
  return ThinkTokens{*open, *close};
}

ReasoningStart reasoning_start(std::string_view prompt, const std::string* continued,
                               const ValidationContext& context) {
  const ReasoningFormat format = context.output_format.reasoning;
  if (starts_in_reasoning(format, prompt, continued ? std::string_view(*continued) : std::string_view()))
    return ReasoningStart::kInside;
  return !continued && may_reason(format, prompt) && think_tokens(context) ? ReasoningStart::kMay
                                                                           : ReasoningStart::kNone;
}

Status check_constrained_start(ReasoningStart start, std::string_view field, const ValidationContext& context) {
  if (start != ReasoningStart::kInside || think_tokens(context)) return Ok{};
  return not_implemented(field, fmt::format("{}: the prompt ends inside reasoning, and this model has no token for {} "
                                            "behind which a constraint could begin; tell it not to think",
                                            field, kThinkClose));
}

Error too_long(int64_t prompt_tokens, const GenerationRequest& request, int64_t limit, const EndpointRules& rules) {
  const std::optional<int64_t> budget = request.max_tokens ? request.max_tokens : rules.default_max_tokens;
  return invalid_argument(
      rules.prompt_field,
      fmt::format("this model's maximum context length is {} tokens; the prompt has {}{}", limit, prompt_tokens,
                  budget ? fmt::format(" and {} is {}", rules.max_tokens_field, *budget) : ""));
}

Result<std::optional<int64_t>> prompt_room(const GenerationRequest& request, int64_t limit,
                                           const EndpointRules& rules) {
  if (!request.truncate_prompt_tokens) return std::optional<int64_t>();
  int64_t kept = *request.truncate_prompt_tokens;
  if (kept == -1) {
    const int64_t budget = request.max_tokens.value_or(rules.default_max_tokens.value_or(1));
    if (budget >= limit) {
      return invalid_argument("truncate_prompt_tokens",
                              fmt::format("truncate_prompt_tokens: {} = {} leaves nothing of the context of {} tokens "
                                          "for a prompt",
                                          rules.max_tokens_field, budget, limit));
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

void truncate_prompt(std::vector<TokenId>& ids, int64_t kept, bool cut_left, size_t fixed_front, size_t fixed_back) {
  const size_t size = static_cast<size_t>(kept);
  if (ids.size() <= size) return;
  if (fixed_front + fixed_back >= size) fixed_front = fixed_back = 0;
  const size_t excess = ids.size() - size;
  const auto first = cut_left ? ids.begin() + static_cast<ptrdiff_t>(fixed_front)
                              : ids.end() - static_cast<ptrdiff_t>(fixed_back + excess);
  ids.erase(first, first + static_cast<ptrdiff_t>(excess));
}

bool cuts_left(const GenerationRequest& request) { return request.truncation_side.value_or("left") == "left"; }

Status check_prompt_ids(const std::vector<TokenId>& ids, int64_t vocab_size, std::string_view field) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return invalid_argument(field,
                            fmt::format("{}: its token id {} is out of vocabulary, [0, {})", field, id, vocab_size));
  }
  return Ok{};
}

Result<GenerationPlan> make_plan(GenerationRequest& request, std::vector<PlannedPrompt> prompts,
                                 std::shared_ptr<const CompiledGrammar> grammar, const ValidationContext& context,
                                 const EndpointRules& rules) {
  GenerationPlan plan{.prompts = std::move(prompts), .n = request.n.value_or(1)};
  plan.stream = request.stream;
  plan.prompt_scoring = prompt_scoring(request, rules);
  plan.scores_in_every_choice = plan.prompt_scoring.any() && rules.echo_is_prompt;
  HELIOS_RETURN_IF_ERROR(check_scored_size(plan, context.limits, rules));
  Result<std::vector<SequenceRequest>> sequences = make_sequences(request, plan, grammar, context, rules);
  if (!sequences) return sequences.error();
  plan.sequences = std::move(*sequences);
  plan.output = output_options(request);
  plan.output.keep_terminating_entry = plan.prompt_scoring.echo_alternatives.has_value();
  plan.echo = request.echo;
  plan.stream_interval = request.stream_interval.value_or(1);
  plan.stream_options = request.stream_options;
  plan.logprobs = request.logprobs.has_value();
  plan.return_token_ids = request.return_token_ids;
  plan.request_id = request.request_id.value_or("");
  return plan;
}

void set_parsing(const OutputParsing& parsing, const Tokenizer& tokenizer, GenerationPlan* plan) {
  plan->parsing = parsing;
  for (const std::string_view delimiter : delimiters(parsing.format)) {
    const std::optional<TokenId> id = tokenizer.find_piece(delimiter);
    if (id && tokenizer.is_special(*id)) plan->output.shown_tokens.push_back(*id);
  }
  if (parsing.in_reasoning) plan->output.stops_after = kThinkClose;
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

}  // namespace helios
