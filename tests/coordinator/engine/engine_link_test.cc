// A bad network between the engine and its ranks: nothing hangs, nothing wrong is delivered. A request ends with
// exactly what the model said or with 503, and the set is back as soon as the network is.
#include "coordinator/engine/engine.h"

#include "tests/coordinator/engine/engine_fixture.h"
#include "tests/support/faulty_link.h"

namespace helios {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using testing::FaultyLink;
using testing::LinkPlan;
using testing::ScriptedRank;
using testing::ScriptedRankOptions;
using testing::toy_logprob;

class EngineLinkTest : public testing::EngineFixture {
 protected:
  void TearDown() override {
    end_supervision();
    EngineFixture::TearDown();
    link_.reset();
  }
  std::string rank_endpoint() const override { return link_->endpoint(); }

  void start_linked() {
    core_.max_model_len = 1024;
    core_.kv_num_blocks = 1024;
    ASSERT_NO_FATAL_FAILURE(start());
    link_ = std::make_unique<FaultyLink>(engine_->rank_endpoint());
    add_ranks();
    ASSERT_TRUE(eventually([&] { return engine_->status().ready; })) << engine_->status().reason;
  }

  /// Does what a launcher does: a rank whose set broke is started again, and all are when they do not come back.
  void supervise() {
    supervisor_ = std::thread([this] {
      auto last_ready = std::chrono::steady_clock::now();
      while (!supervision_ended_) {
        const auto now = std::chrono::steady_clock::now();
        if (engine_->status().ready) last_ready = now;
        const bool all = now - last_ready > 1500ms;
        if (all) last_ready = now;
        for (size_t r = 0; r < ranks_.size(); ++r) {
          if (!all && !ranks_[r]->aborted()) continue;
          ranks_[r].reset();
          ranks_[r] = std::make_unique<ScriptedRank>(ScriptedRankOptions{.endpoint = link_->endpoint(),
                                                                         .rank = static_cast<int>(r),
                                                                         .world_size = config_.ranks.world_size,
                                                                         .core = core_});
        }
        std::this_thread::sleep_for(5ms);
      }
    });
  }
  void end_supervision() {
    supervision_ended_ = true;
    if (supervisor_.joinable()) supervisor_.join();
  }

  /// Plain, natural and selecting requests, all different.
  static std::vector<SequenceRequest> mixed_requests(uint64_t seed) {
    std::vector<SequenceRequest> out;
    for (uint64_t i = 0; i < 6; ++i) {
      SequenceRequest r = request(2 + static_cast<int>((seed + i) % 12), 6 + static_cast<int>(i), seed * 10 + i);
      r.logprobs = i % 3 != 0;
      r.num_logprobs = i % 3 == 1 ? 4 : 0;
      if (i % 3 == 2) r.logprob_token_ids = {99, 3, static_cast<TokenId>(seed % 90 + 4)};
      out.push_back(std::move(r));
    }
    return out;
  }

  /// Every token that came is the model's, with the model's logprobs, and only 503 may have cut them short.
  void expect_exact_or_unavailable(const SequenceRequest& r, const Client::Outcome& outcome) const {
    const std::vector<TokenId> expected = expected_tokens(r);
    const std::vector<TokenId> got = ids(outcome);
    ASSERT_LE(got.size(), expected.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
    for (size_t i = 0; i < got.size(); ++i) {
      const auto& logprobs = outcome.tokens[i].logprobs;
      ASSERT_EQ(logprobs.has_value(), r.logprobs);
      if (!logprobs) continue;
      const auto position = static_cast<int64_t>(r.prompt.size() + i);
      EXPECT_EQ(logprobs->chosen, toy_logprob(got[i], position));
      std::vector<TokenLogprob> alternatives;
      for (const TokenId id : r.logprob_token_ids) alternatives.push_back({id, toy_logprob(id, position)});
      for (int k = 0; k < r.num_logprobs; ++k) {
        alternatives.push_back({static_cast<TokenId>((got[i] + 1 + k) % 100), -static_cast<float>(k + 1) / 16.0f});
      }
      EXPECT_EQ(logprobs->alternatives, alternatives);
    }
    EXPECT_TRUE(outcome.ended);
    if (outcome.error) {
      EXPECT_EQ(outcome.error->code, Errc::kUnavailable) << outcome.error->message;
    } else {
      EXPECT_EQ(got.size(), expected.size());
    }
  }

  /// One fault of this plan while a request runs must break the set for this reason, and cost that request 503.
  void expect_reported(LinkPlan plan, const std::string& reason_part) {
    start_linked();
    plan.most = 1;
    const SequenceRequest r = request(2, 900, 5);
    Client client;
    ASSERT_TRUE(client.submit(*engine_, {r}).ok());
    ASSERT_TRUE(eventually([&] { return ranks_[0]->submissions().size() > 20; }));
    link_->set_plan(plan);
    expect_exact_or_unavailable(r, client.wait()[0]);
    ASSERT_TRUE(client.outcome(0).error.has_value());
    EXPECT_NE(client.outcome(0).error->message.find(reason_part), std::string::npos)
        << client.outcome(0).error->message;
    EXPECT_EQ(link_->counts().faults(), 1);
  }

  std::unique_ptr<FaultyLink> link_;
  std::thread supervisor_;
  std::atomic<bool> supervision_ended_{false};
};

TEST_F(EngineLinkTest, ALostSubmissionIsASequenceGap) {
  expect_reported({.drop = 1.0, .to_coordinator = false}, "sequence gap: submission");
}

TEST_F(EngineLinkTest, ADoubledSubmissionIsASequenceGap) {
  expect_reported({.duplicate = 1.0, .to_coordinator = false}, "sequence gap: submission");
}

TEST_F(EngineLinkTest, ADamagedSubmissionIsRefusedAndMissed) {
  expect_reported({.corrupt = 1.0, .to_coordinator = false}, "sequence gap: submission");
}

TEST_F(EngineLinkTest, ALostCompletionIsAGap) {
  expect_reported({.drop = 1.0, .to_ranks = false}, "reports submission");
}

TEST_F(EngineLinkTest, ADoubledCompletionIsAGap) {
  expect_reported({.duplicate = 1.0, .to_ranks = false}, "reports submission");
}

TEST_F(EngineLinkTest, ADamagedCompletionIsRefused) {
  expect_reported({.corrupt = 1.0, .to_ranks = false}, "sent what is no message");
}

TEST_F(EngineLinkTest, ASlowNetworkOnlyCostsTime) {
  start_linked();
  link_->set_plan({.seed = 3, .delay = 0.4, .control = true, .longest_delay = 10ms});
  const std::vector<SequenceRequest> requests = mixed_requests(1);
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_exact_or_unavailable(requests[i], outcomes[i]);
    EXPECT_FALSE(outcomes[i].error.has_value()) << outcomes[i].error->message;
  }
  EXPECT_GT(link_->counts().delayed, 5);
  EXPECT_EQ(engine_->status().incarnation, 1u);
}

TEST_F(EngineLinkTest, WhateverTheNetworkDoesRequestsAreExactOr503AndServiceComesBack) {
  config_.ranks.step_limit = 150ms;  // what a lost last message costs, with the next
  config_.ranks.heartbeat_limit = 850ms;
  start_linked();
  supervise();
  int exact = 0, unavailable = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const double share = seed % 2 == 0 ? 0.01 : 0.04;
    LinkPlan plan = LinkPlan::of_everything(seed, share);
    plan.control = seed % 4 == 0;
    link_->set_plan(plan);
    const std::vector<SequenceRequest> requests = mixed_requests(seed);
    Client client;
    if (client.submit(*engine_, requests).ok()) {  // else a lost heartbeat had made it unready: 503
      const auto& outcomes = client.wait();
      for (size_t i = 0; i < requests.size(); ++i) {
        expect_exact_or_unavailable(requests[i], outcomes[i]);
        ++(outcomes[i].error ? unavailable : exact);
      }
    }
    link_->set_plan({});
    const SequenceRequest after = request(3, 5, seed);
    EXPECT_TRUE(eventually([&] {
      Client again;
      if (!engine_->status().ready || !again.submit(*engine_, {after}).ok()) return false;
      const auto& outcome = again.wait()[0];
      expect_exact_or_unavailable(after, outcome);
      return !outcome.error.has_value();
    })) << engine_->status().reason;
  }
  expect_idle();
  const FaultyLink::Counts& counts = link_->counts();
  EXPECT_GT(counts.dropped, 0);
  EXPECT_GT(counts.delayed, 0);
  EXPECT_GT(counts.reordered, 0);
  EXPECT_GT(counts.corrupted, 0);
  EXPECT_GT(counts.duplicated, 0);
  EXPECT_GT(exact, 0);
  EXPECT_GT(unavailable, 0) << "no fault hurt anybody: the plan is too mild to show anything";
}

}  // namespace
}  // namespace helios
