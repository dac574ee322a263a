#include "coordinator/http/health.h"

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

bool any_rank_loads(const EngineStatus& status) {
  for (const RankStatus& rank : status.ranks) {
    if (rank.state == RankState::kStarting || rank.state == RankState::kLoading) return true;
  }
  return false;
}

std::string_view status_word(const EngineStatus& status) {
  if (status.draining) return "draining";
  if (status.ready) return "ok";
  return any_rank_loads(status) ? "loading" : "unavailable";
}

double load_progress(const EngineStatus& status) {
  if (status.ready) return 1.0;
  double sum = 0.0;
  for (const RankStatus& rank : status.ranks) sum += rank.state == RankState::kReady ? 1.0 : rank.load_progress;
  return status.ranks.empty() ? 0.0 : sum / static_cast<double>(status.ranks.size());
}

void write_memory(JsonWriter& json, const MemoryReport& memory) {
  json.key("memory").begin_object();
  json.key("weights_bytes").integer(memory.weights_bytes);
  json.key("kv_cache_bytes").integer(memory.kv_cache_bytes);
  json.key("bundle_bytes").integer(memory.bundle_bytes);
  json.key("workspace_bytes").integer(memory.workspace_bytes);
  json.key("scoring_bytes").integer(memory.scoring_bytes);
  json.key("pinned_bytes").integer(memory.pinned_bytes);
  json.key("host_tier_bytes").integer(memory.host_tier_bytes);
  json.key("device_allocated_bytes").integer(memory.device_allocated_bytes);
  json.key("device_reserved_bytes").integer(memory.device_reserved_bytes);
  json.end_object();
}

void write_rank(JsonWriter& json, const RankStatus& rank) {
  json.begin_object();
  json.key("rank").integer(rank.rank.value);
  json.key("pid").integer(rank.pid);
  json.key("state").string(to_string(rank.state));
  json.key("device").string(rank.device);
  json.key("host").string(rank.host_name);
  json.key("status_url");
  rank.status_url.empty() ? json.null() : json.string(rank.status_url);
  json.key("heartbeat_age_s").number(rank.heartbeat_age_s);
  json.key("load_progress").number(rank.load_progress);
  json.key("resident_bytes").integer(rank.resident_bytes);
  write_memory(json, rank.memory);
  json.end_object();
}

HttpReply with_retry_when_unavailable(HttpReply reply) {
  if (reply.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace

HttpReply health_reply(const EngineStatus& status, const std::string& model_name) {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  json.key("status").string(status_word(status));
  json.key("reason");
  status.reason.empty() ? json.null() : json.string(status.reason);
  json.key("model").string(model_name);
  json.key("incarnation").integer(status.incarnation);
  json.key("running").integer(status.running);
  json.key("waiting").integer(status.waiting);
  json.key("kv_cache_usage").number(status.kv_cache_usage);
  json.key("ranks").begin_array();
  for (const RankStatus& rank : status.ranks) write_rank(json, rank);
  json.end_array().end_object();
  return with_retry_when_unavailable(json_reply(status.ready && !status.draining ? 200 : 503, std::move(body)));
}

HttpReply readiness_reply(const EngineStatus& status) {
  const bool ready = status.ready && !status.draining;
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  json.key("status").string(status_word(status));
  json.key("reason");
  status.reason.empty() ? json.null() : json.string(status.reason);
  json.key("load_progress").number(load_progress(status));
  json.end_object();
  return with_retry_when_unavailable(json_reply(ready ? 200 : 503, std::move(body)));
}

HttpReply load_reply(const EngineStatus& status) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("server_load").integer(status.running).end_object();
  return json_reply(200, std::move(body));
}

}  // namespace helios
