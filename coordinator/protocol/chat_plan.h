// From a chat request to a plan: the conversation rendered and tokenized, everything checked in the API's order.
#pragma once

#include "common/base/result.h"
#include "coordinator/protocol/chat_request.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_plan.h"

namespace helios {

/// Rows 3 to 14 of the validation table. Errors: kInvalidArgument, kNotFound (model), kNotImplemented, with the field.
Result<GenerationPlan> plan_chat(ChatRequest request, const ValidationContext& context, const ChatTemplates& templates);

/// A rendered conversation as a plan's one prompt: tokenized, its special tokens as such, cut if that was asked.
Result<PlannedPrompt> plan_rendered(const std::string& text, const GenerationRequest& request,
                                    const ValidationContext& context, const EndpointRules& rules);

}  // namespace helios
