#include "coordinator/scheduler/scheduler.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

Capabilities small_core() {
  return {.vocab_size = 100,
          .max_model_len = 64,
          .slot_capacity = 4,
          .token_capacity = 8,
          .prefill_chunk = 8,
          .kv_block_size = 4,
          .kv_num_blocks = 32,
          .max_logprobs = 20,
          .logprob_token_ids = true};
}

RequestSpec request(int prompt, int max_tokens) {
  RequestSpec spec;
  spec.prompt.assign(prompt, 1);
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

std::vector<RequestId> named(const Decision& decision) {
  std::vector<RequestId> ids;
  for (const PlannedLane& lane : decision.lanes) ids.push_back(lane.request->id);
  return ids;
}

/// Plans and commits; returns who was named, for frame_decoded.
std::vector<RequestId> step(Scheduler& scheduler) {
  const Decision decision = scheduler.plan();
  scheduler.commit(decision);
  return named(decision);
}

TEST(Scheduler, LongPromptsAreCutIntoChunksAndOnlyTheLastSamples) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(19, 4));
  for (const auto& [start, rows, samples] : {std::tuple{0, 8, false}, {8, 8, false}, {16, 3, true}}) {
    const Decision decision = scheduler.plan();
    ASSERT_EQ(decision.lanes.size(), 1u);
    EXPECT_EQ(decision.operation, Operation::kPrefill);
    EXPECT_EQ(decision.lanes[0].start, start);
    EXPECT_EQ(decision.lanes[0].rows, rows);
    EXPECT_EQ(decision.lanes[0].samples, samples);
    scheduler.commit(decision);
    scheduler.frame_decoded(named(decision));
  }
}

TEST(Scheduler, SeveralPromptsShareOneChunkInOrderOfArrival) {
  Scheduler scheduler(small_core());
  for (int i = 1; i <= 3; ++i) scheduler.enqueue(RequestId(i), request(3, 4));
  const Decision decision = scheduler.plan();
  ASSERT_EQ(decision.lanes.size(), 3u);
  EXPECT_EQ(decision.lanes[0].rows, 3);
  EXPECT_EQ(decision.lanes[1].rows, 3);
  EXPECT_EQ(decision.lanes[2].rows, 2);
  EXPECT_FALSE(decision.lanes[2].samples);
}

TEST(Scheduler, DecodingSlotsAndPromptsShareAMixedSubmission) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(3, 4));
  scheduler.frame_decoded(step(scheduler));
  scheduler.enqueue(RequestId(2), request(20, 4));
  const Decision decision = scheduler.plan();
  EXPECT_EQ(decision.operation, Operation::kMixed);
  ASSERT_EQ(decision.lanes.size(), 2u);
  EXPECT_EQ(decision.lanes[0].role, LaneRole::kDecode);
  EXPECT_EQ(decision.lanes[0].start, -1);
  EXPECT_EQ(decision.lanes[1].role, LaneRole::kPrefill);
  EXPECT_EQ(decision.lanes[1].rows, 8);
}

TEST(Scheduler, PlanChangesNothing) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(3, 4));
  const Decision a = scheduler.plan(), b = scheduler.plan();
  EXPECT_EQ(a.admissions[0].tenancy, b.admissions[0].tenancy);
  EXPECT_EQ(a.admissions[0].blocks, b.admissions[0].blocks);
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(scheduler.slots().num_free(), 4);
  EXPECT_EQ(scheduler.blocks().num_free(), 32);
}

TEST(Scheduler, DecodeIsPlannedBeforeThePreviousTokenIsKnown) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(3, 4));
  step(scheduler);  // in flight: nothing decoded yet
  const Decision decision = scheduler.plan();
  ASSERT_EQ(decision.lanes.size(), 1u);
  EXPECT_EQ(decision.operation, Operation::kDecode);
}

TEST(Scheduler, NoMoreLanesThanMaxTokensArePlanned) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(3, 2));
  step(scheduler);  // may emit the first
  step(scheduler);  // may emit the second
  EXPECT_TRUE(scheduler.plan().empty());
}

TEST(Scheduler, ALeaverKeepsItsSlotUntilNoFrameInFlightNamesIt) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(3, 8));
  const auto first = step(scheduler), second = step(scheduler);
  scheduler.leave(RequestId(1));
  EXPECT_TRUE(scheduler.plan().empty());
  EXPECT_EQ(scheduler.slots().num_free(), 3);
  scheduler.frame_decoded(first);
  EXPECT_EQ(scheduler.slots().num_free(), 3);
  scheduler.frame_decoded(second);
  EXPECT_EQ(scheduler.slots().num_free(), 4);
  EXPECT_EQ(scheduler.blocks().num_free(), 32);
  EXPECT_EQ(scheduler.find(RequestId(1)), nullptr);
}

TEST(Scheduler, AWaitingRequestThatLeavesIsForgottenAtOnce) {
  Scheduler scheduler(small_core());
  for (int i = 1; i <= 5; ++i) scheduler.enqueue(RequestId(i), request(1, 4));
  step(scheduler);
  EXPECT_EQ(scheduler.num_waiting(), 1);  // four slots
  scheduler.leave(RequestId(5));
  EXPECT_EQ(scheduler.num_waiting(), 0);
  scheduler.leave(RequestId(5));  // late cancels are harmless
  scheduler.leave(RequestId(99));
}

TEST(Scheduler, ALargeRequestIsNotOvertaken) {
  Scheduler scheduler(small_core());                // 32 blocks of 4
  scheduler.enqueue(RequestId(1), request(4, 60));  // 16 blocks
  scheduler.enqueue(RequestId(2), request(8, 40));  // 12 blocks
  scheduler.enqueue(RequestId(3), request(8, 40));  // 12: does not fit now
  scheduler.enqueue(RequestId(4), request(1, 1));   // would fit, but waits its turn
  scheduler.frame_decoded(step(scheduler));
  scheduler.frame_decoded(step(scheduler));
  EXPECT_EQ(scheduler.find(RequestId(2))->prompt_planned, 8);
  scheduler.frame_decoded(step(scheduler));
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.leave(RequestId(1));
  step(scheduler);
  EXPECT_TRUE(scheduler.find(RequestId(3))->tenancy.has_value());
}

TEST(Scheduler, AdmissionReservesBlocksForPromptAndMaxTokens) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(5, 8));  // 13 positions: 4 blocks of 4
  step(scheduler);
  EXPECT_EQ(scheduler.find(RequestId(1))->blocks.size(), 4u);
  EXPECT_EQ(scheduler.blocks().num_free(), 28);
}

TEST(Scheduler, APausedRequestIsSkippedAndOthersGoOn) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(2, 8));
  scheduler.enqueue(RequestId(2), request(2, 8));
  scheduler.frame_decoded(step(scheduler));
  scheduler.set_paused(RequestId(1), true);
  EXPECT_EQ(named(scheduler.plan()), std::vector{RequestId(2)});
  scheduler.set_paused(RequestId(1), false);
  EXPECT_EQ(scheduler.plan().lanes.size(), 2u);
}

TEST(Scheduler, WaitingRequestsCanMoveToANewScheduler) {
  Scheduler scheduler(small_core());
  for (int i = 1; i <= 6; ++i) scheduler.enqueue(RequestId(i), request(i, 4));
  step(scheduler);  // 1 + 2 + 3 rows, two of the fourth
  const auto waiting = scheduler.take_waiting();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting[0].first, RequestId(5));
  EXPECT_EQ(waiting[0].second.prompt.size(), 5u);
  EXPECT_EQ(waiting[1].first, RequestId(6));
  EXPECT_EQ(scheduler.num_waiting(), 0);
  EXPECT_EQ(scheduler.find(RequestId(5)), nullptr);
}

TEST(Scheduler, SaysWhyARequestCanNeverRun) {
  Capabilities core = small_core();
  EXPECT_TRUE(Scheduler::check_fits(core, request(32, 32)).ok());
  EXPECT_EQ(Scheduler::check_fits(core, request(32, 33)).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(Scheduler::check_fits(core, request(0, 1)).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(Scheduler::check_fits(core, request(1, 0)).error().code, Errc::kInvalidArgument);
  core.kv_num_blocks = 8;  // 32 positions
  EXPECT_EQ(Scheduler::check_fits(core, request(16, 17)).error().message,
            "prompt and max_tokens need 33 positions; the KV cache has 32");
}

}  // namespace
}  // namespace helios
