// What is refused before admission, whichever endpoint asks.
//
// The order of checks is the API's (first failure wins). Everything that the loaded core cannot do is refused here,
// with the remedy; nothing is silently ignored. Thread: the connection's strand.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/generation_request.h"

namespace helios {

/// Rows 3 to 5 of the validation table. Errors: kInvalidArgument, kNotFound (model), with the field.
Status check_before_prompt(const GenerationRequest& request, const ValidationContext& context,
                           const EndpointRules& rules);

/// Row 6, once the number of prompts is known.
Status check_choices(size_t num_prompts, const GenerationRequest& request, const ProtocolLimits& limits);

/// Rows 7 to 12; what the text must be, compiled, or null. Errors: kInvalidArgument, kNotImplemented, with the field.
Result<std::shared_ptr<const CompiledGrammar>> check_after_prompt(GenerationRequest& request,
                                                                  const ValidationContext& context,
                                                                  const EndpointRules& rules);

/// One constraint on the text, compiled. Errors: kInvalidArgument with the field that asked for it.
Result<std::shared_ptr<const CompiledGrammar>> compile_constraint(const StructuredOutput& output,
                                                                  const ValidationContext& context);

/// What `constrained` the request to, or calls of `tools` in its place. Errors: kInvalidArgument for a tool's schema;
/// kNotImplemented when the model marks calls with a control token, which is no text to a grammar.
Result<std::shared_ptr<const CompiledGrammar>> compile_with_calls(const StructuredOutput& constrained,
                                                                  std::span<const ToolSignature> tools, bool parallel,
                                                                  const ValidationContext& context);

/// Row 13, but for the prompt's own ids.
Status check_token_ids(const GenerationRequest& request, int64_t vocab_size);

/// Ok when `model` is absent, empty, or the served name.
Status check_model(const std::optional<std::string>& model, const ServedModel& served);

/// Errors: kInvalidArgument, when an id is outside [0, vocab_size).
Status check_vocabulary(std::string_view field, const std::vector<int64_t>& ids, int64_t vocab_size);

/// A key of logit_bias: a decimal token id of the vocabulary.
std::optional<TokenId> bias_id(std::string_view key, int64_t vocab_size);

}  // namespace helios
