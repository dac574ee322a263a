// What a client of the API sees, endpoint by endpoint.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "tests/coordinator/http/api_fixture.h"

namespace helios::testing {
namespace {

using namespace std::chrono_literals;

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
  metrics.on_inter_token(0.02, 1);
  metrics.on_inter_token(0.05, 15);
  metrics.on_inter_token(90, 2);
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
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"tiny\",le=\"0.025\"} 1",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"tiny\",le=\"0.05\"} 16",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"tiny\",le=\"80\"} 16",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"tiny\",le=\"+Inf\"} 18",
                           "vllm:inter_token_latency_seconds_sum{model_name=\"tiny\"} 180.77",
                           "vllm:inter_token_latency_seconds_count{model_name=\"tiny\"} 18",
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
