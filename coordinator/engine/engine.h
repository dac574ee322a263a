// The coordinator's engine: one thread that owns the scheduler, the frame ledger and the rank sockets.
//
// Everybody else talks to it through this class: submit, cancel (by dropping a stream), status, drain, stop. All of
// them may be called from any thread but the engine's own, that is, not from `notify`, `on_ready` or the observer.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/net/cluster_key.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/proposer/prompt_lookup.h"
#include "coordinator/submission/rank_set.h"

namespace helios {

struct EngineConfig {
  std::string rank_endpoint = "tcp://127.0.0.1:0";   // what the ROUTER binds
  std::optional<ClusterKey> cluster_key;             // what ranks must hold to be heard
  RankSetConfig ranks;                               // world size, collective, heartbeat and step limits
  size_t max_waiting = 1024;                         // sequences without a slot; more are refused with kQueueFull
  size_t stream_capacity = 256;                      // events a consumer may leave unread before its sequence pauses
  PromptLookupOptions proposals;                     // speculation, as far as the ranks verify it
  bool prefix_cache = true;                          // reuse the KV cache blocks of prefixes that were computed before
  std::chrono::milliseconds restart_wait{30000};     // how long queued sequences wait for lost ranks to come back
  std::chrono::milliseconds rank_drain_limit{5000};  // what ranks have to leave after Drain
  std::function<void()> on_ready;                    // on the engine thread, each time a rank set opens; must be cheap
};

class EngineLoop;

class Engine final : public EngineClient {
 public:
  /// Binds and starts the thread. `observer` may be null, else outlives the engine. Errors: the endpoint cannot be
  /// bound.
  static Result<std::unique_ptr<Engine>> start(EngineConfig config, EngineObserver* observer);
  /// stop().
  ~Engine() override;

  Result<std::vector<std::shared_ptr<SequenceStream>>> submit(std::vector<SequenceRequest> requests,
                                                              Notify notify) override;
  EngineStatus status() const override;

  /// The resolved endpoint that ranks connect to.
  const std::string& rank_endpoint() const;

  /// Refuses new sequences, finishes the accepted ones within `limit` (the rest get kUnavailable), lets the ranks
  /// leave, and ends the thread. Returns when that is done.
  void drain(std::chrono::milliseconds limit);

  /// Ends at once: sequences get kUnavailable, ranks get Abort. Also cuts a drain() on another thread short.
  void stop();

 private:
  explicit Engine(std::unique_ptr<EngineLoop> loop);
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace helios
