// The server's paths and what answers them: the one place where protocol, tokenizer and engine meet. No sockets here.
//
// Everything is borrowed and outlives the server's connections. Thread: the connections' strands, all at once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/engine/engine_client.h"
#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/router.h"
#include "coordinator/parser/output_format.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/protocol/reply_format.h"
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
    ChatTemplates chat_templates = {};
    OutputFormat output_format = {};
    bool reasoning_content = false;      // chat's reasoning under its older name too
    bool prompt_tokens_details = false;  // usage says how many prompt tokens were cached
  };
  explicit Api(Parts parts);

  void add_routes(Router& router);

  /// From now on readiness is off and new work is refused with 503; what runs goes on. Any thread.
  void drain() { draining_ = true; }

 private:
  EngineStatus status() const;
  Answer completions(const HttpRequest& request, WakeUp wake);
  Answer chat_completions(const HttpRequest& request, WakeUp wake);
  Answer responses(const HttpRequest& request, WakeUp wake);
  /// What every generating endpoint does with a parsed request: plan it, admit it, present what comes.
  struct Endpoint {
    std::string_view id_prefix;  // of the reply's id
    std::function<Result<GenerationPlan>(const ValidationContext&)> plan;
    std::function<std::unique_ptr<ReplyFormat>(const GenerationPlan&, ReplyHeader)> format;
    bool prompt_tokens_details = false;  // its usage always has them
  };
  Answer generate(const HttpRequest& request, WakeUp wake, const std::optional<std::string>& model,
                  const Endpoint& endpoint);
  HttpReply tokenize(const HttpRequest& request) const;
  HttpReply detokenize(const HttpRequest& request) const;
  void add_probes(Router& router);

  Parts parts_;
  GrammarCache grammars_;
  std::atomic<bool> draining_ = false;
};

}  // namespace helios
