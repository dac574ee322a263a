// The server's paths and what answers them: the one place where protocol, tokenizer and engine meet. No sockets here.
//
// Everything is borrowed and outlives the server's connections. Thread: the connections' strands, all at once.
#pragma once

#include <atomic>
#include <string>

#include "coordinator/engine/engine_client.h"
#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/router.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/tokenizer/generation_defaults.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

class Api {
 public:
  struct Parts {
    const Tokenizer& tokenizer;
    EngineClient& engine;
    ServerMetrics& metrics;
    GenerationDefaults defaults;
    ServedModel model;
    ProtocolLimits limits;
    bool prompt_tokens_details = false;  // usage says how many prompt tokens were cached
  };
  explicit Api(Parts parts);

  void add_routes(Router& router);

  /// From now on readiness is off and new work is refused with 503; what runs goes on. Any thread.
  void drain() { draining_ = true; }

 private:
  EngineStatus status() const;
  Answer completions(const HttpRequest& request, WakeUp wake);
  HttpReply tokenize(const HttpRequest& request) const;
  HttpReply detokenize(const HttpRequest& request) const;
  void add_probes(Router& router);

  Parts parts_;
  GrammarCache grammars_;
  std::atomic<bool> draining_ = false;
};

}  // namespace helios
