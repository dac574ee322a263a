// The status pages over real sockets: what is answered, refused, and survived.
#include "worker/rank/status_server.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/worker/rank/http_client.h"
#include "worker/rank/status_pages.h"

namespace helios {
namespace {

using namespace std::chrono_literals;

using testing::Client;

class StatusServerTest : public ::testing::Test {
 protected:
  StatusServerTest() : pages_(Rank(3), vitals_) {
    server_ = StatusServer::start("127.0.0.1", 0, [this](std::string_view path) { return pages_.page(path); }).value();
  }
  std::string exchange(const std::string& request) {
    Client client(server_->port());
    client.send(request);
    return client.read_all();
  }
  std::string get(const std::string& path) { return exchange("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"); }

  RankVitals vitals_;
  StatusPages pages_;
  std::unique_ptr<StatusServer> server_;
};

bool answers(const std::string& response, int status) {
  return response.rfind("HTTP/1.1 " + std::to_string(status) + " ", 0) == 0;
}

TEST_F(StatusServerTest, LivezIsOkWhileTheLinkThreadTurns) {  // D8
  vitals_.link_turns();
  EXPECT_TRUE(answers(get("/livez"), 200));
}

TEST_F(StatusServerTest, ReadyzFollowsTheRanksState) {  // D8
  EXPECT_TRUE(answers(get("/readyz"), 503));
  vitals_.advance_state(RankState::kLoading);
  vitals_.set_load_progress(0.42);
  const std::string loading = get("/readyz");
  EXPECT_TRUE(answers(loading, 503));
  EXPECT_NE(loading.find("loading progress=42%"), std::string::npos) << loading;
  vitals_.set_incarnation(6);
  vitals_.advance_state(RankState::kReady);
  const std::string ready = get("/readyz");
  EXPECT_TRUE(answers(ready, 200));
  EXPECT_NE(ready.find("ready incarnation=6"), std::string::npos) << ready;
  vitals_.advance_state(RankState::kDraining);
  vitals_.advance_state(RankState::kReady);  // no way back
  EXPECT_TRUE(answers(get("/readyz?verbose=1"), 503));
}

TEST_F(StatusServerTest, MetricsArePrometheusTextWithTheExecutorsCounters) {
  vitals_.step_begins(Sequence(41));
  vitals_.step_ends();
  vitals_.step_begins(Sequence(42));
  vitals_.publish_counters(
      {{"helios_logits_read_total", "FP32 words read.", 12345}, {"helios_kv_blocks", "Blocks.", 7}});
  const std::string page = get("/metrics");
  EXPECT_TRUE(answers(page, 200));
  EXPECT_NE(page.find("text/plain; version=0.0.4"), std::string::npos);
  for (const char* line :
       {"\nhelios_rank_steps_total{rank=\"3\"} 2\n", "\nhelios_rank_steps_completed_total{rank=\"3\"} 1\n",
        "\nhelios_rank_last_sequence{rank=\"3\"} 42\n", "# TYPE helios_logits_read_total counter\n",
        "\nhelios_logits_read_total{rank=\"3\"} 12345\n", "# TYPE helios_kv_blocks gauge\n",
        "\nprocess_resident_memory_bytes{rank=\"3\"} "}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "not in\n" << page;
  }
}

TEST_F(StatusServerTest, OtherPathsAndMethodsAreRefused) {
  EXPECT_TRUE(answers(get("/"), 404));
  EXPECT_TRUE(answers(get("/livez/"), 404));
  const std::string posted = exchange("POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(answers(posted, 405));
  EXPECT_NE(posted.find("Allow: GET, HEAD"), std::string::npos);
  EXPECT_TRUE(answers(exchange("POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), 404));
}

TEST_F(StatusServerTest, HeadAnswersWithoutABody) {
  const std::string head = exchange("HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answers(head, 200));
  EXPECT_NE(head.find("Content-Length: 3"), std::string::npos) << head;
  EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
}

TEST_F(StatusServerTest, OversizeAndMalformedRequestsAreRefusedAndTheServerLives) {
  EXPECT_TRUE(answers(exchange("GET /livez HTTP/1.1\r\nX: " + std::string(100000, 'a') + "\r\n\r\n"), 400));
  EXPECT_TRUE(answers(exchange("POST /livez HTTP/1.1\r\nContent-Length: 999999\r\n\r\n"), 400));
  EXPECT_TRUE(answers(exchange("\x16\x03\x01 not http\r\n\r\n"), 400));
  EXPECT_TRUE(answers(get("/livez"), 200));
}

TEST_F(StatusServerTest, SlowClientsKeepNobodyElseWaiting) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < StatusServer::kMaxConnections - 1; ++i) {
    idle.push_back(std::make_unique<Client>(server_->port()));
    ASSERT_TRUE(idle.back()->connected());
    idle.back()->send("GET /live");  // and no more
  }
  vitals_.link_turns();
  EXPECT_TRUE(answers(get("/livez"), 200));
  idle.push_back(std::make_unique<Client>(server_->port()));
  idle.back()->send("GET /live");
  EXPECT_EQ(get("/livez"), "") << "one more than the limit is closed";
  idle.clear();
  while (!answers(get("/livez"), 200)) vitals_.link_turns();  // until the server has seen them go
}

TEST_F(StatusServerTest, AClientThatLeavesEarlyIsNoTrouble) {
  for (int i = 0; i < 50; ++i) {
    Client client(server_->port());
    client.send(i % 2 ? "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" : "GET");
  }
  vitals_.link_turns();
  EXPECT_TRUE(answers(get("/livez"), 200));
}

TEST_F(StatusServerTest, APortInUseIsAnError) {
  const auto second = StatusServer::start("127.0.0.1", server_->port(), [](std::string_view) { return std::nullopt; });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::kUnavailable);
  EXPECT_NE(second.error().message.find(std::to_string(server_->port())), std::string::npos);
  EXPECT_FALSE(StatusServer::start("no.such.host.invalid", 0, [](std::string_view) { return std::nullopt; }).ok());
}

TEST(StatusPages, LivezTellsThatTheLinkThreadHasStopped) {
  RankVitals vitals;
  StatusPages pages(Rank(0), vitals);
  std::this_thread::sleep_for(2100ms);  // nobody turns
  EXPECT_EQ(pages.page("/livez")->status, 503);
  vitals.link_turns();
  EXPECT_EQ(pages.page("/livez")->status, 200);
}

}  // namespace
}  // namespace helios
