#include "coordinator/engine/engine.h"

#include "tests/coordinator/engine/engine_fixture.h"

#include <cmath>
#include <random>

namespace helios {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using testing::toy_logprob;

class EngineTest : public testing::EngineFixture {};

TEST_F(EngineTest, ManySequencesShareTheSlotsAndEachGetsItsOwnTokens) {
  start_ready();
  std::mt19937 random(7);
  std::vector<SequenceRequest> requests;
  int64_t prompt_tokens = 0, generated = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    requests.push_back(request(1 + static_cast<int>(random() % 30), 1 + static_cast<int>(random() % 30), i));
    prompt_tokens += static_cast<int64_t>(requests.back().prompt.size());
    generated += requests.back().sampling.max_tokens;
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_complete(requests[i], outcomes[i]);
    EXPECT_EQ(outcomes[i].tokens.back().finish, FinishCode::kTokenLimit);
    EXPECT_FALSE(outcomes[i].tokens[0].logprobs.has_value());
  }
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.prompt_tokens, prompt_tokens);
  EXPECT_EQ(observer_.generated_tokens, generated);
  EXPECT_EQ(observer_.first_tokens, 40);
  EXPECT_EQ(observer_.inter_tokens, generated - 40);
  EXPECT_EQ(observer_.finished, 40);
  EXPECT_EQ(observer_.requesting_frames, 0);
  EXPECT_EQ(observer_.payload_received, 0);  // R26: nobody asked, nothing came
  EXPECT_GE(observer_.records, generated);
  EXPECT_LE(ranks_[0]->max_backlog(), 2);  // two frames
  EXPECT_GT(ranks_[0]->echoes(), 0);
  EXPECT_EQ(ranks_[0]->collective(), "shm");  // one host key for both
}

TEST_F(EngineTest, EveryRankGetsTheSameSubmissions) {
  start_ready();
  Client client;
  SequenceRequest asking = request(12, 9, 3);
  asking.logprobs = true;
  ASSERT_TRUE(client.submit(*engine_, {asking, request(3, 9, 4)}).ok());
  client.wait();
  expect_idle();
  ASSERT_TRUE(eventually([&] { return ranks_[0]->submissions().size() == ranks_[1]->submissions().size(); }));
  const auto a = ranks_[0]->submissions(), b = ranks_[1]->submissions();
  EXPECT_EQ(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].sequence, Sequence(i + 1));
    EXPECT_EQ(a[i].frame, FrameIndex(static_cast<int>(i % 2)));
    EXPECT_EQ(a[i].logprob_requested.size(), 4u);  // R13: whole vectors, always
    EXPECT_EQ(a[i].logprob_token_id_counts.size(), 4u);
  }
}

TEST_F(EngineTest, LogprobsAreTrimmedToWhatTheRequestAsked) {  // R5, R8
  start_ready();
  std::vector<SequenceRequest> requests{request(4, 6, 1), request(5, 6, 2), request(6, 6, 3)};
  requests[0].logprobs = true;
  requests[0].num_logprobs = 5;
  requests[1].logprobs = true;
  requests[1].num_logprobs = 0;
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < 3; ++i) expect_complete(requests[i], outcomes[i]);
  for (int i = 0; i < 6; ++i) {
    const TokenEvent& five = outcomes[0].tokens[i];
    EXPECT_EQ(five.logprobs->chosen, toy_logprob(five.token, 4 + i));
    ASSERT_EQ(five.logprobs->alternatives.size(), 5u);
    EXPECT_EQ(five.logprobs->alternatives[4], (TokenLogprob{(five.token + 5) % 100, -5.0f / 16.0f}));
    EXPECT_TRUE(outcomes[1].tokens[i].logprobs->alternatives.empty());
    EXPECT_FALSE(outcomes[2].tokens[i].logprobs.has_value());
  }
}

TEST_F(EngineTest, SelectedIdsComeBackInTheCallersOrder) {  // R7
  start_ready();
  SequenceRequest selecting = request(4, 5, 1), natural = request(4, 5, 2);
  selecting.logprobs = natural.logprobs = true;
  natural.num_logprobs = 20;
  for (int i = 0; i < 30; ++i) selecting.logprob_token_ids.push_back(99 - 3 * i);
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {selecting, natural}).ok());
  const auto& outcomes = client.wait();
  expect_complete(selecting, outcomes[0]);
  expect_complete(natural, outcomes[1]);
  for (int i = 0; i < 5; ++i) {
    const auto& alternatives = outcomes[0].tokens[i].logprobs->alternatives;
    ASSERT_EQ(alternatives.size(), 30u);
    for (int j = 0; j < 30; ++j) EXPECT_EQ(alternatives[j], (TokenLogprob{99 - 3 * j, toy_logprob(99 - 3 * j, 4 + i)}));
    EXPECT_EQ(outcomes[1].tokens[i].logprobs->alternatives.size(), 20u);  // R26: the wider frame changes nothing
  }
}

TEST_F(EngineTest, EosStopIdsAndIgnoredEosEndOrNotAsTheyShould) {
  start_ready();
  SequenceRequest plain = request(3, 30, 5);
  const auto tokens = expected_tokens(plain);
  std::vector<SequenceRequest> requests(3, plain);
  requests[0].sampling.eos_id = tokens[4];
  requests[1].sampling.stop_ids = {tokens[6]};
  requests[2].sampling.eos_id = tokens[4];
  requests[2].sampling.ignore_eos = true;
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < 3; ++i) expect_complete(requests[i], outcomes[i]);
  EXPECT_EQ(outcomes[0].tokens.back().finish, FinishCode::kEos);
  EXPECT_EQ(outcomes[1].tokens.back().finish, FinishCode::kStopId);
  EXPECT_EQ(outcomes[2].tokens.back().finish, FinishCode::kTokenLimit);
  EXPECT_TRUE(outcomes[2].tokens[4].silent_eos);
  EXPECT_FALSE(outcomes[2].tokens[3].silent_eos);
  expect_idle();
}

TEST_F(EngineTest, TransformationsReachTheRanksAndARepetitionPenaltyCountsEachPromptIdOnce) {
  start_ready();
  SequenceRequest all = request(2, 3, 1), frequency = request(5, 3, 2);
  all.prompt = {9, 4, 9, 7, 4};
  all.sampling.logit_bias = {{3, -100.0f}, {5, 1.5f}};
  all.sampling.allowed_ids = {1, 2};
  all.sampling.repetition_penalty = 1.25f;
  all.sampling.presence_penalty = -0.5f;
  frequency.sampling.frequency_penalty = 2.0f;
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {all, frequency}).ok());
  client.wait();
  std::vector<SamplingParams> admitted;
  for (const Submission& s : ranks_[0]->submissions()) {
    for (const SlotAdmission& admission : s.admissions) admitted.push_back(admission.sampling);
  }
  ASSERT_EQ(admitted.size(), 2u);
  SamplingParams expected = all.sampling;
  expected.prompt_ids = {4, 7, 9};
  EXPECT_EQ(admitted[0], expected);
  EXPECT_EQ(admitted[1], frequency.sampling) << "no repetition penalty, no prompt ids";
}

TEST_F(EngineTest, ADroppedStreamFreesItsSlot) {
  core_.max_model_len = 4096;
  core_.kv_num_blocks = 4096;
  testing::ScriptedRankOptions slow;
  slow.step_time = 2ms;
  start_ready(slow);
  std::vector<SequenceRequest> long_ones(4, request(2, 4000));
  auto client = std::make_unique<Client>();
  ASSERT_TRUE(client->submit(*engine_, long_ones).ok());
  ASSERT_TRUE(eventually([&] { return engine_->status().running == 4; }));
  Client next;
  const SequenceRequest waiting = request(3, 5, 9);
  ASSERT_TRUE(next.submit(*engine_, {waiting}).ok());
  client->drop(2);  // one client leaves, its place goes to the next
  expect_complete(waiting, next.wait()[0]);
  client->stream(0).cancel();
  client.reset();
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.cancelled, 4);
}

TEST_F(EngineTest, AConsumerThatFallsBehindPausesOnlyItself) {
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
  const auto steps = ranks_[0]->submissions().size();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ranks_[0]->submissions().size(), steps) << "steps are planned for a consumer that does not read";
  expect_complete(lazy_request, lazy.wait()[0]);  // reading resumes it, and nothing was lost
  expect_idle();
}

TEST_F(EngineTest, AFullQueueRefusesAllOrNothing) {
  config_.max_waiting = 6;
  core_.max_model_len = 4096;
  core_.kv_num_blocks = 4096;
  testing::ScriptedRankOptions slow;
  slow.step_time = 2ms;
  start_ready(slow);
  Client running, waiting, refused;
  ASSERT_TRUE(running.submit(*engine_, std::vector<SequenceRequest>(4, request(2, 4000))).ok());
  ASSERT_TRUE(eventually([&] { return engine_->status().running == 4; }));
  ASSERT_TRUE(waiting.submit(*engine_, std::vector<SequenceRequest>(5, request(2, 2))).ok());
  const auto status = refused.submit(*engine_, std::vector<SequenceRequest>(2, request(2, 2)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kQueueFull);
  EXPECT_EQ(engine_->status().waiting, 5);
  EXPECT_TRUE(refused.submit(*engine_, {request(2, 2)}).ok());
}

TEST_F(EngineTest, RefusesWhatTheCoreCannotServe) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client client;
  EXPECT_EQ(client.submit(*engine_, {request(1, 1)}).error().code, Errc::kUnavailable);
  EXPECT_FALSE(engine_->status().ready);
  EXPECT_EQ(engine_->status().reason, "waiting for ranks: 0 of 2 are here");
  core_.logprobs = false;  // R34
  add_ranks();
  ASSERT_TRUE(eventually([&] { return engine_->status().ready; }));
  EXPECT_EQ(engine_->status().capabilities->max_logprobs, 0);
  const auto refused = [&](const SequenceRequest& r) {
    const auto status = client.submit(*engine_, {r});
    return !status.ok() && status.error().code == Errc::kInvalidArgument;
  };
  SequenceRequest bad = request(2, 2);
  bad.prompt[1] = 100;
  EXPECT_TRUE(refused(bad));
  bad.prompt[1] = -1;
  EXPECT_TRUE(refused(bad));
  EXPECT_TRUE(refused(request(40, 25)));
  bad = request(2, 2);
  bad.logprobs = true;
  EXPECT_TRUE(refused(bad));
  bad = request(2, 2);
  bad.sampling.stop_ids.assign(kMaxStopIds + 1, 1);
  EXPECT_TRUE(refused(bad));
  bad.sampling.stop_ids = {100};  // a rank would fault on it, and take everybody along
  EXPECT_TRUE(refused(bad));
  const auto refused_with = [&](auto change) {
    SequenceRequest r = request(2, 2);
    change(r.sampling);
    return refused(r);
  };
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.temperature = std::nanf(""); }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.logit_bias = {{1, std::nanf("")}}; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.logit_bias = {{1, 1.0f}, {1, 2.0f}}; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.allowed_ids = {-1}; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.allowed_ids = {7, 7}; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.repetition_penalty = 0.0f; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.frequency_penalty = 3.0f; }));
  EXPECT_TRUE(refused_with([](SamplingParams& p) { p.presence_penalty = std::nanf(""); }));
  const SequenceRequest good = request(2, 2);
  ASSERT_TRUE(client.submit(*engine_, {good}).ok());
  expect_complete(good, client.wait()[0]);
}

TEST_F(EngineTest, DrainFinishesWhatWasAcceptedAndLetsTheRanksLeave) {
  testing::ScriptedRankOptions slow;
  slow.step_time = 3ms;
  start_ready(slow);
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 7; ++i) requests.push_back(request(5, 20, i));
  Client client, late;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  std::thread drainer([&] { engine_->drain(30s); });
  ASSERT_TRUE(eventually([&] { return engine_->status().draining; }));
  EXPECT_FALSE(engine_->status().ready);
  EXPECT_EQ(late.submit(*engine_, {request(1, 1)}).error().code, Errc::kUnavailable);
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) expect_complete(requests[i], outcomes[i]);
  drainer.join();  // the ranks' sockets are closed, and that is all it waits for
  EXPECT_TRUE(ranks_[0]->drained() && ranks_[1]->drained());
  EXPECT_FALSE(ranks_[0]->aborted());
}

TEST_F(EngineTest, DrainEndsStragglersAtItsLimit) {
  core_.max_model_len = 4096;
  core_.kv_num_blocks = 4096;
  config_.rank_drain_limit = 100ms;
  testing::ScriptedRankOptions slow;
  slow.step_time = 2ms;
  start_ready(slow);
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {request(2, 4000)}).ok());
  ASSERT_TRUE(eventually([&] { return engine_->status().running == 1; }));
  engine_->drain(50ms);
  const auto& outcome = client.wait()[0];
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->code, Errc::kUnavailable);
  EXPECT_LT(outcome.tokens.size(), 4000u);
  EXPECT_EQ(client.submit(*engine_, {request(1, 1)}).error().code, Errc::kUnavailable);
}

TEST_F(EngineTest, StopEndsStreamsAndRanks) {
  core_.max_model_len = 4096;
  core_.kv_num_blocks = 4096;
  testing::ScriptedRankOptions slow;
  slow.step_time = 2ms;
  start_ready(slow);
  Client client;
  ASSERT_TRUE(client.submit(*engine_, std::vector<SequenceRequest>(6, request(2, 4000))).ok());
  ASSERT_TRUE(eventually([&] { return engine_->status().running == 4; }));
  engine_.reset();
  for (const auto& outcome : client.wait()) EXPECT_EQ(outcome.error->code, Errc::kUnavailable);
  EXPECT_TRUE(eventually([&] { return ranks_[0]->aborted() && ranks_[1]->aborted(); }));
  client.stream(0).cancel();  // streams outlive the engine
}

TEST_F(EngineTest, AnEndpointThatCannotBeBoundIsAnError) {
  config_.rank_endpoint = "ipc:///no/such/directory/socket";
  EXPECT_FALSE(Engine::start(config_, nullptr).ok());
}

TEST_F(EngineTest, TellsWhenItBecameReady) {
  std::atomic<int> opened{0};
  config_.on_ready = [&] { ++opened; };
  start_ready();
  EXPECT_TRUE(eventually([&] { return opened == 1; }));
  const EngineStatus status = engine_->status();
  EXPECT_EQ(status.incarnation, 1u);
  EXPECT_EQ(status.ranks.size(), 2u);
  EXPECT_EQ(status.ranks[1].state, RankState::kReady);
  EXPECT_LT(status.ranks[1].heartbeat_age_s, 30.0);
  EXPECT_EQ(status.reason, "");
  engine_.reset();
}

}  // namespace
}  // namespace helios
