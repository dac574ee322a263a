// The API over loopback: real server, real tokenizer and text path; only the engine's tokens are dictated.
#pragma once

#include "coordinator/http/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http/http_server.h"
#include "tests/coordinator/http/raw_client.h"
#include "tests/coordinator/http/scripted_engine.h"
#include "tests/coordinator/protocol/tiny_tokenizer.h"

namespace helios::testing {

struct ApiTest : ::testing::Test {
  void start(const std::string& api_key = "") {
    router = std::make_unique<Router>(api_key);
    api = std::make_unique<Api>(
        Api::Parts{*tiny_tokenizer(), engine, metrics, {.eos_ids = {256, 257}}, model, {}, templates});
    api->add_routes(*router);
    HttpOptions options{.port = 0, .send_buffer_bytes = 65536, .write_timeout = std::chrono::seconds(2)};
    options.on_response = [this](int status) { metrics.on_response(status); };
    auto started = HttpServer::start(options, *router);
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }
  void start_with_template() {
    auto loaded = ChatTemplate::from_source("{% for m in messages %}{{ m.content }}{% endfor %}:");
    ASSERT_TRUE(loaded);
    templates = {.loaded = *loaded, .reason = ""};
    start();
  }
  uint16_t port() const { return server->port(); }
  /// Sends the token ids of `text`, ending at the token limit.
  static void generate(ScriptedStream& stream, const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      stream.token(static_cast<unsigned char>(text[i]),
                   i + 1 == text.size() ? FinishCode::kTokenLimit : FinishCode::kNone);
    }
  }
  std::string metric(const std::string& name) {
    const std::string all = metrics.render(engine.status());
    const size_t at = all.find("\n" + name);
    return at == std::string::npos ? "" : all.substr(at + 1, all.find('\n', at + 1) - at - 1);
  }

  ServedModel model{.name = "tiny", .root = "/models/tiny", .created = 1767225600, .fingerprint = "fp"};
  ServerMetrics metrics{"tiny"};
  ScriptedEngine engine;
  ChatTemplates templates;
  std::unique_ptr<Router> router;
  std::unique_ptr<Api> api;
  std::unique_ptr<HttpServer> server;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) return {"malformed: " + body.substr(at)};
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

}  // namespace helios::testing
