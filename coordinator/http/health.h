// What probes and people read: /health, /livez, /readyz, /load. Plain values from one EngineStatus. Thread: any.
#pragma once

#include <string>

#include "coordinator/engine/engine_client.h"
#include "coordinator/http/message.h"

namespace helios {

/// 200 when the cluster can finish a step, else 503 with the same body: status, reason, model, every rank.
HttpReply health_reply(const EngineStatus& status, const std::string& model_name);
/// 200 when a new request would be served; else 503 with the reason and the ranks' mean load progress.
HttpReply readiness_reply(const EngineStatus& status);
/// {"server_load": sequences running}.
HttpReply load_reply(const EngineStatus& status);

}  // namespace helios
