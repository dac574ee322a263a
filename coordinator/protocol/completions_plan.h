// From a completions request to a plan: its prompts tokenized, everything checked in the API's order.
#pragma once

#include "common/base/result.h"
#include "coordinator/protocol/completions_request.h"
#include "coordinator/protocol/generation_plan.h"

namespace helios {

/// Rows 3 to 14 of the validation table. Errors: kInvalidArgument, kNotFound (model), kNotImplemented, with the field.
Result<GenerationPlan> plan_completions(CompletionsRequest request, const ValidationContext& context);

}  // namespace helios
