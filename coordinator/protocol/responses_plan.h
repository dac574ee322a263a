// From a Responses request to a plan: the conversation rendered and tokenized, everything checked in the API's order.
#pragma once

#include "common/base/result.h"
#include "coordinator/parser/output_format.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/responses_request.h"

namespace helios {

/// Responses are not stored: the error for any id that a request or a path names.
ApiError response_not_found();

/// How the generated text is to be read.
struct ParsedOutput {
  OutputFormat format;
  bool in_reasoning = false;  // the prompt ends inside it
  bool one_call = false;      // calls after the first are dropped
};

/// Rows 3 to 14 of the validation table. `of_server`: what the server's parsers read; `parsed` becomes what this
/// request needs of it. Fills the effective values of `request.echoed`. Errors: kInvalidArgument, kNotFound (model),
/// kNotImplemented, with the field.
Result<GenerationPlan> plan_responses(ResponsesRequest& request, const ValidationContext& context,
                                      const ChatTemplates& templates, const OutputFormat& of_server,
                                      ParsedOutput* parsed);

}  // namespace helios
