// The real server on loopback, with handlers that say what they got: what the transport promises, whatever the API is.

#include "coordinator/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/coordinator/http/raw_client.h"

namespace helios::testing {
namespace {

using namespace std::chrono_literals;

/// A stream that the test feeds, and that remembers whether it was dropped.
struct Feed {
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;
  bool finished = false;
  bool dropped = false;
  int64_t pumped_bytes = 0;
  WakeUp wake;

  WakeUp append(const std::string& bytes, bool last) {
    std::lock_guard lock(mutex);
    waiting += bytes;
    finished |= last;
    return wake;
  }
  void write(const std::string& bytes, bool last = false) { append(bytes, last)(); }
  bool wait_for(const std::function<bool()>& condition, std::chrono::milliseconds limit = 5s) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, limit, condition);
  }
};

class FeedReply final : public PendingReply {
 public:
  explicit FeedReply(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {}
  ~FeedReply() override {
    std::lock_guard lock(feed_->mutex);
    feed_->dropped = true;
    feed_->changed.notify_all();
  }
  State pump(std::string& events) override {
    std::lock_guard lock(feed_->mutex);
    if (error_) {
      events += "error: " + error_->message;
      return State::kStreamed;
    }
    const size_t take = std::min<size_t>(feed_->waiting.size(), 32768);
    events += feed_->waiting.substr(0, take);
    feed_->waiting.erase(0, take);
    feed_->pumped_bytes += static_cast<int64_t>(take);
    feed_->changed.notify_all();
    if (!feed_->waiting.empty()) return State::kMore;
    return feed_->finished ? State::kStreamed : State::kWaiting;
  }
  HttpReply reply() override { return {}; }
  void fail(Error error) override { error_ = std::move(error); }

 private:
  std::shared_ptr<Feed> feed_;
  std::optional<Error> error_;
};

struct HttpServerTest : ::testing::Test {
  void SetUp() override {
    router.add("GET", "/hello",
               [](const HttpRequest&, std::string_view, WakeUp) -> Answer { return json_reply(200, "\"hello\""); });
    router.add_json_post("/echo", [](const HttpRequest& request, std::string_view, WakeUp) -> Answer {
      return json_reply(200, request.body);
    });
    router.add("GET", "/throw",
               [](const HttpRequest&, std::string_view, WakeUp) -> Answer { throw std::runtime_error("oops"); });
    router.add("GET", "/feed", [this](const HttpRequest&, std::string_view, WakeUp wake) -> Answer {
      std::lock_guard lock(feed->mutex);
      feed->wake = std::move(wake);
      feed->changed.notify_all();
      return std::make_unique<FeedReply>(feed);
    });
    options.port = 0;
    options.max_body_bytes = 100000;
    options.linger_timeout = 200ms;
  }
  void start() {
    auto started = HttpServer::start(options, router);
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }
  uint16_t port() const { return server->port(); }
  bool feed_begun() {
    return feed->wait_for([&] { return feed->wake.mark != nullptr; });
  }

  HttpOptions options;
  Router router;
  std::shared_ptr<Feed> feed = std::make_shared<Feed>();
  std::unique_ptr<HttpServer> server;
};

void expect_error(const RawResponse& response, int status, const std::string& type) {
  EXPECT_EQ(response.status, status);
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_NE(response.body.find("\"type\":\"" + type + "\""), std::string::npos) << response.body;
  EXPECT_NE(response.body.find("\"code\":" + std::to_string(status)), std::string::npos) << response.body;
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    const RawResponse response = client.request(get("/hello?x=1"));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "\"hello\"");
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
    EXPECT_EQ(response.headers.at("x-request-id").size(), 32u);
    EXPECT_TRUE(response.headers.contains("date"));
    EXPECT_FALSE(response.headers.contains("connection"));
  }
  EXPECT_EQ(client.request(get("/hello", "X-Request-Id: abc-1\r\nConnection: close\r\n")).headers.at("x-request-id"),
            "abc-1");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServerTest, RequestIdsThatAreNoHeaderMaterialAreReplaced) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(get("/hello", "X-Request-Id: a b\r\n")).headers.at("x-request-id").size(), 32u);
  EXPECT_EQ(client.request(get("/hello", "X-Request-Id: " + std::string(300, 'x') + "\r\n"))
                .headers.at("x-request-id")
                .size(),
            32u);
}

TEST_F(HttpServerTest, Http10ClosesUnlessAskedToKeep) {
  start();
  RawClient client(port());
  client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.read_response().headers.at("connection"), "keep-alive");
  client.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_response().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServerTest, UnknownPathsAndWrongMethods) {
  start();
  RawClient client(port());
  expect_error(client.request(get("/nothing")), 404, "Not Found");
  const RawResponse wrong = client.request(post("/hello", "{}"));
  expect_error(wrong, 405, "Method Not Allowed");
  EXPECT_EQ(wrong.headers.at("allow"), "GET, HEAD, OPTIONS");
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawResponse options_reply = client.read_response();
  EXPECT_EQ(options_reply.status, 204);
  EXPECT_EQ(options_reply.headers.at("allow"), "POST, OPTIONS");
  client.send("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawResponse head = client.read_response(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "7");
  EXPECT_EQ(client.request(get("/hello")).body, "\"hello\"") << "HEAD sent no body";
  client.send("BREW /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_error(client.read_response(), 405, "Method Not Allowed");
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsA500AndTheServerLives) {
  start();
  RawClient client(port());
  expect_error(client.request(get("/throw")), 500, "InternalServerError");
  EXPECT_EQ(client.request(get("/hello")).status, 200);
}

TEST_F(HttpServerTest, BodiesWithLengthAndChunked) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(post("/echo", "{\"a\":1}")).body, "{\"a\":1}");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: APPLICATION/json ; charset=utf-8\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  client.send("3\r\n{\"a\r\n");
  client.send("4;x=y\r\n\":2}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "{\"a\":2}");
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  expect_error(client.read_response(), 400, "BadRequestError");
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  expect_error(client.read_response(), 400, "BadRequestError");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
      "Content-Length: 3\r\n\r\n\x1f\x8b\x08");
  const auto compressed = client.read_response();
  expect_error(compressed, 400, "BadRequestError");
  EXPECT_NE(compressed.body.find("Content-Encoding"), std::string::npos);
  EXPECT_EQ(client.request(post("/echo", "{}", "Content-Encoding: Identity\r\n")).body, "{}");
}

TEST_F(HttpServerTest, ABodyInAnUnknownTransferCodingIsNotReadAsTheNextRequest) {
  start();
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: gzip"}) {
    RawClient client(port());
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: " +
                std::string(coding) + "\r\n\r\n" + get("/hello"));
    expect_error(client.read_response(), 501, "NotImplementedError");
    EXPECT_TRUE(client.closed_by_server()) << coding;
  }
}

TEST_F(HttpServerTest, OversizeBodiesAre413WithLengthAndChunked) {
  start();
  {
    RawClient client(port());
    client.send(post("/echo", std::string(100001, 'x')));
    expect_error(client.read_response(), 413, "Request Entity Too Large");
    EXPECT_TRUE(client.closed_by_server());
  }
  {
    RawClient client(port());
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\nExpect: 100-continue\r\n\r\n");
    expect_error(client.read_response(), 413, "Request Entity Too Large");
  }
  {
    RawClient client(port());
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n" +
                std::string(200000, 'x') + "\r\n0\r\n\r\n");
    expect_error(client.read_response(), 413, "Request Entity Too Large");
  }
  RawClient client(port());
  EXPECT_EQ(client.request(post("/echo", std::string(100000, 'x'))).body.size(), 100000u)
      << "the limit itself is allowed";
}

TEST_F(HttpServerTest, OversizeHeadersAre431) {
  start();
  RawClient client(port());
  client.send(get("/hello", "X-Big: " + std::string(20000, 'x') + "\r\n"));
  expect_error(client.read_response(), 431, "Request Header Fields Too Large");
  EXPECT_TRUE(client.closed_by_server());
  RawClient other(port());
  EXPECT_EQ(other.request(get("/hello", "X-Big: " + std::string(15000, 'x') + "\r\n")).status, 200);
}

TEST_F(HttpServerTest, WhatIsNotHttpIs400) {
  start();
  for (const char* bytes :
       {"GARBAGE\r\n\r\n", "GET /hello HTTP/9.9\r\n\r\n", "GET /hello HTTP/1.1\r\nbroken header\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "POST /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    RawClient client(port());
    client.send(bytes);
    expect_error(client.read_response(), 400, "BadRequestError");
    EXPECT_TRUE(client.closed_by_server());
  }
}

TEST_F(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  start();
  RawClient client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("{}");
  EXPECT_EQ(client.read_response().body, "{}");
  client.send(
      "POST /echo HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}");
  EXPECT_EQ(client.read_response().body, "{}") << "HTTP/1.0 has no interim replies";
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient client(port());
  std::string many;
  for (int i = 0; i < 20; ++i) many += post("/echo", std::to_string(i));
  client.send(many + get("/nothing") + get("/hello"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.read_response().body, std::to_string(i));
  EXPECT_EQ(client.read_response().status, 404);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(HttpServerTest, HalfSentHeadersAndBodiesAreGivenUp) {
  options.header_timeout = 100ms;
  options.body_timeout = 100ms;
  start();
  RawClient header(port()), body(port());
  header.send("GET /hello HTTP/1.1\r\nHost:");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_TRUE(header.closed_by_server());
  EXPECT_TRUE(body.closed_by_server());
  RawClient next(port());
  EXPECT_EQ(next.request(get("/hello")).status, 200);
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  options.idle_timeout = 100ms;
  start();
  RawClient client(port());
  EXPECT_EQ(client.request(get("/hello")).status, 200);
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServerTest, StreamsArriveAsTheyAreWrittenAndKeepTheConnection) {
  start();
  RawClient client(port());
  client.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  feed->write("data: 1\n\n");
  const std::string head = client.read_until("data: 1\n\n");
  EXPECT_EQ(head.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_NE(head.find("Content-Type: text/event-stream; charset=utf-8\r\n"), std::string::npos);
  EXPECT_NE(head.find("Cache-Control: no-cache\r\n"), std::string::npos);
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  feed->write("data: 2\n\n", true);
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(client.request(get("/hello")).status, 200);
}

TEST_F(HttpServerTest, Http10StreamsEndWithTheConnection) {
  start();
  RawClient client(port());
  client.send("GET /feed HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(feed_begun());
  feed->write("data: 1\n\n");
  feed->write("data: 2\n\n", true);
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\n");
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
}

TEST_F(HttpServerTest, AClientThatLeavesDropsItsReplyAtOnce) {
  start();
  using Leave = std::function<void(RawClient&)>;
  for (const Leave& leave : {Leave([](RawClient& c) { c.close(); }), Leave([](RawClient& c) { c.reset(); }),
                             Leave([](RawClient& c) { c.half_close(); })}) {
    for (const bool begun : {false, true}) {
      feed = std::make_shared<Feed>();
      RawClient client(port());
      client.send(get("/feed"));
      ASSERT_TRUE(feed_begun());
      if (begun) {
        feed->write("data: 1\n\n");
        client.read_until("data: 1\n\n");
      }
      leave(client);
      EXPECT_TRUE(feed->wait_for([&] { return feed->dropped; })) << "begun=" << begun;
    }
  }
  // The connection's own count falls after its reply is dropped, on the same thread.
  for (int i = 0; i < 500 && server->active_requests() != 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server->active_requests(), 0);
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticedBehindAPipelinedRequest) {
  start();
  RawClient client(port());
  client.send(get("/feed") + get("/hello"));
  ASSERT_TRUE(feed_begun());
  client.send(get("/hello"));
  client.close();
  EXPECT_TRUE(feed->wait_for([&] { return feed->dropped; }));
}

TEST_F(HttpServerTest, APipelinedRequestIsServedAfterTheStream) {
  start();
  RawClient client(port());
  client.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  client.send(get("/hello"));
  std::this_thread::sleep_for(150ms);  // longer than the watch's period, so that it has seen the bytes
  feed->write("data: 1\n\n", true);
  EXPECT_EQ(client.read_response().body, "data: 1\n\n");
  EXPECT_EQ(client.read_response().body, "\"hello\"");
}

TEST_F(HttpServerTest, ASlowReaderHoldsBackTheProducerAndIsGivenUpInTheEnd) {
  options.send_buffer_bytes = 65536;
  options.write_timeout = 300ms;
  start();
  RawClient client(port(), 4096);
  client.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  feed->write(std::string(8 * 1024 * 1024, 'x'));
  EXPECT_TRUE(feed->wait_for([&] { return feed->dropped; }, 10s));
  EXPECT_LT(feed->pumped_bytes, 1024 * 1024) << "the rest waited for the socket";
}

TEST_F(HttpServerTest, FailActiveEndsAStreamWithTheError) {
  start();
  RawClient client(port());
  client.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  server->fail_active(Error{Errc::kUnavailable, "going away", ""});
  EXPECT_EQ(client.read_response().body, "error: going away");
}

TEST_F(HttpServerTest, CloseAfterRepliesEndsIdleConnectionsNowAndBusyOnesAfterTheirReply) {
  start();
  RawClient idle(port()), busy(port());
  EXPECT_EQ(idle.request(get("/hello")).status, 200);
  busy.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  server->close_after_replies();
  EXPECT_TRUE(idle.closed_by_server());
  feed->write("data: 1\n\n", true);
  EXPECT_EQ(busy.read_response().body, "data: 1\n\n");
  EXPECT_TRUE(busy.closed_by_server());
  RawClient probe(port());
  EXPECT_EQ(probe.request(get("/hello")).status, 200) << "probes still get in";
}

TEST_F(HttpServerTest, StopEndsStreamsAndLateWakeUpsAreHarmless) {
  start();
  RawClient client(port());
  client.send(get("/feed"));
  ASSERT_TRUE(feed_begun());
  server->stop();
  EXPECT_TRUE(feed->dropped);
  server.reset();
  feed->wake();
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServerTest, ATakenPortIsAnErrorThatNamesIt) {
  start();
  HttpOptions same = options;
  same.port = port();
  const auto second = HttpServer::start(same, router);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(port())), std::string::npos)
      << second.error().message;
  HttpOptions nowhere = options;
  nowhere.host = "256.1.1.1";
  EXPECT_FALSE(HttpServer::start(nowhere, router));
}

TEST_F(HttpServerTest, ManyConnectionsAtOnce) {
  options.max_connections = 8;  // the others wait their turn
  start();
  std::atomic<int> ok = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        RawClient client(port());
        ok += client.request(post("/echo", "{\"i\":" + std::to_string(i) + "}", "Connection: close\r\n")).status == 200;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, 160);
}

// As the engine does at each step; more streams than one visit takes, some woken while others write.
TEST_F(HttpServerTest, StreamsThatAreWokenTogetherEachGetAllOfTheirOwnInOrder) {
  constexpr int kStreams = 48, kSteps = 300;
  std::vector<std::shared_ptr<Feed>> feeds;
  for (int i = 0; i < kStreams; ++i) feeds.push_back(std::make_shared<Feed>());
  router.add("GET", "/feeds/*", [&](const HttpRequest&, std::string_view tail, WakeUp wake) -> Answer {
    const auto& one = feeds[std::stoul(std::string(tail))];
    std::lock_guard lock(one->mutex);
    one->wake = std::move(wake);
    one->changed.notify_all();
    return std::make_unique<FeedReply>(one);
  });
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->send(get("/feeds/" + std::to_string(i)));
  }
  for (const auto& one : feeds) ASSERT_TRUE(one->wait_for([&] { return one->wake.mark != nullptr; }));
  std::vector<std::thread> engines;
  for (int half = 0; half < 2; ++half) {
    engines.emplace_back([&, half] {
      for (int step = 0; step < kSteps; ++step) {
        std::vector<WakeUp> marked;
        for (int i = half; i < kStreams; i += 2) {
          marked.push_back(feeds[i]->append(std::to_string(i * step) + ";", step + 1 == kSteps));
          marked.back().mark();
        }
        for (const WakeUp& one : marked) one.wake();
      }
    });
  }
  for (std::thread& engine : engines) engine.join();
  for (int i = 0; i < kStreams; ++i) {
    std::string expected;
    for (int step = 0; step < kSteps; ++step) expected += std::to_string(i * step) + ";";
    const RawResponse response = clients[i]->read_response();
    EXPECT_TRUE(response.complete) << i;
    EXPECT_EQ(response.body, expected) << i;
    EXPECT_EQ(clients[i]->request(get("/hello")).status, 200) << i;
  }
}

TEST(Router, ApiKeyGuardsV1Only) {
  Router router("secret");
  const auto ok = [](const HttpRequest&, std::string_view tail, WakeUp) -> Answer {
    return json_reply(200, std::string(tail));
  };
  router.add("GET", "/v1/models", ok);
  router.add("GET", "/v1/models/*", ok);
  router.add("GET", "/health", ok);
  const auto status = [&](const std::string& method, const std::string& path, const std::string& authorization) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.authorization = authorization;
    return std::get<HttpReply>(router.handle(request, {})).status;
  };
  EXPECT_EQ(status("GET", "/v1/models", "Bearer secret"), 200);
  EXPECT_EQ(status("GET", "/v1/models", "bearer secret"), 200);
  for (const char* wrong :
       {"", "Bearer ", "Bearer", "Bearer secre", "Bearer secret2", "Bearer SECRET", "secret", "Basic secret"}) {
    EXPECT_EQ(status("GET", "/v1/models", wrong), 401) << wrong;
  }
  EXPECT_EQ(status("GET", "/v1/nothing", ""), 401) << "unknown paths tell nothing either";
  EXPECT_EQ(status("GET", "/health", ""), 200);
  EXPECT_EQ(status("OPTIONS", "/v1/models", ""), 204);
}

TEST(Router, TailsAreDecodedAndNeverEmpty) {
  Router router;
  router.add("GET", "/v1/models/*", [](const HttpRequest&, std::string_view tail, WakeUp) -> Answer {
    return json_reply(200, std::string(tail));
  });
  const auto body = [&](const std::string& path) {
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    return std::get<HttpReply>(router.handle(request, {})).body;
  };
  EXPECT_EQ(body("/v1/models/org%2Fname%20x"), "org/name x");
  EXPECT_EQ(body("/v1/models/org/name"), "org/name");
  EXPECT_EQ(body("/v1/models/a%zz%2"), "a%zz%2");
  EXPECT_NE(body("/v1/models/").find("Not Found"), std::string::npos);
}

}  // namespace
}  // namespace helios::testing
