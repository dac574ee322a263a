// From a Responses request to a plan: the conversation rendered and tokenized, everything checked in the API's order.
#pragma once

#include "common/base/result.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/responses_request.h"

namespace helios {

/// Responses are not stored: the error for any id that a request or a path names.
ApiError response_not_found();

/// Rows 3 to 14 of the validation table. Fills the effective values of `request.echoed`.
/// Errors: kInvalidArgument, kNotFound (model), kNotImplemented, with the field.
Result<GenerationPlan> plan_responses(ResponsesRequest& request, const ValidationContext& context,
                                      const ChatTemplates& templates);

}  // namespace helios
