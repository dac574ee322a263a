// Proposals through the engine: several tokens a record, of sequences that say what they say without.
#include "coordinator/engine/engine.h"

#include <random>

#include "tests/coordinator/engine/engine_fixture.h"

namespace helios {
namespace {

using testing::Client;
using testing::eventually;
using testing::toy_logprob;

class EngineSpeculationTest : public testing::EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    period_ = 3;
    core_.num_proposals = 4;
    config_.proposals = {.num_tokens = 4, .shortest = 2, .longest = 3};
  }

  /// Of every kind that decides differently what may be proposed, and what is reported.
  SequenceRequest any_request(std::mt19937& random, uint64_t seed) const {
    const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
    SequenceRequest r = request(1 + below(20), 1 + below(40), seed);
    const auto tokens = expected_tokens(r);
    const TokenId one = tokens[static_cast<size_t>(below(static_cast<uint32_t>(tokens.size())))];
    if (below(3) == 0) r.sampling.eos_id = one;
    r.sampling.ignore_eos = below(2) == 0;
    if (below(4) == 0) r.sampling.stop_ids = {one};
    if (below(5) == 0) r.sampling.presence_penalty = 0.5f;
    r.logprobs = below(2) == 0;
    r.num_logprobs = below(3);
    if (r.logprobs && below(3) == 0) r.logprob_token_ids = {7, 90, 3};
    return r;
  }

  void expect_logprobs(const SequenceRequest& r, const Client::Outcome& outcome) const {
    for (size_t i = 0; i < outcome.tokens.size(); ++i) {
      const TokenEvent& event = outcome.tokens[i];
      const auto position = static_cast<int64_t>(r.prompt.size() + i);
      ASSERT_EQ(event.logprobs.has_value(), r.logprobs);
      if (!r.logprobs) continue;
      EXPECT_EQ(event.logprobs->chosen, toy_logprob(event.token, position));
      const auto& ids = r.logprob_token_ids;
      ASSERT_EQ(event.logprobs->alternatives.size(), ids.empty() ? static_cast<size_t>(r.num_logprobs) : ids.size());
      for (size_t k = 0; k < ids.size(); ++k) {
        EXPECT_EQ(event.logprobs->alternatives[k], (TokenLogprob{ids[k], toy_logprob(ids[k], position)}));
      }
    }
  }

  /// Runs a request that repeats itself, whose first round that emits several tokens `spoil` changes.
  Error error_after(const std::function<void(const Submission&, Completion&)>& spoil) {
    testing::ScriptedRankOptions options;
    options.spoil = [spoil, done = std::make_shared<std::atomic<int>>(0)](const Submission& s, Completion& c) {
      if (c.rank != Rank(0) || c.records[record_word::kEmitted] < 3 || done->exchange(1) != 0) return;
      spoil(s, c);
    };
    start_ready(options);
    Client client;
    EXPECT_TRUE(client.submit(*engine_, {request(6, 40, 5)}).ok());
    const auto& outcome = client.wait()[0];
    EXPECT_TRUE(outcome.error.has_value());
    expect_idle();
    return outcome.error.value_or(Error{});
  }
};

TEST_F(EngineSpeculationTest, EveryKindOfRequestSaysWhatItSaysWithout) {  // R3, X1
  core_.slot_capacity = 6;
  core_.kv_num_blocks = 40;
  start_ready();
  std::mt19937 random(11);
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 60; ++i) requests.push_back(any_request(random, i));
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  int64_t generated = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_complete(requests[i], outcomes[i]);
    expect_logprobs(requests[i], outcomes[i]);
    generated += static_cast<int64_t>(outcomes[i].tokens.size());
  }
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.generated_tokens, generated);
  EXPECT_EQ(observer_.inter_tokens, generated - 60);
  EXPECT_GT(observer_.rounds, 50);
  EXPECT_GT(observer_.came_true, 50);
  EXPECT_GT(observer_.proposed, observer_.came_true);
}

TEST_F(EngineSpeculationTest, OnlyWhoseTokensFollowFromTheModelAloneHasProposals) {
  start_ready();
  std::vector<SequenceRequest> requests(4, request(5, 40, 3));
  requests[1].sampling.frequency_penalty = 0.5f;
  requests[2].bad_words = {{50, 51, 52}};
  requests[3].sampling.min_tokens = 25;
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) expect_complete(requests[i], outcomes[i]);
  std::vector<int> rounds(4, 0);  // the slots are taken in order
  for (const Submission& s : ranks_[0]->submissions()) {
    size_t rows = 0;
    for (const Lane& lane : s.lanes) {
      if (lane.role != LaneRole::kDecode) continue;
      rows += 1 + lane.tokens.size();
      if (lane.tokens.empty()) continue;
      EXPECT_EQ(s.operation, Operation::kVerify);
      EXPECT_LE(lane.tokens.size(), 4u);
      rounds[lane.slot.value] += 1;
    }
    if (s.operation == Operation::kVerify) {
      EXPECT_LE(rows, static_cast<size_t>(engine_->status().capabilities->verify_rows));
    }
  }
  EXPECT_GT(rounds[0], 3);
  EXPECT_EQ(rounds[1], 0) << "a penalty";
  EXPECT_EQ(rounds[2], 0) << "words that may not come";
  EXPECT_GT(rounds[3], 0);
  EXPECT_LT(rounds[3], rounds[0]) << "tokens that must come first";
}

TEST_F(EngineSpeculationTest, WhoeverDoesNotReadIsPausedAndLosesNothing) {
  config_.stream_capacity = 24;
  core_.max_model_len = 512;
  core_.kv_num_blocks = 512;
  start_ready();
  const SequenceRequest lazy_request = request(2, 400, 1), eager_request = request(2, 400, 2);
  Client lazy, eager;
  ASSERT_TRUE(lazy.submit(*engine_, {lazy_request}).ok());
  ASSERT_TRUE(eager.submit(*engine_, {eager_request}).ok());
  expect_complete(eager_request, eager.wait()[0]);
  EXPECT_EQ(engine_->status().running, 1);
  expect_complete(lazy_request, lazy.wait()[0]);
  expect_idle();
}

TEST_F(EngineSpeculationTest, ClientsThatLeaveAndADrainInBetween) {
  core_.max_model_len = 512;
  core_.kv_num_blocks = 256;
  testing::ScriptedRankOptions slow;
  slow.step_time = std::chrono::milliseconds(1);
  start_ready(slow);
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) requests.push_back(request(4, 100, i));
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  ASSERT_TRUE(eventually([&] { return observer_.came_true > 20; }));
  for (const size_t gone : {0, 3, 7}) client.drop(gone);
  std::thread drainer([&] { engine_->drain(std::chrono::seconds(30)); });
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || i == 3 || i == 7) continue;
    expect_complete(requests[i], outcomes[i]);
  }
  drainer.join();
  EXPECT_EQ(observer_.cancelled, 3);
}

TEST_F(EngineSpeculationTest, TokensThatNobodyProposedAreNotTheRoundsOwn) {
  const Error error = error_after([](const Submission&, Completion& c) { c.records[record_word::kTokens] ^= 1; });
  EXPECT_NE(error.message.find("was proposed"), std::string::npos) << error.message;
}

TEST_F(EngineSpeculationTest, ARoundHasNoMoreTokensThanProposalsWereAccepted) {
  const Error error =
      error_after([](const Submission&, Completion& c) { c.records[record_word::kProposalsAccepted] = 1; });
  EXPECT_NE(error.message.find("with 1 proposals accepted"), std::string::npos) << error.message;
}

TEST_F(EngineSpeculationTest, ARankVerifiesWhatItWasGiven) {
  const Error error =
      error_after([](const Submission&, Completion& c) { c.records[record_word::kProposalsOffered] = 3; });
  EXPECT_NE(error.message.find("3 proposals were verified, expected 4"), std::string::npos) << error.message;
}

TEST_F(EngineSpeculationTest, RanksThatVerifyFewerAreRefusedWithBothNumbers) {
  core_.num_proposals = 3;
  ASSERT_NO_FATAL_FAILURE(start());
  add_ranks();
  ASSERT_TRUE(eventually([&] { return ranks_[0]->aborted(); }));
  const std::string reason = engine_->status().reason;
  EXPECT_NE(reason.find("num_speculative_tokens 4, the ranks verify 3"), std::string::npos) << reason;
  EXPECT_FALSE(engine_->status().ready);
}

TEST_F(EngineSpeculationTest, RanksThatVerifyMoreServeAsManyAsAreAsked) {
  core_.num_proposals = 15;
  start_ready();
  Client client;
  const SequenceRequest r = request(5, 40, 3);
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  expect_complete(r, client.wait()[0]);
  for (const Submission& s : ranks_[0]->submissions()) {
    for (const Lane& lane : s.lanes) EXPECT_TRUE(lane.role == LaneRole::kPrefill || lane.tokens.size() <= 4);
  }
  EXPECT_GT(observer_.came_true, 5);
}

}  // namespace
}  // namespace helios
