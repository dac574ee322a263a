// What /metrics says: vLLM's names where it has one, so that dashboards work unchanged; helios_ for what is ours.
//
// The engine thread and the connections count (atomics inside); a scrape adds what an EngineStatus says, the ranks' own
// counters included.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "coordinator/engine/engine_client.h"

namespace helios {

class ServerMetrics final : public EngineObserver {
 public:
  /// `num_proposals`: most that speculation offers at once, 0 without it.
  explicit ServerMetrics(const std::string& model_name, int32_t num_proposals = 0);
  ~ServerMetrics() override;

  // Engine thread.
  void on_tokens(int64_t prompt_tokens, int64_t generated_tokens) override;
  void on_prefix_lookup(int64_t prompt_tokens, int64_t cached_tokens, int64_t host_tokens) override;
  void on_preempted(int64_t sequences) override;
  void on_first_token(double queue_seconds, double time_to_first_token_seconds) override;
  void on_inter_token(double seconds, int64_t tokens) override;
  void on_verified(int32_t offered, int32_t accepted) override;
  void on_finished(const Finished& finished) override;
  void on_frame(const Frame& frame) override;

  // Connections. `reason`: "stop", "length", "abort" (the client left) or "error".
  void on_choice_finished(std::string_view reason);
  void on_response(int status);
  void on_connections(int change);

  /// The text exposition format, version 0.0.4.
  std::string render(const EngineStatus& status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
