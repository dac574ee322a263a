// Scored prompts in the scheduler: which step they ride in, what they bypass, how they come back after a preemption.
#include "coordinator/scheduler/scheduler.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

Capabilities scoring_core() {
  return {.vocab_size = 100,
          .max_model_len = 64,
          .slot_capacity = 4,
          .token_capacity = 8,
          .prefill_chunk = 8,
          .kv_block_size = 4,
          .kv_num_blocks = 16,
          .max_logprobs = 20,
          .logprob_token_ids = true,
          .prompt_scoring = true};
}

RequestSpec plain(int prompt, int max_tokens) {
  RequestSpec spec;
  for (int i = 0; i < prompt; ++i) spec.prompt.push_back(i % 90);
  spec.sampling.max_tokens = max_tokens;
  return spec;
}
RequestSpec scored(int prompt, int max_tokens) {
  RequestSpec spec = plain(prompt, max_tokens);
  spec.prompt_scores = true;
  return spec;
}

/// One submission, decoded at once: every sampling lane emits 9.
Decision whole_decision(Scheduler& scheduler) {
  const Decision decision = scheduler.plan();
  std::vector<RequestId> ids;
  std::vector<std::pair<int32_t, bool>> lanes;
  for (const PlannedLane& lane : decision.lanes) {
    ids.push_back(lane.request->id);
    lanes.emplace_back(lane.rows, lane.samples);
  }
  scheduler.commit(decision);
  for (size_t i = 0; i < ids.size(); ++i) {
    const TokenId tokens[] = {9};
    scheduler.note_decoded(ids[i], lanes[i].first, std::span(tokens, lanes[i].second ? 1 : 0));
  }
  scheduler.frame_decoded(ids);
  return decision;
}

TEST(ScoredPrefill, IsChosenForThePromptsThatAskAndForNoOthers) {  // R43
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), scored(5, 2));
  scheduler.enqueue(RequestId(2), plain(3, 2));
  scheduler.enqueue(RequestId(3), scored(1, 2));  // a single token has nothing before it: nothing to score
  Decision decision = whole_decision(scheduler);
  EXPECT_EQ(decision.operation, Operation::kScoredPrefill);
  ASSERT_EQ(decision.lanes.size(), 1u);
  EXPECT_EQ(decision.lanes[0].rows, 5);
  EXPECT_TRUE(decision.lanes[0].samples);
  decision = whole_decision(scheduler);
  EXPECT_EQ(decision.operation, Operation::kMixed);
  ASSERT_EQ(decision.lanes.size(), 3u);
  EXPECT_EQ(decision.lanes[0].role, LaneRole::kDecode);
}

TEST(ScoredPrefill, TakesTurnsWithDecodeAndNeverEntersAMixedGraph) {  // R43
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), plain(3, 30));
  whole_decision(scheduler);
  scheduler.enqueue(RequestId(2), scored(20, 4));
  std::vector<Operation> seen;
  for (int i = 0; i < 6; ++i) seen.push_back(whole_decision(scheduler).operation);
  const std::vector<Operation> expected{Operation::kScoredPrefill, Operation::kDecode,        Operation::kScoredPrefill,
                                        Operation::kDecode,        Operation::kScoredPrefill, Operation::kDecode};
  EXPECT_EQ(seen, expected);
}

TEST(ScoredPrefill, SeveralPromptsShareASubmission) {
  Scheduler scheduler(scoring_core());
  for (int i = 1; i <= 3; ++i) scheduler.enqueue(RequestId(i), scored(3, 1));
  const Decision decision = scheduler.plan();
  EXPECT_EQ(decision.operation, Operation::kScoredPrefill);
  ASSERT_EQ(decision.lanes.size(), 3u);
  EXPECT_EQ(decision.lanes[2].rows, 2);
}

TEST(ScoredPrefill, BypassesTheLookUpButPublishesItsBlocks) {  // R43
  Scheduler scheduler(scoring_core());
  for (int i = 1; i <= 2; ++i) {
    scheduler.enqueue(RequestId(i), scored(8, 1));
    const Decision decision = whole_decision(scheduler);
    ASSERT_EQ(decision.admissions.size(), 1u);
    EXPECT_TRUE(decision.admissions[0].cached.empty());
    EXPECT_EQ(scheduler.find(RequestId(i))->cached, 0);
    scheduler.leave(RequestId(i));
  }
  scheduler.enqueue(RequestId(3), plain(8, 1));
  const Decision decision = scheduler.plan();
  EXPECT_EQ(decision.admissions[0].cached.size(), 1u) << "an unscored request finds what the scored ones computed";
}

TEST(ScoredPrefill, AZeroBudgetPrefillsOnly) {  // R38
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), scored(12, 0));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(scheduler.find(RequestId(1))->prefilled_only());
    const Decision decision = whole_decision(scheduler);
    ASSERT_EQ(decision.lanes.size(), 1u);
    EXPECT_FALSE(decision.lanes[0].samples);
  }
  EXPECT_TRUE(scheduler.find(RequestId(1))->prefilled_only());
  EXPECT_TRUE(scheduler.plan().empty());
  EXPECT_FALSE(Scheduler::check_fits(scoring_core(), plain(12, 0)).ok()) << "without scores there is nothing to do";
}

TEST(ScoredPrefill, ACoreWithoutItRefuses) {  // R45
  Capabilities core = scoring_core();
  core.prompt_scoring = false;
  EXPECT_FALSE(Scheduler::check_fits(core, scored(4, 4)).ok());
}

TEST(ScoredPrefill, AReadmissionInTheMiddleKeepsWhatWasPublished) {  // R43
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), scored(20, 4));
  whole_decision(scheduler);
  EXPECT_EQ(scheduler.find(RequestId(1))->scores_known, 8);
  scheduler.set_paused(RequestId(1), true);  // gives way to whoever comes
  RequestSpec large = plain(58, 4);
  large.prompt[0] = 77;
  scheduler.enqueue(RequestId(2), large);
  Decision decision = scheduler.plan();
  for (int i = 0; i < 3 && decision.preemptions.empty(); ++i) {
    whole_decision(scheduler);
    decision = scheduler.plan();
  }
  ASSERT_EQ(decision.preemptions.size(), 1u);
  scheduler.commit(decision);
  EXPECT_FALSE(scheduler.find(RequestId(1))->tenancy.has_value());
  scheduler.leave(RequestId(2));
  scheduler.frame_decoded({});
  scheduler.set_paused(RequestId(1), false);
  decision = whole_decision(scheduler);
  EXPECT_EQ(decision.operation, Operation::kScoredPrefill);
  ASSERT_EQ(decision.admissions.size(), 1u);
  EXPECT_TRUE(decision.admissions[0].cached.empty()) << "from position zero on";
  EXPECT_EQ(decision.lanes[0].start, 0);
  EXPECT_EQ(scheduler.find(RequestId(1))->scores_known, 8) << "nothing new yet";
  whole_decision(scheduler);
  EXPECT_EQ(scheduler.find(RequestId(1))->scores_known, 16);
  EXPECT_TRUE(whole_decision(scheduler).lanes[0].samples);
  EXPECT_EQ(scheduler.find(RequestId(1))->scores_known, 19);
}

TEST(ScoredPrefill, AfterItsScoresAReadmittedRequestIsAnOrdinaryOne) {  // R43: only what remains is scored
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), scored(8, 8));
  whole_decision(scheduler);
  whole_decision(scheduler);
  EXPECT_EQ(scheduler.find(RequestId(1))->generated(), 2);
  scheduler.set_paused(RequestId(1), true);
  scheduler.enqueue(RequestId(2), plain(60, 4));
  Decision decision = scheduler.plan();
  for (int i = 0; i < 9 && decision.preemptions.empty(); ++i) {
    whole_decision(scheduler);
    decision = scheduler.plan();
  }
  ASSERT_EQ(decision.preemptions.size(), 1u);
  scheduler.commit(decision);
  scheduler.leave(RequestId(2));
  scheduler.set_paused(RequestId(1), false);
  decision = scheduler.plan();
  EXPECT_EQ(decision.operation, Operation::kPrefill);
}

TEST(ScoredPrefill, APausedConsumerGetsNoMoreScoredRows) {  // R31: what is buffered is bounded
  Scheduler scheduler(scoring_core());
  scheduler.enqueue(RequestId(1), scored(20, 4));
  whole_decision(scheduler);
  scheduler.set_paused(RequestId(1), true);
  EXPECT_TRUE(scheduler.plan().empty());
  scheduler.set_paused(RequestId(1), false);
  EXPECT_EQ(scheduler.plan().lanes.size(), 1u);
}

TEST(ScoredPrefill, TheFlagChangesNoPlanOfUnscoredRequests) {  // R47
  Capabilities with = scoring_core(), without = scoring_core();
  without.prompt_scoring = false;
  Scheduler a(with), b(without);
  for (int i = 1; i <= 6; ++i) {
    a.enqueue(RequestId(i), plain(2 + 3 * i, 5));
    b.enqueue(RequestId(i), plain(2 + 3 * i, 5));
  }
  for (int step = 0; step < 30; ++step) {
    const Decision x = whole_decision(a), y = whole_decision(b);
    ASSERT_EQ(x.operation, y.operation);
    ASSERT_EQ(x.lanes.size(), y.lanes.size());
    for (size_t i = 0; i < x.lanes.size(); ++i) {
      EXPECT_EQ(x.lanes[i].tenancy, y.lanes[i].tenancy);
      EXPECT_EQ(x.lanes[i].rows, y.lanes[i].rows);
      EXPECT_EQ(x.lanes[i].new_blocks, y.lanes[i].new_blocks);
    }
  }
}

}  // namespace
}  // namespace helios
