// The whole path below HTTP in one process, over a bad network: a real engine, two real ranks with a real (tiny) model
// and real exchanges, and a link that loses, delays, reorders, damages and doubles messages by a seeded plan. What a
// request gets is what it gets on a good network, bit for bit, or 503; and the ranks come back.
#include <map>

#include "tests/coordinator/engine/engine_fixture.h"
#include "tests/support/faulty_link.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/rank/rank_under_test.h"
#include "worker/replay/executor.h"

namespace helios {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using testing::FaultyLink;
using testing::RankUnderTest;

class FaultyNetwork : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    testing::write_tiny_checkpoint(model_.path());
    EngineConfig config;
    config.rank_endpoint = testing::fresh_ipc_endpoint();
    config.ranks.world_size = kRanks;
    config.ranks.step_limit = 400ms;  // what a lost last message costs, with the next
    config.ranks.heartbeat_limit = 2000ms;
    auto engine = Engine::start(config, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = *std::move(engine);
    link_ = std::make_unique<FaultyLink>(engine_->rank_endpoint());
    ranks_.resize(kRanks);
    supervisor_ = std::thread([this] { supervise(); });
    ASSERT_TRUE(eventually([&] { return engine_->status().ready; })) << engine_->status().reason;
  }
  void TearDown() override {
    supervision_ended_ = true;
    if (supervisor_.joinable()) supervisor_.join();
    link_->set_plan({});
    engine_.reset();
    ranks_.clear();
    link_.reset();
  }

  /// What a launcher does: a rank that has ended is started again.
  void supervise() {
    while (!supervision_ended_) {
      for (int r = 0; r < kRanks; ++r) {
        if (ranks_[r] && !ranks_[r]->ended()) continue;
        ranks_[r].reset();
        RankUnderTest::Options options{.rank = r, .world_size = kRanks};
        options.prepare = [this](Communicator& communicator, const std::function<void(double)>& progress) {
          const CoreConfig core{.model_dir = model_.path(), .slot_capacity = 4, .prefill_chunk = 16};
          return PreparedCore{.executor = Executor::prepare(core, cpu_device(core), communicator, progress)};
        };
        ranks_[r] = std::make_unique<RankUnderTest>(link_->endpoint(), options);
      }
      std::this_thread::sleep_for(5ms);
    }
  }

  static std::vector<SequenceRequest> requests() {
    std::vector<SequenceRequest> out;
    for (int i = 0; i < 6; ++i) {
      SequenceRequest r;
      for (int k = 0; k < 3 + 5 * i; ++k) r.prompt.push_back((17 * k + i) % testing::kTinyVocab);
      r.sampling = {.temperature = i % 2 ? 0.9f : 0.0f, .seed = static_cast<uint64_t>(i), .max_tokens = 8 + i};
      r.logprobs = i % 3 != 0;
      r.num_logprobs = i % 3 == 1 ? 5 : 0;
      if (i % 3 == 2) r.logprob_token_ids = {299, 0, 42};
      out.push_back(std::move(r));
    }
    return out;
  }
  /// Runs them once on a good network.
  std::vector<Client::Outcome> undisturbed() {
    Client client;
    EXPECT_TRUE(eventually([&] { return client.submit(*engine_, requests()).ok(); })) << engine_->status().reason;
    return client.wait();
  }
  static bool same(const TokenEvent& a, const TokenEvent& b) {
    return a.token == b.token && a.finish == b.finish && a.logprobs == b.logprobs;
  }

  testing::TemporaryDirectory model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<FaultyLink> link_;
  std::vector<std::unique_ptr<RankUnderTest>> ranks_;
  std::thread supervisor_;
  std::atomic<bool> supervision_ended_{false};
};

TEST_F(FaultyNetwork, RealRanksAnswerExactlyOr503AndComeBack) {  // R27
  const std::vector<Client::Outcome> expected = undisturbed();
  for (const auto& outcome : expected) ASSERT_FALSE(outcome.error.has_value()) << outcome.error->message;
  int exact = 0, unavailable = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const double share = seed % 2 == 0 ? 0.008 : 0.03;
    link_->set_plan(testing::LinkPlan::of_everything(seed, share));
    Client client;
    ASSERT_TRUE(eventually([&] { return client.submit(*engine_, requests()).ok(); })) << engine_->status().reason;
    const auto& outcomes = client.wait();
    for (size_t i = 0; i < outcomes.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const auto& got = outcomes[i].tokens;
      ASSERT_LE(got.size(), expected[i].tokens.size());
      for (size_t t = 0; t < got.size(); ++t) EXPECT_TRUE(same(got[t], expected[i].tokens[t])) << "token " << t;
      if (outcomes[i].error) {
        EXPECT_EQ(outcomes[i].error->code, Errc::kUnavailable) << outcomes[i].error->message;
        ++unavailable;
      } else {
        EXPECT_EQ(got.size(), expected[i].tokens.size());
        ++exact;
      }
    }
    link_->set_plan({});
    ASSERT_TRUE(eventually([&] { return engine_->status().ready; })) << engine_->status().reason;
  }
  EXPECT_GT(link_->counts().faults(), 10);
  EXPECT_GT(exact, 0);
  EXPECT_GT(unavailable, 0) << "no fault hurt anybody: the plan is too mild to show anything";
  // The set that is up now has seen none of it.
  const auto after = undisturbed();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].tokens.size(), expected[i].tokens.size());
}

}  // namespace
}  // namespace helios
