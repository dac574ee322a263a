// Prefix cache, preemption and many sequences at once, through real sockets. The scripted ranks compute each token from
// the whole prefix as their block tables give it, so expect_complete() fails where a block is wrong.
#include "coordinator/engine/engine.h"

#include "tests/coordinator/engine/engine_fixture.h"

#include <random>

namespace helios {
namespace {

using testing::Client;
using testing::eventually;

class EngineCacheTest : public testing::EngineFixture {
 protected:
  /// Six slots over 18 blocks of four: 72 positions, where each sequence may want 48.
  void make_crowded() {
    core_.slot_capacity = 6;
    core_.kv_num_blocks = 18;
  }
  std::vector<SequenceRequest> mixed_requests(int count) {
    std::mt19937 random(5);
    std::vector<SequenceRequest> requests;
    for (int i = 0; i < count; ++i) {
      SequenceRequest r = request(1 + static_cast<int>(random() % 24), 1 + static_cast<int>(random() % 24), i % 20);
      r.logprobs = i % 3 == 0;
      r.num_logprobs = r.logprobs ? 4 : 0;
      requests.push_back(std::move(r));
    }
    return requests;
  }
};

TEST_F(EngineCacheTest, TheSamePromptIsFoundAndGivesTheSameBits) {  // X1
  start_ready();
  SequenceRequest r = request(23, 12, 3);
  r.logprobs = true;
  r.num_logprobs = 5;
  Client first, second;
  ASSERT_TRUE(first.submit(*engine_, {r}).ok());
  expect_complete(r, first.wait()[0]);
  EXPECT_EQ(first.stream(0).cached_tokens(), 0);
  ASSERT_TRUE(second.submit(*engine_, {r}).ok());
  expect_complete(r, second.wait()[0]);
  EXPECT_EQ(second.stream(0).cached_tokens(), 20);  // five blocks of four
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(first.outcome(0).tokens[i].logprobs->chosen, second.outcome(0).tokens[i].logprobs->chosen);
    EXPECT_EQ(first.outcome(0).tokens[i].logprobs->alternatives, second.outcome(0).tokens[i].logprobs->alternatives);
  }
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.looked_up, 46);
  EXPECT_EQ(observer_.found_cached, 20);
  EXPECT_EQ(observer_.prompt_tokens, 46) << "cached ones are counted too";
}

TEST_F(EngineCacheTest, AnotherSaltFindsNothing) {
  start_ready();
  SequenceRequest r = request(23, 3, 3);
  for (const char* salt : {"a", "b", "a"}) {
    r.cache_salt = salt;
    Client client;
    ASSERT_TRUE(client.submit(*engine_, {r}).ok());
    expect_complete(r, client.wait()[0]);
  }
  engine_.reset();
  EXPECT_EQ(observer_.found_cached, 20);
}

TEST_F(EngineCacheTest, WhatLeftTheCacheComesBackFromTheHostTier) {  // X1
  core_.kv_num_blocks = 12;
  core_.host_num_blocks = 40;
  start_ready();
  SequenceRequest r = request(23, 12, 3);
  r.logprobs = true;
  r.num_logprobs = 5;
  const auto run = [&](const SequenceRequest& one, Client& client) {
    ASSERT_TRUE(client.submit(*engine_, {one}).ok());
    expect_complete(one, client.wait()[0]);
  };
  Client first, again, salted;
  run(r, first);
  for (uint64_t i = 4; i < 8; ++i) {  // each takes nine of the twelve blocks
    Client other;
    SequenceRequest another = request(30, 4, i);
    another.cache_salt = std::to_string(i);
    run(another, other);
  }
  run(r, again);
  EXPECT_EQ(again.stream(0).cached_tokens(), 20);  // five blocks of four
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(first.outcome(0).tokens[i].logprobs->chosen, again.outcome(0).tokens[i].logprobs->chosen);
    EXPECT_EQ(first.outcome(0).tokens[i].logprobs->alternatives, again.outcome(0).tokens[i].logprobs->alternatives);
  }
  r.cache_salt = "mine";
  run(r, salted);
  EXPECT_EQ(salted.stream(0).cached_tokens(), 0) << "another salt finds nothing in the tier either";
  EXPECT_GT(engine_->status().host_tier_usage, 0.0);
  expect_idle();
  engine_.reset();
  EXPECT_EQ(observer_.found_cached, 0);
  EXPECT_EQ(observer_.found_on_host, 20);
}

TEST_F(EngineCacheTest, TheCacheCanBeTurnedOff) {
  config_.prefix_cache = false;
  start_ready();
  const SequenceRequest r = request(23, 3, 3);
  for (int i = 0; i < 2; ++i) {
    Client client;
    ASSERT_TRUE(client.submit(*engine_, {r}).ok());
    expect_complete(r, client.wait()[0]);
    EXPECT_EQ(client.stream(0).cached_tokens(), 0);
  }
  engine_.reset();
  EXPECT_EQ(observer_.looked_up, 0);
}

TEST_F(EngineCacheTest, PreemptedSequencesGetTheSameTokensAndLogprobs) {  // X1
  make_crowded();
  core_.host_num_blocks = 30;
  start_ready();
  auto requests = mixed_requests(60);
  for (SequenceRequest& r : requests) r.sampling.max_tokens += 16;  // who is let in has room for a block or two
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_complete(requests[i], outcomes[i]);
    for (size_t t = 0; t < outcomes[i].tokens.size() && requests[i].logprobs; ++t) {
      const TokenEvent& event = outcomes[i].tokens[t];
      EXPECT_EQ(event.logprobs->chosen,
                testing::toy_logprob(event.token, static_cast<int64_t>(requests[i].prompt.size() + t)));
      EXPECT_EQ(event.logprobs->alternatives.size(), 4u);
    }
  }
  expect_idle();
  engine_.reset();
  EXPECT_GT(observer_.preempted, 3);
  EXPECT_EQ(observer_.finished, 60);
  EXPECT_EQ(observer_.first_tokens, 60);
  int64_t prompt = 0;
  for (const SequenceRequest& r : requests) prompt += static_cast<int64_t>(r.prompt.size());
  EXPECT_EQ(observer_.prompt_tokens, prompt) << "what is computed again does not count again";
}

TEST_F(EngineCacheTest, AReadmissionRestoresWhatTheSlotCounted) {
  make_crowded();
  start_ready();
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(request(8, 40, i));
    requests.back().sampling.frequency_penalty = 0.5f;
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) expect_complete(requests[i], outcomes[i]);
  int readmissions = 0;
  for (const Submission& s : ranks_[0]->submissions()) {
    for (const SlotAdmission& admission : s.admissions) {
      int32_t counted = 0;
      for (const TokenCount& count : admission.sampling.output_counts) counted += count.count;
      EXPECT_EQ(counted, admission.generated);
      readmissions += admission.generated > 0;
    }
  }
  EXPECT_GT(readmissions, 0);
}

TEST_F(EngineCacheTest, AUrgentRequestIsServedBeforeThoseThatWait) {
  core_.slot_capacity = 1;
  core_.max_model_len = 4096;
  core_.kv_num_blocks = 1024;
  testing::ScriptedRankOptions slow;
  slow.step_time = std::chrono::milliseconds(1);
  start_ready(slow);
  Client blocking, late, urgent;
  ASSERT_TRUE(blocking.submit(*engine_, {request(2, 4000)}).ok());
  ASSERT_TRUE(eventually([&] { return engine_->status().running == 1; }));
  SequenceRequest ordinary = request(2, 40, 1), first = request(2, 2, 2);
  first.priority = -1;
  ASSERT_TRUE(late.submit(*engine_, std::vector<SequenceRequest>(20, ordinary)).ok());
  ASSERT_TRUE(urgent.submit(*engine_, {first}).ok());
  blocking.drop(0);
  expect_complete(first, urgent.wait()[0]);
  late.read();
  EXPECT_FALSE(late.outcome(0).ended && late.outcome(1).ended) << "it overtook those that had waited longer";
}

TEST_F(EngineCacheTest, CancelsAtEveryStageLeaveNothingBehind) {
  make_crowded();
  core_.host_num_blocks = 20;  // some leave while their prefix is on its way back
  start_ready();
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    Client client;
    const auto requests = mixed_requests(20);
    ASSERT_TRUE(client.submit(*engine_, requests).ok());
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
      client.read();
      if (random() % 2 == 0) client.drop(i);  // waiting, in prefill, decoding, preempted, in flight or finished
    }
    client.wait();
  }
  expect_idle();  // no slot, no block
  engine_.reset();
  EXPECT_GT(observer_.cancelled, 0);
  EXPECT_EQ(observer_.finished + observer_.cancelled, 240);
}

class EngineCrowdTest : public testing::EngineFixture, public ::testing::WithParamInterface<int> {};

TEST_P(EngineCrowdTest, ManyAtOnceFinishOnTooFewBlocks) {
  const int slots = GetParam();
  core_.slot_capacity = slots;
  core_.prefill_chunk = 4096;
  core_.max_model_len = 128;
  core_.kv_num_blocks = slots * 2;  // eight positions each, of up to 124
  ASSERT_NO_FATAL_FAILURE(start_ready());
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < slots; ++i) {
    requests.push_back(request(1 + i % 30, 61 + (i * 7) % 34, static_cast<uint64_t>(i)));
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (int i = 0; i < slots; ++i) expect_complete(requests[i], outcomes[i]);
  expect_idle();
  engine_.reset();
  EXPECT_GT(observer_.preempted, 0);
}

INSTANTIATE_TEST_SUITE_P(Slots, EngineCrowdTest, ::testing::Values(64, 512));

}  // namespace
}  // namespace helios
