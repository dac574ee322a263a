// What is refused before admission, and what an accepted request becomes: sequences for the engine, options for the
// text.
//
// The order of checks is the API's (first failure wins). Everything that the loaded core cannot do is refused here,
// with the remedy; nothing is silently ignored. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/protocol/completions_request.h"
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
};

/// Borrowed for a request's validation; all of it outlives the server's connections.
struct ValidationContext {
  const Tokenizer& tokenizer;
  const Capabilities& capabilities;
  const GenerationDefaults& defaults;
  const ServedModel& model;
  const ProtocolLimits& limits;
  GrammarCache& grammars;
};

struct PlannedPrompt {
  std::string echo_text;  // the string as sent, or the ids decoded; only filled under echo
  std::vector<TokenId> ids;
};

/// An accepted request. Choice index = prompt index * n + i; `sequences` has that order, and is empty for a zero
/// budget.
struct GenerationPlan {
  std::vector<PlannedPrompt> prompts;
  int64_t n = 1;
  std::vector<SequenceRequest> sequences;
  OutputOptions output;
  bool echo = false;
  bool stream = false;
  int64_t stream_interval = 1;  // tokens a chunk, after a choice's first
  StreamOptions stream_options;
  bool logprobs = false;
  bool return_token_ids = false;
  std::string request_id;  // the client's own, or empty

  size_t num_choices() const { return prompts.size() * static_cast<size_t>(n); }
};

/// Rows 3 to 14 of the validation table. Errors: kInvalidArgument, kNotFound (model), kNotImplemented, with the field.
Result<GenerationPlan> plan_completions(CompletionsRequest request, const ValidationContext& context);

/// Ok when `model` is absent, empty, or the served name.
Status check_model(const std::optional<std::string>& model, const ServedModel& served);

/// Seed of choice `i` of a request with seed `seed`: the seed itself for the first, independent streams for the others.
uint64_t choice_seed(uint64_t seed, int64_t i);

/// The most positions a sequence can ever hold: the model's limit, or all of the KV cache if that is less.
int64_t context_limit(const Capabilities& capabilities);

}  // namespace helios
