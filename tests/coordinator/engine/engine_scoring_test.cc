// Scored prompts through the engine and scripted ranks over real sockets: every position once, in order, before the
// tokens; what a rank spoils costs the one request that asked.
#include "coordinator/engine/engine.h"

#include "tests/coordinator/engine/engine_fixture.h"

#include <cmath>
#include <random>

namespace helios {
namespace {

using testing::Client;
using testing::eventually;
using namespace std::chrono_literals;

class EngineScoringTest : public testing::EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    core_.prompt_scoring = true;
  }
  std::vector<Operation> operations() const {
    std::vector<Operation> out;
    for (const Submission& submission : ranks_[0]->submissions()) out.push_back(submission.operation);
    return out;
  }
};

TEST_F(EngineScoringTest, EveryPositionComesOnceInOrderBeforeTheTokens) {  // R40
  start_ready();
  SequenceRequest r = scored_request(30, 5, 3);  // four chunks of eight
  r.logprobs = true;
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  expect_scored(r, client.wait()[0]);
  EXPECT_EQ(client.stream(0).cached_tokens(), 0);
  for (const TokenEvent& token : client.outcome(0).tokens) EXPECT_TRUE(token.logprobs.has_value());
  const auto seen = operations();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), Operation::kScoredPrefill), 4);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), Operation::kPrefill), 0);
  expect_idle();
}

TEST_F(EngineScoringTest, TargetsAreTheTokensBehindAndNoneAtTheEnd) {  // R38
  start_ready();
  const SequenceRequest r = scored_request(11, 1, 0);
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  expect_scored(r, client.wait()[0]);
  std::vector<TokenId> targets;
  for (const Submission& s : ranks_[1]->submissions()) {
    if (s.operation != Operation::kScoredPrefill) {
      EXPECT_TRUE(s.prompt_target_tokens.empty());
    }
    targets.insert(targets.end(), s.prompt_target_tokens.begin(), s.prompt_target_tokens.end());
  }
  std::vector<TokenId> expected(r.prompt.begin() + 1, r.prompt.end());
  expected.push_back(kNoTarget);
  EXPECT_EQ(targets, expected);
}

TEST_F(EngineScoringTest, AZeroBudgetEndsWithTheScoresAndSamplesNothing) {  // R38
  start_ready();
  std::vector<SequenceRequest> requests = {scored_request(30, 0, 2), scored_request(8, 0, 0), scored_request(1, 0, 0),
                                           scored_request(1, 3, 0)};
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_scored(requests[i], client.outcome(i));
    EXPECT_EQ(client.outcome(i).finish, FinishCode::kTokenLimit);
  }
  for (const Submission& s : ranks_[0]->submissions()) {
    for (const Lane& lane : s.lanes) EXPECT_FALSE(lane.samples && s.operation == Operation::kScoredPrefill);
  }
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.generated_tokens, 3);
  EXPECT_EQ(observer_.prompt_tokens, 40);
  EXPECT_EQ(observer_.finished, 4);
}

TEST_F(EngineScoringTest, ScoredAndUnscoredRequestsShareTheEngineButNoGraph) {  // R43
  start_ready();
  std::mt19937 random(3);
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < 24; ++i) {
    const int prompt = 2 + static_cast<int>(random() % 25), budget = 1 + static_cast<int>(random() % 8);
    requests.push_back(i % 2 ? scored_request(prompt, budget, 4, i) : request(prompt, budget, i));
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    if (requests[i].prompt_scores) {
      expect_scored(requests[i], client.outcome(i));
    } else {
      expect_complete(requests[i], client.outcome(i));
      EXPECT_TRUE(client.outcome(i).scores.empty());
    }
  }
  for (const Submission& s : ranks_[0]->submissions()) {
    const bool scored = s.operation == Operation::kScoredPrefill;
    size_t rows = 0;
    for (const Lane& lane : s.lanes) {
      rows += lane.tokens.size();
      if (scored) {
        EXPECT_EQ(lane.role, LaneRole::kPrefill);
      }
    }
    EXPECT_EQ(s.prompt_target_tokens.size(), scored ? rows : 0);
  }
}

TEST_F(EngineScoringTest, PreemptionInTheMiddleRepeatsNothingAndLosesNothing) {  // R43, X1
  core_.slot_capacity = 6;
  core_.kv_num_blocks = 14;  // 56 positions, where each sequence may want 55
  start_ready();
  std::mt19937 random(5);
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < 60; ++i) {
    requests.push_back(scored_request(1 + static_cast<int>(random() % 28), static_cast<int>(random() % 28), 2, i));
    requests.back().priority = static_cast<int64_t>(random() % 3);
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_scored(requests[i], client.outcome(i));
  }
  expect_idle();
  EXPECT_GT(observer_.preempted, 0);
}

TEST_F(EngineScoringTest, ASpoiledRowFailsTheRequestThatAskedAndNobodyElse) {  // R27, R40
  for (const int kind : {0, 1, 2, 3}) {
    SCOPED_TRACE(kind);
    testing::ScriptedRankOptions options;
    options.spoil = [kind](const Submission& s, Completion& c) {
      if (s.operation != Operation::kScoredPrefill || s.lanes[0].tokens[0] != 42 || c.prompt_rows.empty()) return;
      if (kind == 0) c.prompt_rows[kPromptScoreWords + 1] = float_bits(NAN);
      if (kind == 1) c.prompt_rows[0] = -1;
      if (kind == 2) c.prompt_rows.clear();
      if (kind == 3) c.prompt_rows[2] = 0;
    };
    start_ready(options);
    SequenceRequest spoiled = scored_request(6, 2, 1);
    spoiled.prompt[0] = 42;
    SequenceRequest other = scored_request(20, 3, 1, 9);
    other.prompt[0] = 1;
    Client bad, good;
    ASSERT_TRUE(bad.submit(*engine_, {spoiled}).ok());
    bad.wait();
    ASSERT_TRUE(bad.outcome(0).error.has_value());
    EXPECT_EQ(bad.outcome(0).error->code, Errc::kInternal);
    EXPECT_TRUE(bad.outcome(0).tokens.empty()) << "the token that the same frame sampled is suppressed";
    ASSERT_TRUE(good.submit(*engine_, {other}).ok());
    expect_scored(other, good.wait()[0]);
    EXPECT_EQ(engine_->status().incarnation, 1u) << "the ranks live on";
    TearDown();
    SetUp();
  }
}

TEST_F(EngineScoringTest, AReaderThatDoesNotReadHoldsAFewChunksAndNotThePrompt) {  // R31
  core_.max_model_len = 1024;
  core_.kv_num_blocks = 256;
  config_.stream_capacity = 64;
  start_ready();
  const SequenceRequest r = scored_request(900, 2, 20);  // 113 chunks
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  size_t before = 0;
  ASSERT_TRUE(eventually([&] {  // until it stands still
    const size_t now = ranks_[0]->submissions().size();
    std::this_thread::sleep_for(100ms);
    return std::exchange(before, now) == now && now > 0;
  }));
  EXPECT_LT(ranks_[0]->submissions().size(), 12u);
  expect_scored(r, client.wait()[0]);
}

TEST_F(EngineScoringTest, WithoutTheCapabilityItIsRefusedBeforeAdmission) {  // R45
  core_.prompt_scoring = false;
  start_ready();
  Client client;
  const Status status = client.submit(*engine_, {scored_request(4, 2, 0)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
}

TEST_F(EngineScoringTest, MoreAlternativesThanTheCoreOffersAreRefused) {
  start_ready();
  Client client;
  EXPECT_FALSE(client.submit(*engine_, {scored_request(4, 2, 21)}).ok());
  SequenceRequest unscored = request(4, 2);
  unscored.num_prompt_logprobs = 1;
  EXPECT_FALSE(client.submit(*engine_, {unscored}).ok());
}

}  // namespace
}  // namespace helios
