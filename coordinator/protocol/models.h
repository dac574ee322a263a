// GET /v1/models and /v1/models/{id}: what is served, and what it can report. Thread: any.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/protocol/identity.h"

namespace helios {

/// Without capabilities (no core loaded yet) the limits are null and logprobs are not allowed.
std::string models_reply(const ServedModel& model, const std::optional<Capabilities>& capabilities);
/// The card alone. Errors: kNotFound, param "model".
Result<std::string> model_reply(const std::string& id, const ServedModel& model,
                                const std::optional<Capabilities>& capabilities);

}  // namespace helios
