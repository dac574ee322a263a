// The API over loopback: real server, real tokenizer and text path; only the engine's tokens are dictated.

#include "coordinator/http/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "coordinator/http/http_server.h"
#include "tests/coordinator/http/raw_client.h"
#include "tests/coordinator/http/scripted_engine.h"
#include "tests/coordinator/protocol/tiny_tokenizer.h"

namespace helios::testing {
namespace {

using namespace std::chrono_literals;

struct ApiTest : ::testing::Test {
  void start(const std::string& api_key = "") {
    router = std::make_unique<Router>(api_key);
    api = std::make_unique<Api>(
        Api::Parts{*tiny_tokenizer(), engine, metrics, {.eos_ids = {256, 257}}, model, {}, templates});
    api->add_routes(*router);
    HttpOptions options{.port = 0, .send_buffer_bytes = 65536, .write_timeout = 2s};
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

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) return {"malformed: " + body.substr(at)};
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

TEST_F(ApiTest, APlainCompletion) {
  start();
  RawClient client(port());
  client.send(
      post("/v1/completions", R"({"prompt":"Hi","max_tokens":3,"return_token_ids":true})", "X-Request-Id: req-1\r\n"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  EXPECT_EQ(engine.request(0).prompt, (std::vector<TokenId>{'H', 'i'}));
  generate(*stream, "abc");
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("x-request-id"), "req-1");
  EXPECT_TRUE(has(response.body, R"({"id":"cmpl-req-1","object":"text_completion","created":)")) << response.body;
  EXPECT_TRUE(has(response.body,
                  R"("choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"length","stop_reason":null,)"
                  R"("token_ids":[97,98,99],"prompt_logprobs":null,"prompt_token_ids":[72,105]}])"))
      << response.body;
  EXPECT_TRUE(has(response.body, R"("usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,)"))
      << response.body;
}

TEST_F(ApiTest, LogprobsReachTheReply) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"Hi","max_tokens":1,"logprobs":2})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  EXPECT_TRUE(engine.request(0).logprobs);
  EXPECT_EQ(engine.request(0).num_logprobs, 2);
  TokenEvent event{.token = 'x',
                   .logprobs = PositionLogprobs{-1.5f, {{'y', -0.5f}, {'x', -1.5f}}},
                   .finish = FinishCode::kTokenLimit};
  stream->push(event);
  EXPECT_TRUE(has(
      client.read_response().body,
      R"("logprobs":{"text_offset":[0],"token_logprobs":[-1.5],"tokens":["x"],"top_logprobs":[{"y":-0.5,"x":-1.5}]})"));
}

PromptScores scores_of(int32_t first, const std::string& tokens, FinishCode finish = FinishCode::kNone) {
  PromptScores scores{.first = first, .finish = finish};
  for (const char c : tokens) {
    scores.scores.push_back(PromptScore{.token = c, .logprob = -1.5f, .rank = 2, .alternatives = {{'x', -0.5f}, {'y', -2.5f}}});
  }
  return scores;
}
TokenEvent scored_token(TokenId id, FinishCode finish = FinishCode::kNone) {
  return {.token = id, .logprobs = PositionLogprobs{-0.25f, {{id, -0.25f}}}, .finish = finish};
}

TEST_F(ApiTest, EchoedLogprobsAndTheListOfPromptLogprobs) {  // R46
  start();
  RawClient client(port());
  client.send(post("/v1/completions",
                   R"({"prompt":"Hi!","max_tokens":1,"echo":true,"logprobs":1,"prompt_logprobs":2,"temperature":0})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  EXPECT_TRUE(engine.request(0).prompt_scores);
  EXPECT_EQ(engine.request(0).num_prompt_logprobs, 2);
  stream->push(scores_of(1, "i"));
  stream->push(scores_of(2, "!"));
  stream->push(scored_token(256, FinishCode::kEos));  // it keeps its entry: wire formats, 0.1
  const std::string body = client.read_response().body;
  EXPECT_TRUE(has(body, R"("text":"Hi!","logprobs":{"text_offset":[0,1,2,3],"token_logprobs":[null,-1.5,-1.5,-0.25],)"
                        R"("tokens":["H","i","!","<eos>"],"top_logprobs":[null,{"x":-0.5,"i":-1.5},{"x":-0.5,"!":-1.5},)"
                        R"({"<eos>":-0.25}]},"finish_reason":"stop")"))
      << body;
  EXPECT_TRUE(has(body, R"("prompt_logprobs":[null,{"105":{"logprob":-1.5,"rank":2,"decoded_token":"i"},)"
                        R"("120":{"logprob":-0.5,"rank":1,"decoded_token":"x"},)"
                        R"("121":{"logprob":-2.5,"rank":2,"decoded_token":"y"}},{"33":)"))
      << body;
}

TEST_F(ApiTest, WithoutABudgetTheScoresAreTheAnswer) {  // R38
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":[[72,105],[72]],"max_tokens":0,"echo":true,"logprobs":0})"));
  ASSERT_TRUE(engine.stream(1));
  EXPECT_EQ(engine.request(0).sampling.max_tokens, 0);
  engine.stream(0)->push(scores_of(1, "i", FinishCode::kTokenLimit));
  engine.stream(1)->push(PromptScores{.finish = FinishCode::kTokenLimit});
  const std::string body = client.read_response().body;
  EXPECT_TRUE(has(body, R"("text":"Hi","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-1.5],"tokens":["H","i"],)"
                        R"("top_logprobs":[null,{"i":-1.5}]},"finish_reason":"length")"))
      << body;
  EXPECT_TRUE(has(body, R"("text":"H","logprobs":{"text_offset":[0],"token_logprobs":[null],"tokens":["H"],)"
                        R"("top_logprobs":[null]},"finish_reason":"length")"))
      << body;
  EXPECT_TRUE(has(body, R"("usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0,)")) << body;
}

TEST_F(ApiTest, AStreamSendsPromptChunksInOrderAndTheLastWithTheFirstToken) {  // R40
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"Hi!?","max_tokens":2,"echo":true,"logprobs":0,"stream":true})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  stream->push(scores_of(1, "i"));
  stream->push(scores_of(2, "!?"));
  stream->push(scored_token('a'));
  stream->push(scored_token('b', FinishCode::kTokenLimit));
  const std::vector<std::string> events = events_of(client.read_response().body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(has(events[0], R"("text":"Hi!?","logprobs":{"text_offset":[0,1],"token_logprobs":[null,-1.5],)")) << events[0];
  EXPECT_TRUE(has(events[1], R"("text":"a","logprobs":{"text_offset":[2,3,4],"token_logprobs":[-1.5,-1.5,-0.25],)"
                             R"("tokens":["!","?","a"])"))
      << events[1];
  EXPECT_TRUE(has(events[2], R"("text":"b","logprobs":{"text_offset":[5],)")) << events[2];
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(ApiTest, APromptOfOneTokenHasANullBeforeTheTokens) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"H","max_tokens":1,"echo":true,"logprobs":0,"prompt_logprobs":0})"));
  ASSERT_TRUE(engine.stream(0));
  engine.stream(0)->push(scored_token('a', FinishCode::kTokenLimit));
  const std::string body = client.read_response().body;
  EXPECT_TRUE(has(body, R"("token_logprobs":[null,-0.25],"tokens":["H","a"])")) << body;
  EXPECT_TRUE(has(body, R"("prompt_logprobs":[null])")) << body;
}

// One choice scores the prompt for all; what the others have generated by then waits.
TEST_F(ApiTest, EveryChoiceShowsThePromptsScores) {
  start();
  RawClient client(port());
  const std::string body =
      R"({"prompt":["Hi!","Ho"],"n":2,"max_tokens":1,"echo":true,"logprobs":0,"prompt_logprobs":0})";
  client.send(post("/v1/completions", body));
  ASSERT_TRUE(engine.stream(3));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(engine.request(i).prompt_scores, i % 2 == 0) << i;
  engine.stream(1)->push(scored_token('b', FinishCode::kTokenLimit));
  engine.stream(3)->push(scored_token('d', FinishCode::kTokenLimit));
  engine.stream(2)->push(scores_of(1, "o"));
  engine.stream(2)->push(scored_token('c', FinishCode::kTokenLimit));
  engine.stream(0)->push(scores_of(1, "i"));
  engine.stream(0)->push(scores_of(2, "!"));
  engine.stream(0)->push(scored_token('a', FinishCode::kTokenLimit));
  const std::string plain = client.read_response().body;
  for (const char* text : {"Hi!a", "Hi!b"}) {
    EXPECT_TRUE(has(plain, std::string("\"text\":\"") + text +
                               R"(","logprobs":{"text_offset":[0,1,2,3],"token_logprobs":[null,-1.5,-1.5,-0.25])"))
        << plain;
  }
  for (const char* text : {"Hoc", "Hod"}) EXPECT_TRUE(has(plain, std::string("\"text\":\"") + text)) << plain;
  size_t lists = 0;
  for (size_t at = 0; (at = plain.find(R"("prompt_logprobs":[null,{")", at)) != std::string::npos; ++at) ++lists;
  EXPECT_EQ(lists, 4u);
  EXPECT_TRUE(has(plain, R"("usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4,)")) << plain;
}

TEST_F(ApiTest, AStreamOfSeveralChoicesShowsThePromptsScoresInEach) {
  start();
  RawClient client(port());
  client.send(
      post("/v1/completions", R"({"prompt":["Hi!","H"],"n":2,"max_tokens":1,"echo":true,"logprobs":0,"stream":true})"));
  ASSERT_TRUE(engine.stream(3));
  engine.stream(1)->push(scored_token('b', FinishCode::kTokenLimit));
  engine.stream(0)->push(scores_of(1, "i"));
  engine.stream(0)->push(scores_of(2, "!"));
  engine.stream(0)->push(scored_token('a', FinishCode::kTokenLimit));
  engine.stream(3)->push(scored_token('d', FinishCode::kTokenLimit));
  engine.stream(2)->push(scored_token('c', FinishCode::kTokenLimit));  // a prompt of one token has no scores
  std::map<char, std::string> tokens;
  for (const std::string& event : events_of(client.read_response().body)) {
    const size_t index = event.find("\"index\":"), at = event.find("\"tokens\":[");
    if (index == std::string::npos || at == std::string::npos) continue;
    tokens[event[index + 8]] += event.substr(at + 9, event.find(']', at) - at - 8);
  }
  EXPECT_EQ(tokens['0'], R"(["H","i"]["!","a"])");
  EXPECT_EQ(tokens['1'], R"(["H","i"]["!","b"])");
  EXPECT_EQ(tokens['2'], R"(["H","c"])");
  EXPECT_EQ(tokens['3'], R"(["H","d"])");
}

TEST_F(ApiTest, WithoutABudgetOneSequenceAPromptIsAllThereIs) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":["Hi","H"],"n":3,"max_tokens":0,"echo":true,"logprobs":0})"));
  ASSERT_TRUE(engine.stream(1));
  engine.stream(0)->push(scores_of(1, "i", FinishCode::kTokenLimit));
  engine.stream(1)->push(PromptScores{.finish = FinishCode::kTokenLimit});
  const std::string body = client.read_response().body;
  size_t pairs = 0, singles = 0;
  for (size_t at = 0; (at = body.find(R"("tokens":["H","i"])", at)) != std::string::npos; ++at) ++pairs;
  for (size_t at = 0; (at = body.find(R"("tokens":["H"])", at)) != std::string::npos; ++at) ++singles;
  EXPECT_EQ(pairs, 3u) << body;
  EXPECT_EQ(singles, 3u) << body;
}

TEST_F(ApiTest, AResponseIsCreatedWhenItIsAccepted) {
  start_with_template();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"Hi","max_output_tokens":2,"stream":true})"));
  const std::string first = client.read_until("response.in_progress\",\"sequence_number\":1");
  EXPECT_TRUE(has(first, "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0"))
      << first;
  EXPECT_TRUE(has(first, "200 OK")) << "and no token has come yet";
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  stream->push(Error{Errc::kUnavailable, "a rank is lost", ""});
  const std::string rest = client.read_until("event: response.failed");
  EXPECT_TRUE(has(rest, "event: error\n")) << rest;
}

TEST_F(ApiTest, OneScrapeShowsTheCountersOfEveryRank) {
  engine.change([](EngineStatus& status) {
    status.ranks.push_back(status.ranks[0]);
    status.ranks[1].rank = Rank(1);
    status.ranks[0].counters = {{"helios_logprob_vocab_words_read_total", 768.0}, {"helios_logprob_launches", 6.0}};
    status.ranks[1].counters = {{"helios_logprob_vocab_words_read_total", 3e15}};
  });
  const std::string all = metrics.render(engine.status());
  EXPECT_TRUE(
      has(all, "\n# TYPE helios_logprob_launches gauge\nhelios_logprob_launches{model_name=\"tiny\",rank=\"0\"} 6\n"))
      << all;
  EXPECT_TRUE(has(all,
                  "\n# TYPE helios_logprob_vocab_words_read_total counter\n"
                  "helios_logprob_vocab_words_read_total{model_name=\"tiny\",rank=\"0\"} 768\n"
                  "helios_logprob_vocab_words_read_total{model_name=\"tiny\",rank=\"1\"} 3000000000000000\n"))
      << all;
}

TEST_F(ApiTest, AStreamIntervalGathersTokensAfterTheFirst) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":9,"stream":true,"stream_interval":3,"logprobs":0,)"
                                      R"("return_token_ids":true})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  const auto token = [&](char c, FinishCode finish = FinishCode::kNone) {
    stream->push(TokenEvent{.token = c, .logprobs = PositionLogprobs{-1.5f, {}}, .finish = finish});
  };
  token('a');
  EXPECT_TRUE(has(client.read_until("\n\n"), R"("text":"a")")) << "the first token waits for nobody";
  for (const char c : std::string("bcdefgh")) token(c);
  token('i', FinishCode::kTokenLimit);
  const std::string rest = client.read_until("data: [DONE]\n\n");
  size_t chunks = 0;
  for (size_t at = 0; (at = rest.find("\"object\":\"text_completion\"", at)) != std::string::npos; ++at) ++chunks;
  EXPECT_EQ(chunks, 3u) << rest;
  EXPECT_TRUE(has(rest, R"("text":"bcd","logprobs":{"text_offset":[1,2,3],"token_logprobs":[-1.5,-1.5,-1.5],)"))
      << rest;
  EXPECT_TRUE(has(rest, R"("finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[98,99,100]})"))
      << rest;
  EXPECT_TRUE(has(rest, R"("text":"efg")")) << rest;
  EXPECT_TRUE(has(rest, R"("text":"hi")") && has(rest, R"("finish_reason":"length")")) << rest;
}

TEST_F(ApiTest, AStreamHasOneChunkAChoiceAndStep) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions",
                   R"({"prompt":["A","B"],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})"));
  auto first = engine.stream(0), second = engine.stream(1);
  ASSERT_TRUE(second);
  second->token('s');
  EXPECT_TRUE(has(client.read_until("\n\n"), R"("choices":[{"index":1,"text":"s")")) << "choices come as they arrive";
  first->token('f');
  first->token('F', FinishCode::kTokenLimit);
  second->token('S', FinishCode::kTokenLimit);
  std::string rest = client.read_until("data: [DONE]\n\n");
  EXPECT_TRUE(has(
      rest,
      R"({"index":0,"text":"f","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null})"))
      << rest;
  EXPECT_TRUE(has(rest, R"("text":"F","logprobs":null,"finish_reason":"length")")) << rest;
  EXPECT_TRUE(has(
      rest,
      R"("choices":[],"usage":{"prompt_tokens":2,"total_tokens":6,"completion_tokens":4},"system_fingerprint":"fp"})"))
      << rest;
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "\r\n0\r\n\r\n");
  EXPECT_TRUE(has(client.request(get("/version")).body, "version")) << "the connection is still good";
}

TEST_F(ApiTest, TheTerminalChunkHasTheFingerprintAndContinuousUsageGrows) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":2,"stream":true})"));
  generate(*engine.stream(0), "xy");
  auto events = events_of(client.read_response().body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_FALSE(has(events[0], "system_fingerprint"));
  EXPECT_FALSE(has(events[0], "usage"));
  EXPECT_TRUE(has(events[1], R"("system_fingerprint":"fp")"));
  EXPECT_EQ(events[2], "[DONE]");
  client.send(post(
      "/v1/completions",
      R"({"prompt":"A","max_tokens":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})"));
  generate(*engine.stream(1), "xy");
  events = events_of(client.read_response().body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(has(events[0], R"("usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1})"));
  EXPECT_TRUE(has(events[1], R"("usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2})"));
}

TEST_F(ApiTest, AStreamEqualsThePlainReply) {
  start();
  const std::string text = "a é 😀 b";
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":20})"));
  generate(*engine.stream(0), text);
  const std::string plain = client.read_response().body;
  EXPECT_TRUE(has(plain, "\"text\":\"" + text + "\"")) << plain;
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":20,"stream":true})"));
  generate(*engine.stream(1), text);
  std::string joined;
  const auto events = events_of(client.read_response().body);
  EXPECT_EQ(events.size(), text.size() + 1) << "one chunk a token, also for tokens without text of their own";
  for (const std::string& event : events) {
    const size_t at = event.find("\"text\":\"");
    if (at != std::string::npos) joined += event.substr(at + 8, event.find('"', at + 8) - at - 8);
  }
  EXPECT_EQ(joined, text);
}

TEST_F(ApiTest, AStopStringEndsTheChoiceAndCancelsItsSequence) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":50,"stop":["END"]})"));
  auto stream = engine.stream(0);
  for (const char c : std::string("okEND")) stream->token(c);
  const RawResponse response = client.read_response();
  EXPECT_TRUE(has(response.body, R"("text":"ok","logprobs":null,"finish_reason":"stop","stop_reason":"END")"))
      << response.body;
  EXPECT_TRUE(stream->wait_for_cancel());
}

TEST_F(ApiTest, EchoWithAndWithoutABudget) {
  start();
  RawClient client(port());
  const RawResponse nothing = client.request(
      post("/v1/completions", R"({"prompt":[[72,101,108,108,111],[72,105]],"echo":true,"max_tokens":0})"));
  EXPECT_TRUE(has(nothing.body, R"({"index":0,"text":"Hello","logprobs":null,"finish_reason":"length")"))
      << nothing.body;
  EXPECT_TRUE(has(nothing.body, R"({"index":1,"text":"Hi")")) << nothing.body;
  EXPECT_TRUE(has(nothing.body, R"("prompt_tokens":7,"total_tokens":7,"completion_tokens":0)")) << nothing.body;
  const auto events = events_of(
      client.request(post("/v1/completions", R"({"prompt":"Hello","echo":true,"max_tokens":0,"stream":true})")).body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(has(events[0], R"("text":"Hello","logprobs":null,"finish_reason":"length")"));
  client.send(post("/v1/completions", R"({"prompt":"Hello","echo":true,"max_tokens":2,"stream":true})"));
  generate(*engine.stream(0), "xy");
  const auto echoed = events_of(client.read_response().body);
  ASSERT_EQ(echoed.size(), 3u);
  EXPECT_TRUE(has(echoed[0], R"("text":"Hellox")"));
  EXPECT_TRUE(has(echoed[1], R"("text":"y")"));
}

TEST_F(ApiTest, ALeavingClientCancelsStreamingOrNot) {
  start();
  size_t submitted = 0;
  for (const char* body :
       {R"({"prompt":"A","n":2,"max_tokens":100,"stream":true})", R"({"prompt":"A","n":2,"max_tokens":100})"}) {
    const size_t base = submitted;
    RawClient client(port());
    client.send(post("/v1/completions", body));
    auto first = engine.stream(base), second = engine.stream(base + 1);
    ASSERT_TRUE(second);
    submitted += 2;
    first->token('x');
    client.close();
    EXPECT_TRUE(first->wait_for_cancel()) << body;
    EXPECT_TRUE(second->wait_for_cancel()) << body;
  }
  const std::string counted = R"(vllm:request_success_total{finished_reason="abort",model_name="tiny"})";
  // A reply is counted after its streams were cancelled.
  for (int i = 0; i < 500 && metric(counted) != counted + " 4"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(metric(counted), counted + " 4");
}

TEST_F(ApiTest, ASlowReaderLeavesTheTokensInTheEnginesStream) {
  start();
  RawClient client(port(), 4096);
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":4000,"stream":true,"logprobs":20})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  TokenEvent event{.token = 'x', .logprobs = PositionLogprobs{-1.5f, {}}};
  for (int i = 0; i < 20; ++i) event.logprobs->alternatives.push_back({'a' + i, -0.125f * static_cast<float>(i)});
  for (int i = 0; i < 4000; ++i) stream->push(event);
  EXPECT_TRUE(stream->wait_for_cancel(15s)) << "the write timeout ends it";
  EXPECT_GT(stream->unread(), 2000u) << "nothing was read ahead of the socket";
}

TEST_F(ApiTest, AnErrorBeforeTheFirstByteHasItsStatusAndLaterIsAnEvent) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","stream":true})"));
  engine.stream(0)->push(Error{Errc::kUnavailable, "rank 1 was lost", ""});
  RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.headers.contains("retry-after"));
  EXPECT_TRUE(has(response.body, "rank 1 was lost"));

  client.send(post("/v1/completions", R"({"prompt":"A","n":2,"stream":true})"));
  auto survivor = engine.stream(2);
  engine.stream(1)->token('x');
  client.read_until("\n\n");
  engine.stream(1)->push(Error{Errc::kInternal, "internal error during generation", ""});
  EXPECT_EQ(client.read_until("[DONE]\n\n").substr(6),
            "data: {\"error\":{\"message\":\"internal error during "
            "generation\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n"
            "data: [DONE]\n\n");
  EXPECT_TRUE(survivor->wait_for_cancel());
}

TEST_F(ApiTest, NaNFailsTheRequestAndIsNeverPrinted) {
  start();
  RawClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":1,"logprobs":1})"));
  engine.stream(0)->push(
      TokenEvent{.token = 'x', .logprobs = PositionLogprobs{NAN, {}}, .finish = FinishCode::kTokenLimit});
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 500);
  EXPECT_TRUE(has(response.body, "InternalServerError"));
}

TEST_F(ApiTest, RefusalsHappenBeforeAdmission) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(post("/v1/completions", R"({"prompt":"A","logprobs":21,"stream":true})")).status, 400);
  EXPECT_EQ(client.request(post("/v1/completions", R"({"prompt":"A","model":"x"})")).status, 404);
  EXPECT_EQ(client.request(post("/v1/completions", R"({"prompt":"A","prompt_embeds":"x"})")).status, 501);
  EXPECT_EQ(client.request(post("/v1/completions", "{")).status, 400);
  engine.refuse(Error{Errc::kQueueFull, "1024 sequences are waiting", ""});
  const RawResponse full = client.request(post("/v1/completions", R"({"prompt":"A"})"));
  EXPECT_EQ(full.status, 429);
  EXPECT_TRUE(full.headers.contains("retry-after"));
  EXPECT_TRUE(has(full.body, "RateLimitError"));
  engine.refuse(std::nullopt);
  client.send(post("/v1/completions", R"({"prompt":"A","max_tokens":1})"));
  generate(*engine.stream(0), "x");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(ApiTest, WhileRanksLoadProbesSaySoAndWorkIsRefused) {
  engine.change([](EngineStatus& status) {
    status.ready = false;
    status.reason = "rank 0 is loading";
    status.capabilities.reset();
    status.ranks[0].state = RankState::kLoading;
    status.ranks[0].load_progress = 0.5;
  });
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(get("/livez")).status, 200);
  const RawResponse ready = client.request(get("/readyz"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, R"({"status":"loading","reason":"rank 0 is loading","load_progress":0.5})");
  EXPECT_EQ(client.request(get("/health")).status, 503);
  const RawResponse refused = client.request(post("/v1/completions", R"({"prompt":"A"})"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(client.request(post("/v1/completions", R"({"prompt":"A","n":"x"})")).status, 400);
  EXPECT_EQ(client.request(get("/v1/models")).status, 200);
  EXPECT_EQ(client.request(post("/tokenize", R"({"prompt":"A"})")).body,
            R"({"count":1,"max_model_len":null,"tokens":[65],"token_strs":null})");
  EXPECT_EQ(client.request(get("/metrics")).status, 200);
}

TEST_F(ApiTest, HealthListsTheRanks) {
  start();
  RawClient client(port());
  const RawResponse health = client.request(get("/health"));
  EXPECT_EQ(health.status, 200);
  EXPECT_TRUE(has(health.body, R"({"status":"ok","reason":null,"model":"tiny",)")) << health.body;
  EXPECT_TRUE(has(health.body, R"("ranks":[{"rank":0,"pid":4242,"state":"ready","device":"cpu",)")) << health.body;
  EXPECT_TRUE(has(health.body, R"("heartbeat_age_s":0.25)")) << health.body;
  EXPECT_EQ(client.request(post("/ping", "")).status, 200);
  EXPECT_EQ(client.request(get("/readyz")).status, 200);
  EXPECT_EQ(client.request(get("/load")).body, R"({"server_load":0})");
  EXPECT_EQ(client.request(get("/version")).body, R"({"version":"0.1.0"})");
}

TEST_F(ApiTest, DrainTurnsReadinessOffAndLetsRunningRequestsFinish) {
  start();
  RawClient running(port()), other(port());
  running.send(post("/v1/completions", R"({"prompt":"A","max_tokens":2,"stream":true})"));
  auto stream = engine.stream(0);
  stream->token('x');
  running.read_until("\n\n");
  api->drain();
  EXPECT_EQ(other.request(get("/readyz")).status, 503);
  EXPECT_TRUE(has(other.request(get("/health")).body, R"("status":"draining")"));
  EXPECT_EQ(other.request(get("/livez")).status, 200);
  EXPECT_EQ(other.request(post("/v1/completions", R"({"prompt":"A"})")).status, 503);
  stream->token('y', FinishCode::kTokenLimit);
  EXPECT_TRUE(has(running.read_until("[DONE]\n\n"), R"("text":"y")"));
}

TEST_F(ApiTest, ApiKey) {
  start("secret");
  RawClient client(port());
  const RawResponse refused = client.request(get("/v1/models"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(has(refused.body, R"("type":"AuthenticationError","param":null,"code":401)"));
  EXPECT_EQ(client.request(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(client.request(post("/v1/completions", R"({"prompt":"A"})", "Authorization: Bearer wrong\r\n")).status,
            401);
  EXPECT_EQ(client.request(get("/health")).status, 200);
}

TEST_F(ApiTest, AChatStreamsItsRoleThenItsWords) {
  start_with_template();
  RawClient client(port());
  client.send(post("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"logprobs":true,"stream":true})"));
  auto stream = engine.stream(0);
  ASSERT_TRUE(stream);
  EXPECT_EQ(engine.request(0).prompt, (std::vector<TokenId>{'H', 'i', ':'}));
  stream->push(TokenEvent{.token = 'a', .logprobs = PositionLogprobs{-1.5f, {}}});
  stream->push(TokenEvent{.token = 'b', .logprobs = PositionLogprobs{-0.5f, {}}, .finish = FinishCode::kTokenLimit});
  const std::string body = client.read_until("data: [DONE]\n\n");
  EXPECT_TRUE(has(body, R"(data: {"id":"chatcmpl-)")) << body;
  EXPECT_TRUE(has(body, R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])")) << body;
  EXPECT_TRUE(has(body, R"("delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1.5,"bytes":[97],)"
                        R"("top_logprobs":[]}],"refusal":null},"finish_reason":null,"token_ids":null}])"))
      << body;
  EXPECT_TRUE(has(body, R"("finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"fp"})"))
      << body;
}

TEST_F(ApiTest, AChatHasOneListForAllItsChoices) {  // R46
  start_with_template();
  RawClient client(port());
  client.send(post("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"prompt_logprobs":0,"n":2})"));
  ASSERT_TRUE(engine.stream(1));
  EXPECT_TRUE(engine.request(0).prompt_scores);
  EXPECT_FALSE(engine.request(1).prompt_scores) << "once is enough";
  const std::vector<TokenId> prompt = engine.request(0).prompt;
  engine.stream(0)->push(scores_of(1, std::string(prompt.begin() + 1, prompt.end())));
  for (const size_t i : {0, 1}) generate(*engine.stream(i), "x");
  const std::string body = client.read_response().body;
  size_t entries = 0;
  for (size_t at = 0; (at = body.find("\"decoded_token\"", at)) != std::string::npos; ++at) ++entries;
  EXPECT_EQ(entries, prompt.size() - 1) << body;
  EXPECT_TRUE(has(body, R"("prompt_logprobs":[null,{")")) << body;
}

TEST_F(ApiTest, OtherEndpointsAndUnknownOnes) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(get("/v1/models/tiny")).status, 200);
  EXPECT_EQ(client.request(get("/v1/models/other")).status, 404);
  EXPECT_EQ(client.request(post("/detokenize", R"({"tokens":[72,105]})")).body, R"({"prompt":"Hi"})");
  EXPECT_TRUE(has(client.request(get("/tokenizer_info")).body, R"("eos_token":"<eos>")"));
  for (const char* path : {"/v1/chat", "/v1/embeddings"}) {
    const RawResponse response = client.request(post(path, "{}"));
    EXPECT_EQ(response.status, 404);
    EXPECT_TRUE(has(response.body, R"("type":"Not Found")"));
  }
  EXPECT_TRUE(has(client.request(post("/v1/responses", "{}")).body, R"("param":"input")"));
  EXPECT_TRUE(has(client.request(get("/v1/responses/resp_1")).body, R"("param":"response_id","code":404)"));
  // lm-eval sends an empty key where none is configured.
  EXPECT_EQ(client.request(get("/v1/models", "Authorization: Bearer \r\n")).status, 200);
}

TEST_F(ApiTest, MetricsHaveTheNamesThatDashboardsKnow) {
  metrics.on_tokens(7, 3);
  metrics.on_first_token(0.1, 0.2);
  metrics.on_inter_token(0.02);
  metrics.on_finished(
      {.finish = FinishCode::kEos, .prompt_tokens = 7, .generated_tokens = 3, .e2e_seconds = 1.0, .logprobs = true});
  metrics.on_frame({.requested = true, .records = 3, .payload_bytes = 400, .bytes_copied = 968});
  metrics.on_choice_finished("stop");
  engine.change([](EngineStatus& status) { status.running = 2; });
  start();
  RawClient client(port());
  const RawResponse response = client.request(get("/metrics"));
  EXPECT_EQ(response.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line : {"vllm:num_requests_running{model_name=\"tiny\"} 2",
                           "vllm:num_requests_waiting{model_name=\"tiny\"} 0",
                           "vllm:kv_cache_usage_perc{model_name=\"tiny\"} 0",
                           "vllm:prompt_tokens_total{model_name=\"tiny\"} 7",
                           "vllm:generation_tokens_total{model_name=\"tiny\"} 3",
                           "vllm:request_success_total{finished_reason=\"stop\",model_name=\"tiny\"} 1",
                           "vllm:request_success_total{finished_reason=\"length\",model_name=\"tiny\"} 0",
                           "vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1",
                           "vllm:inter_token_latency_seconds_count{model_name=\"tiny\"} 1",
                           "vllm:e2e_request_latency_seconds_count{model_name=\"tiny\"} 1",
                           "vllm:request_prompt_tokens_sum{model_name=\"tiny\"} 7",
                           "vllm:request_generation_tokens_sum{model_name=\"tiny\"} 3",
                           "vllm:prefix_cache_hits_total{model_name=\"tiny\"} 0",
                           "helios_logprob_requests_total{model_name=\"tiny\"} 1",
                           "helios_logprob_payload_bytes_total{model_name=\"tiny\"} 400",
                           "helios_frame_bytes_total{model_name=\"tiny\"} 968",
                           "helios_completion_records_total{model_name=\"tiny\"} 3",
                           "helios_frames_total{logprobs=\"true\",model_name=\"tiny\"} 1",
                           "helios_ready{model_name=\"tiny\"} 1",
                           "helios_rank_ready{model_name=\"tiny\",rank=\"0\"} 1"}) {
    EXPECT_TRUE(has(response.body, std::string("\n") + line + "\n")) << line << "\n" << response.body;
  }
  EXPECT_EQ(metric("helios_http_responses_total{code=\"200\",model_name=\"tiny\"}"),
            "helios_http_responses_total{code=\"200\",model_name=\"tiny\"} 1");
}

}  // namespace
}  // namespace helios::testing
