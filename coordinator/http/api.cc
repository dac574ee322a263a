#include "coordinator/http/api.h"

#include <algorithm>

#include "coordinator/http/generation_reply.h"
#include "coordinator/http/health.h"
#include "coordinator/protocol/chat_plan.h"
#include "coordinator/protocol/chat_response.h"
#include "coordinator/protocol/completions_plan.h"
#include "coordinator/protocol/completions_response.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/models.h"
#include "coordinator/protocol/responses_plan.h"
#include "coordinator/protocol/responses_request.h"
#include "coordinator/protocol/responses_response.h"
#include "coordinator/protocol/tokenize.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

constexpr size_t kGrammarCacheBytes = size_t{256} << 20;

Error not_ready(const EngineStatus& status) {
  if (status.draining) return {Errc::kUnavailable, "the server is shutting down", ""};
  return {Errc::kUnavailable,
          status.reason.empty() ? "the model is not ready" : "the model is not ready: " + status.reason, ""};
}

std::string version_json() {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("version").string(kServerVersion).end_object();
  return out;
}

/// Over the tokenizer's ids, which a model may have more of: those are no text.
Result<std::shared_ptr<const GrammarVocabulary>> grammar_vocabulary(const Tokenizer& tokenizer,
                                                                    const GenerationDefaults& defaults) {
  int64_t size = tokenizer.vocab_size();
  for (const TokenId id : defaults.eos_ids) size = std::max<int64_t>(size, int64_t{id} + 1);
  auto vocabulary = GrammarVocabulary::from_tokenizer(tokenizer, size, defaults.eos_ids);
  if (!vocabulary) return Error{Errc::kInternal, vocabulary.error().message, ""};
  return vocabulary;
}

}  // namespace

Api::Api(Parts parts)
    : parts_(std::move(parts)),
      grammars_([this] { return grammar_vocabulary(parts_.tokenizer, parts_.defaults); }, kGrammarCacheBytes) {}

EngineStatus Api::status() const {
  EngineStatus status = parts_.engine.status();
  status.draining |= draining_;
  if (status.draining && status.reason.empty()) status.reason = "the server is shutting down";
  return status;
}

Answer Api::completions(const HttpRequest& http, WakeUp wake) {
  Result<CompletionsRequest> request = parse_completions_request(http.body);
  if (!request) return error_reply(request.error());
  const std::optional<std::string> model = request->model;
  const Endpoint endpoint{
      .id_prefix = "cmpl-",
      .plan = [&](const ValidationContext& context) { return plan_completions(std::move(*request), context); },
      .format = [](const GenerationPlan& plan, ReplyHeader header) -> std::unique_ptr<ReplyFormat> {
        return std::make_unique<CompletionsFormat>(plan, std::move(header));
      }};
  return generate(http, std::move(wake), model, endpoint);
}

Answer Api::chat_completions(const HttpRequest& http, WakeUp wake) {
  Result<ChatRequest> request = parse_chat_request(http.body);
  if (!request) return error_reply(request.error());
  const std::optional<std::string> model = request->model;
  const Endpoint endpoint{
      .id_prefix = "chatcmpl-",
      .plan =
          [&](const ValidationContext& context) {
            return plan_chat(std::move(*request), context, parts_.chat_templates);
          },
      .format = [this](const GenerationPlan& plan, ReplyHeader header) -> std::unique_ptr<ReplyFormat> {
        return std::make_unique<ChatFormat>(plan, std::move(header), parts_.tokenizer, parts_.reasoning_content);
      }};
  return generate(http, std::move(wake), model, endpoint);
}

Answer Api::responses(const HttpRequest& http, WakeUp wake) {
  Result<ResponsesRequest> request = parse_responses_request(http.body);
  if (!request) return error_reply(request.error());
  if (Status known = check_model(request->model, parts_.model); !known) return error_reply(known.error());
  if (request->previous_response_id) return error_reply(response_not_found());
  const Endpoint endpoint{
      .id_prefix = "resp_",
      .plan =
          [&](const ValidationContext& context) { return plan_responses(*request, context, parts_.chat_templates); },
      .format = [&](const GenerationPlan& plan, ReplyHeader header) -> std::unique_ptr<ReplyFormat> {
        return std::make_unique<ResponsesFormat>(plan, std::move(header), std::move(request->echoed), parts_.tokenizer);
      },
      .prompt_tokens_details = true};
  return generate(http, std::move(wake), request->model, endpoint);
}

Answer Api::generate(const HttpRequest& http, WakeUp wake, const std::optional<std::string>& model,
                     const Endpoint& endpoint) {
  if (Status known = check_model(model, parts_.model); !known) return error_reply(known.error());
  const EngineStatus engine = status();
  if (engine.draining || !engine.ready || !engine.capabilities) return error_reply(not_ready(engine));

  const ValidationContext context{parts_.tokenizer, *engine.capabilities, parts_.defaults, parts_.model, parts_.limits,
                                  grammars_,        parts_.output_format};
  Result<GenerationPlan> planned = endpoint.plan(context);
  if (!planned) return error_reply(planned.error());
  auto plan = std::make_unique<GenerationPlan>(std::move(*planned));

  std::vector<std::shared_ptr<SequenceStream>> streams;
  if (!plan->sequences.empty()) {
    auto submitted = parts_.engine.submit(std::move(plan->sequences), std::move(wake));
    if (!submitted) return error_reply(submitted.error());
    streams = std::move(*submitted);
  }
  // The client's header beats its body field, and both beat chance.
  const bool from_body = !http.client_request_id && !plan->request_id.empty();
  ReplyHeader header{.id = std::string(endpoint.id_prefix) + (from_body ? plan->request_id : http.request_id),
                     .created = unix_seconds(),
                     .model = parts_.model.name,
                     .fingerprint = parts_.model.fingerprint};
  auto format = endpoint.format(*plan, std::move(header));
  return std::make_unique<GenerationReply>(std::move(plan), std::move(format), parts_.tokenizer, std::move(streams),
                                           parts_.metrics,
                                           parts_.prompt_tokens_details || endpoint.prompt_tokens_details);
}

HttpReply Api::tokenize(const HttpRequest& request) const {
  const std::optional<Capabilities> capabilities = parts_.engine.status().capabilities;
  const std::optional<int64_t> max_model_len =
      capabilities ? std::optional(context_limit(*capabilities)) : std::nullopt;
  return json_reply_or_error(
      tokenize_reply(request.body, parts_.tokenizer, parts_.chat_templates, parts_.model, max_model_len));
}

HttpReply Api::detokenize(const HttpRequest& request) const {
  const std::optional<Capabilities> capabilities = parts_.engine.status().capabilities;
  const int64_t vocab_size = capabilities ? capabilities->vocab_size : parts_.tokenizer.vocab_size();
  return json_reply_or_error(detokenize_reply(request.body, parts_.tokenizer, parts_.model, vocab_size));
}

void Api::add_routes(Router& router) {
  router.add_json_post("/v1/completions", [this](const HttpRequest& request, std::string_view, WakeUp wake) -> Answer {
    return completions(request, std::move(wake));
  });
  router.add_json_post("/v1/chat/completions",
                       [this](const HttpRequest& request, std::string_view, WakeUp wake) -> Answer {
                         return chat_completions(request, std::move(wake));
                       });
  router.add_json_post("/v1/responses", [this](const HttpRequest& request, std::string_view, WakeUp wake) -> Answer {
    return responses(request, std::move(wake));
  });
  for (const char* method : {"GET", "POST", "DELETE"}) {  // to look at one, cancel it, or delete it
    router.add(method, "/v1/responses/*", [](const HttpRequest&, std::string_view, WakeUp) -> Answer {
      return error_reply(response_not_found());
    });
  }
  router.add("GET", "/v1/models", [this](const HttpRequest&, std::string_view, WakeUp) -> Answer {
    return json_reply(200, models_reply(parts_.model, parts_.engine.status().capabilities));
  });
  router.add("GET", "/v1/models/*", [this](const HttpRequest&, std::string_view id, WakeUp) -> Answer {
    return json_reply_or_error(model_reply(std::string(id), parts_.model, parts_.engine.status().capabilities));
  });
  router.add_json_post("/tokenize", [this](const HttpRequest& request, std::string_view, WakeUp) -> Answer {
    return tokenize(request);
  });
  router.add_json_post("/detokenize", [this](const HttpRequest& request, std::string_view, WakeUp) -> Answer {
    return detokenize(request);
  });
  router.add("GET", "/tokenizer_info", [this](const HttpRequest&, std::string_view, WakeUp) -> Answer {
    return json_reply(200, tokenizer_info_reply(parts_.tokenizer, parts_.chat_templates));
  });
  add_probes(router);
}

void Api::add_probes(Router& router) {
  const auto health = [this](const HttpRequest&, std::string_view, WakeUp) -> Answer {
    return health_reply(status(), parts_.model.name);
  };
  router.add("GET", "/health", health);
  router.add("GET", "/ping", health);
  router.add("POST", "/ping", health);
  router.add("GET", "/livez", [](const HttpRequest&, std::string_view, WakeUp) -> Answer {
    return json_reply(200, R"({"status":"ok"})");
  });
  router.add("GET", "/readyz",
             [this](const HttpRequest&, std::string_view, WakeUp) -> Answer { return readiness_reply(status()); });
  router.add("GET", "/version",
             [](const HttpRequest&, std::string_view, WakeUp) -> Answer { return json_reply(200, version_json()); });
  router.add("GET", "/load",
             [this](const HttpRequest&, std::string_view, WakeUp) -> Answer { return load_reply(status()); });
  router.add("GET", "/metrics", [this](const HttpRequest&, std::string_view, WakeUp) -> Answer {
    return HttpReply{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = parts_.metrics.render(status())};
  });
}

}  // namespace helios
