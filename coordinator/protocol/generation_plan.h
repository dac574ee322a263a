// What an accepted request becomes: sequences for the engine, options for the text, and how the reply is to look.
//
// One plan for every generating endpoint; they differ in how they get their prompts. Thread: the connection's strand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/parser/output_format.h"
#include "coordinator/protocol/generation_request.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/tokenizer/generation_defaults.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

struct ProtocolLimits {
  int64_t max_prompts = 1024;
  int64_t max_n = 16384;
  int64_t max_choices = 2048;  // prompts x n
  int64_t max_stop_strings = 64;
  int64_t max_stop_bytes = 65536;
  int64_t max_bad_words = 1024;
  int64_t max_bad_word_bytes = 65536;  // of all together
  /// Reported of all prompts of a reply; some 150 MB of JSON. A single one may exceed it.
  int64_t max_prompt_values = 1 << 21;
};

/// Borrowed for a request's validation; all of it outlives the server's connections.
struct ValidationContext {
  const Tokenizer& tokenizer;
  const Capabilities& capabilities;
  const GenerationDefaults& defaults;
  const ServedModel& model;
  const ProtocolLimits& limits;
  GrammarCache& grammars;
  OutputFormat output_format = {};  // how the served model marks reasoning and tool calls
};

/// Where a generation behind a prompt begins.
enum class ReasoningStart {
  kNone,    // in the answer
  kMay,     // in the answer, or with reasoning that the model opens
  kInside,  // inside reasoning
};

struct PlannedPrompt {
  ReasoningStart reasoning = ReasoningStart::kNone;
  std::string echo_text;              // what comes before the generated text; only filled under echo
  std::vector<int64_t> text_offsets;  // of each token into it, in code points; only under echo with logprobs
  std::vector<TokenId> ids;
  std::optional<std::string> text;  // chat: the rendered conversation, under return_prompt_text
};

/// How a scored prompt is shown: in the completions arrays under echo, as the list of prompt_logprobs, or both.
struct PromptScoring {
  std::optional<int32_t> echo_alternatives;  // natural ones at every prompt position of the arrays
  std::optional<int32_t> list_alternatives;  // and of the list
  bool any() const { return echo_alternatives || list_alternatives; }
  int32_t most_alternatives() const { return std::max(echo_alternatives.value_or(0), list_alternatives.value_or(0)); }
};

/// How a reply's text is told apart, and what of it the client wants. By default all of it is content.
struct OutputParsing {
  OutputFormat format;
  bool in_reasoning = false;  // the prompt ends inside reasoning
  bool include_reasoning = true;
  bool parallel_tool_calls = true;  // false: only the first
  bool calls_finish = true;         // a call makes the finish reason tool_calls
  bool count_reasoning = false;     // usage says how many tokens it took
  bool active() const { return format != OutputFormat(); }
  bool hides_reasoning() const { return !include_reasoning && format.reasoning != ReasoningFormat::kNone; }
};

/// An accepted request. Choice index = prompt index * n + i; `sequences` has that order. Under a zero budget only a
/// scored prompt has one, for its first choice.
struct GenerationPlan {
  std::vector<PlannedPrompt> prompts;
  int64_t n = 1;
  std::vector<SequenceRequest> sequences;
  OutputOptions output;
  OutputParsing parsing;
  bool echo = false;
  bool stream = false;
  int64_t stream_interval = 1;  // tokens a chunk, after a choice's first
  StreamOptions stream_options;
  bool logprobs = false;
  PromptScoring prompt_scoring;         // of each prompt once, by its first choice
  bool scores_in_every_choice = false;  // each choice shows them, not the first alone
  bool return_token_ids = false;
  std::string request_id;  // the client's own, or empty

  size_t num_choices() const { return prompts.size() * static_cast<size_t>(n); }
};

/// In what the endpoints differ where they check the same things.
struct EndpointRules {
  std::string_view prompt_field = "prompt";           // to blame when the prompt does not fit
  std::string_view alternatives_field = "logprobs";   // how many natural alternatives
  std::string_view ask_logprobs = "\"logprobs\": 0";  // what to send for entries without alternatives
  std::string_view max_tokens_field = "max_tokens";
  std::optional<int64_t> default_max_tokens;  // none: what the context still holds
  bool zero_budget = false;                   // max_tokens: 0 is allowed
  bool echo_is_prompt = false;                // echo repeats the prompt in every choice; its logprobs are prompt scores
};

/// The tokens around this model's reasoning; none where it is not read, or its vocabulary spells them out.
struct ThinkTokens {
  TokenId open = -1, close = -1;
};
std::optional<ThinkTokens> think_tokens(const ValidationContext& context);

/// Of an answer behind the rendered conversation `prompt`. `continued`: what an assistant's message that it goes on
/// with says; null: it begins one. Without think_tokens a model's own opening cannot be waited for: kNone.
ReasoningStart reasoning_start(std::string_view prompt, const std::string* continued, const ValidationContext& context);

/// Errors: kNotImplemented, when a constraint that `field` asked for would have to begin inside reasoning, and the
/// vocabulary has no token that ends it.
Status check_constrained_start(ReasoningStart start, std::string_view field, const ValidationContext& context);

/// How many tokens a prompt may keep under truncate_prompt_tokens; empty when it is not to be cut.
Result<std::optional<int64_t>> prompt_room(const GenerationRequest& request, int64_t limit, const EndpointRules& rules);

/// Cuts `ids` to `kept`, without the `fixed_front` and `fixed_back` ids that the tokenizer put around a text: those
/// stay while there is room for more than them.
void truncate_prompt(std::vector<TokenId>& ids, int64_t kept, bool cut_left, size_t fixed_front = 0,
                     size_t fixed_back = 0);
/// The end that truncation_side names.
bool cuts_left(const GenerationRequest& request);

/// A tokenizer may know more than the model: its added tokens can lie past the last row of the embedding.
Status check_prompt_ids(const std::vector<TokenId>& ids, int64_t vocab_size, std::string_view field);

/// Row 14: the prompt does not fit.
Error too_long(int64_t prompt_tokens, const GenerationRequest& request, int64_t limit, const EndpointRules& rules);

/// The sequences of checked prompts, and the options of their text. `grammar`: what the text must be; may be null.
/// Errors: kInvalidArgument, with the field.
Result<GenerationPlan> make_plan(GenerationRequest& request, std::vector<PlannedPrompt> prompts,
                                 std::shared_ptr<const CompiledGrammar> grammar, const ValidationContext& context,
                                 const EndpointRules& rules);

/// The plan's texts are parsed so: delimiters reach the parser though they be special tokens, and stop strings wait for
/// the answer.
void set_parsing(const OutputParsing& parsing, const Tokenizer& tokenizer, GenerationPlan* plan);

/// Seed of choice `i` of a request with seed `seed`: the seed itself for the first, independent streams for the others.
uint64_t choice_seed(uint64_t seed, int64_t i);

/// The most positions a sequence can ever hold: the model's limit, or all of the KV cache if that is less.
int64_t context_limit(const Capabilities& capabilities);

}  // namespace helios
