#include "coordinator/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

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

/// One submission, decoded at once: every sampling lane emits `token`. Returns who was named.
std::vector<RequestId> whole_step(Scheduler& scheduler, TokenId token = 9) {
  const Decision decision = scheduler.plan();
  scheduler.commit(decision);
  for (const PlannedLane& lane : decision.lanes) {
    const TokenId tokens[] = {token};
    scheduler.note_decoded(lane.request->id, lane.rows, std::span(tokens, lane.samples ? 1 : 0));
  }
  const auto ids = named(decision);
  scheduler.frame_decoded(ids);
  return ids;
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
  EXPECT_EQ(a.lanes[0].new_blocks, b.lanes[0].new_blocks);
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

// Its mask follows from its last token. A prompt computed meanwhile comes in short chunks: a stream waits for it.
TEST(Scheduler, AMaskedRequestWaitsForItsTokenAndOthersRunAhead) {
  Capabilities core = small_core();
  core.prefill_chunk = 64;
  Scheduler scheduler(core);
  RequestSpec masked = request(3, 4);
  masked.sampling.masks = true;
  scheduler.enqueue(RequestId(1), masked);
  scheduler.enqueue(RequestId(2), request(3, 9));
  const auto first = step(scheduler);
  EXPECT_EQ(first, (std::vector{RequestId(1), RequestId(2)}));
  EXPECT_EQ(named(scheduler.plan()), std::vector{RequestId(2)});
  RequestSpec next = request(50, 4);
  next.prompt[0] = 7;
  scheduler.enqueue(RequestId(3), next);
  EXPECT_EQ(scheduler.plan().lanes.back().rows, mixed_prompt_rows(64));
  for (const RequestId id : first) scheduler.note_decoded(id, 3, std::vector<TokenId>{9});
  EXPECT_EQ(named(scheduler.plan()), (std::vector{RequestId(1), RequestId(2), RequestId(3)}));
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

TEST(Scheduler, ALargePromptIsNotOvertaken) {
  Scheduler scheduler(small_core());  // 32 blocks of 4
  for (int i = 1; i <= 3; ++i) {
    RequestSpec spec = request(60, 4);  // 15 blocks, and one more for what is generated: the third does not fit
    spec.prompt[0] = i;
    scheduler.enqueue(RequestId(i), spec);
  }
  scheduler.enqueue(RequestId(4), request(1, 1));  // would fit, but waits its turn
  for (int i = 0; i < 20; ++i) whole_step(scheduler, i);
  EXPECT_EQ(scheduler.num_waiting(), 2);
  EXPECT_EQ(scheduler.find(RequestId(2))->generated(), 4);
  scheduler.leave(RequestId(1));
  whole_step(scheduler);
  EXPECT_TRUE(scheduler.find(RequestId(3))->tenancy.has_value());
}

TEST(Scheduler, ARequestHoldsBlocksForWhatIsPlannedOnly) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(6, 20));
  whole_step(scheduler);
  EXPECT_EQ(scheduler.find(RequestId(1))->blocks.size(), 2u);
  whole_step(scheduler);
  whole_step(scheduler);  // 8 positions
  EXPECT_EQ(scheduler.find(RequestId(1))->blocks.size(), 2u);
  const Decision ninth = scheduler.plan();
  EXPECT_EQ(ninth.lanes[0].first_block, 2);
  EXPECT_EQ(ninth.lanes[0].new_blocks.size(), 1u);
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOneToEnd) {
  Capabilities core = small_core();
  core.prefill_chunk = 64;
  core.max_model_len = 400;
  core.kv_num_blocks = 300;
  Scheduler scheduler(core);
  scheduler.enqueue(RequestId(1), request(390, 4));
  scheduler.enqueue(RequestId(2), request(350, 4));
  scheduler.enqueue(RequestId(3), request(5, 4));
  const Decision decision = scheduler.plan();
  ASSERT_EQ(decision.lanes.size(), 3u);
  EXPECT_EQ(decision.lanes[0].rows, 32 + 11) << "half, and what nobody else has a use for";
  EXPECT_EQ(decision.lanes[1].rows, 16);
  EXPECT_EQ(decision.lanes[2].rows, 5);
  EXPECT_TRUE(decision.lanes[2].samples);
}

TEST(Scheduler, StreamsRideAlongWithALongPromptAndItsChunksGetShorter) {
  Capabilities core = small_core();
  core.prefill_chunk = 128;
  core.max_model_len = 1000;
  core.kv_num_blocks = 500;
  Scheduler scheduler(core);
  scheduler.enqueue(RequestId(1), request(4, 200));
  scheduler.enqueue(RequestId(2), request(4, 200));
  whole_step(scheduler);
  RequestSpec long_one = request(900, 4);
  long_one.prompt[0] = 7;
  scheduler.enqueue(RequestId(3), long_one);
  for (int start = 0; start < 900; start += 32) {
    const Decision decision = scheduler.plan();
    EXPECT_EQ(decision.operation, Operation::kMixed);
    ASSERT_EQ(named(decision), (std::vector{RequestId(1), RequestId(2), RequestId(3)})) << "no step without them";
    EXPECT_EQ(decision.lanes[2].start, start);
    EXPECT_EQ(decision.lanes[2].rows, std::min(32, 900 - start));
    whole_step(scheduler, start);
  }
}

TEST(Scheduler, ALowerPriorityNumberGoesFirstThenTheEarlierArrival) {
  Scheduler scheduler(small_core());
  const int64_t priorities[] = {5, 0, -3, 0, 5, -3};
  for (int i = 0; i < 6; ++i) {
    RequestSpec spec = request(1, 4);
    spec.priority = priorities[i];
    scheduler.enqueue(RequestId(i + 1), spec);
  }
  const Decision decision = scheduler.plan();
  std::vector<RequestId> admitted;
  for (const PlannedAdmission& admission : decision.admissions) admitted.push_back(admission.request->id);
  EXPECT_EQ(admitted, (std::vector{RequestId(3), RequestId(6), RequestId(2), RequestId(4)}));  // four slots
}

TEST(Scheduler, TheSamePrefixIsComputedOnce) {
  Scheduler scheduler(small_core());
  scheduler.enqueue(RequestId(1), request(8, 8));
  for (int i = 0; i < 6; ++i) whole_step(scheduler, 1);  // 8 of the prompt and 5 generated ones in the cache
  scheduler.enqueue(RequestId(2), request(8, 2));        // equal: its last block is computed again for its last row
  scheduler.enqueue(RequestId(3), request(30, 2));       // continues what was generated
  const Decision decision = scheduler.plan();
  ASSERT_EQ(decision.admissions.size(), 2u);
  const auto& holder = scheduler.find(RequestId(1))->blocks;
  EXPECT_EQ(decision.admissions[0].cached, std::vector<int32_t>(holder.begin(), holder.begin() + 1));
  EXPECT_EQ(decision.admissions[1].cached, std::vector<int32_t>(holder.begin(), holder.begin() + 3));
  EXPECT_EQ(decision.lanes[1].start, 4);
  EXPECT_EQ(decision.lanes[2].start, 12);
  scheduler.commit(decision);
  EXPECT_EQ(scheduler.blocks().holders(holder[0]), 3);
  EXPECT_EQ(*scheduler.find(RequestId(3))->cached, 12);
}

TEST(Scheduler, ALeaversPrefixIsFoundUntilItsBlocksAreTaken) {
  Capabilities core = small_core();
  core.kv_num_blocks = 12;
  Scheduler scheduler(core);
  scheduler.enqueue(RequestId(1), request(17, 2));
  for (int i = 0; i < 3; ++i) whole_step(scheduler);
  scheduler.leave(RequestId(1));
  EXPECT_EQ(scheduler.blocks().num_free(), 12);
  scheduler.enqueue(RequestId(2), request(18, 1));
  EXPECT_EQ(scheduler.plan().admissions[0].cached.size(), 4u);
  scheduler.leave(RequestId(2));
  RequestSpec other = request(40, 1);  // takes ten of twelve blocks: the end of the old prefix goes first
  other.prompt[0] = 7;
  scheduler.enqueue(RequestId(3), other);
  for (int i = 0; i < 6; ++i) whole_step(scheduler);
  scheduler.leave(RequestId(3));
  scheduler.enqueue(RequestId(4), request(18, 1));
  EXPECT_EQ(scheduler.plan().admissions[0].cached.size(), 2u);
}

TEST(Scheduler, WithoutAPrefixCacheNothingIsFound) {
  Scheduler scheduler(small_core(), {.prefix_cache = false});
  scheduler.enqueue(RequestId(1), request(12, 2));
  for (int i = 0; i < 3; ++i) whole_step(scheduler);
  scheduler.enqueue(RequestId(2), request(12, 2));
  EXPECT_TRUE(scheduler.plan().admissions[0].cached.empty());
  EXPECT_EQ(scheduler.cache().prefixes().size(), 0);
}

/// Two requests of 8 + 20 tokens on eight blocks of four: 32 positions.
class Crowded : public ::testing::Test {
 protected:
  static Capabilities core() {
    Capabilities c = small_core();
    c.kv_num_blocks = 8;
    c.prefill_chunk = 32;
    return c;
  }
  Crowded() : scheduler_(core()) {
    for (int i = 1; i <= 2; ++i) {
      RequestSpec spec = request(8, 20);
      spec.prompt[0] = i;
      scheduler_.enqueue(RequestId(i), spec);
    }
  }
  Scheduler scheduler_;
};

TEST_F(Crowded, TheLastInRankGivesWayAndComesBackWithAllItsTokens) {
  int token = 10;
  while (scheduler_.num_waiting_again() == 0) {
    ASSERT_LT(++token, 40) << "nobody gave way";
    whole_step(scheduler_, token);
  }
  EXPECT_TRUE(scheduler_.find(RequestId(1))->tenancy.has_value());
  EXPECT_FALSE(scheduler_.find(RequestId(2))->tenancy.has_value());
  const int32_t generated = scheduler_.find(RequestId(2))->generated();
  EXPECT_GT(generated, 0);
  for (int i = 0; i < 30 && scheduler_.find(RequestId(1))->generated() < 20; ++i) whole_step(scheduler_, ++token);
  scheduler_.leave(RequestId(1));
  const Decision decision = scheduler_.plan();
  ASSERT_EQ(decision.admissions.size(), 1u);
  EXPECT_EQ(decision.admissions[0].request->id, RequestId(2));
  const PlannedLane& lane = decision.lanes[0];
  EXPECT_EQ(lane.role, LaneRole::kPrefill);
  EXPECT_EQ(lane.start, 4 * static_cast<int>(decision.admissions[0].cached.size()));
  EXPECT_EQ(lane.start + lane.rows, 8 + generated);
  EXPECT_TRUE(lane.samples);
}

TEST(Scheduler, LateResultsOfAPreemptedRequestCountOnce) {
  Capabilities core = small_core();
  core.kv_num_blocks = 6;  // the first needs a block while the second, behind it, has lanes in flight
  Scheduler scheduler(core);
  scheduler.enqueue(RequestId(1), request(8, 16));
  scheduler.enqueue(RequestId(2), request(6, 16));
  std::deque<Decision> flying;
  std::map<RequestId, std::vector<TokenId>> ended;
  const auto decode_one = [&] {
    const std::vector<RequestId> ids = named(flying.front());
    for (const PlannedLane& lane : flying.front().lanes) {
      const RequestState& state = *lane.request;
      const TokenId tokens[] = {10 + state.generated()};
      scheduler.note_decoded(state.id, lane.rows, std::span(tokens, lane.samples ? 1 : 0));
      if (state.generated() < 16) continue;
      ended[state.id].assign(state.tokens.begin() + state.prompt_size, state.tokens.end());
      scheduler.leave(state.id);
    }
    scheduler.frame_decoded(ids);
    flying.pop_front();
  };
  bool was_preempted_in_flight = false;
  for (int i = 0; i < 200 && ended.size() < 2; ++i) {
    Decision decision = scheduler.plan();
    if (decision.empty()) {
      ASSERT_FALSE(flying.empty());
      decode_one();
    } else {
      scheduler.commit(decision);
      if (!decision.lanes.empty()) flying.push_back(std::move(decision));
    }
    if (flying.size() == 2) decode_one();
    const RequestState* second = scheduler.find(RequestId(2));
    was_preempted_in_flight |= second && second->preempted && second->frames_in_flight > 0;
  }
  EXPECT_TRUE(was_preempted_in_flight);
  for (int id = 1; id <= 2; ++id) {
    ASSERT_EQ(ended[RequestId(id)].size(), 16u);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(ended[RequestId(id)][i], 10 + i);
  }
}

TEST_F(Crowded, APreemptedRequestThatLeavesIsForgotten) {
  for (int i = 0; i < 30 && scheduler_.num_waiting_again() == 0; ++i) whole_step(scheduler_, i);
  ASSERT_EQ(scheduler_.num_waiting_again(), 1);
  EXPECT_TRUE(scheduler_.take_waiting().empty()) << "it has begun";
  scheduler_.leave(RequestId(2));
  EXPECT_EQ(scheduler_.num_waiting(), 0);
  EXPECT_EQ(scheduler_.num_waiting_again(), 0);
  EXPECT_EQ(scheduler_.find(RequestId(2)), nullptr);
}

TEST_F(Crowded, APausedRequestGivesWayEvenIfItCameFirst) {
  whole_step(scheduler_, 1);
  scheduler_.set_paused(RequestId(1), true);
  for (int i = 0; i < 40 && scheduler_.find(RequestId(2))->generated() < 20; ++i) whole_step(scheduler_, i);
  EXPECT_EQ(scheduler_.find(RequestId(2))->generated(), 20);
  EXPECT_FALSE(scheduler_.find(RequestId(1))->tenancy.has_value());
}

TEST(Scheduler, APausedRequestGivesItsSlotToWhoeverWaits) {
  Scheduler scheduler(small_core());
  for (int i = 1; i <= 5; ++i) scheduler.enqueue(RequestId(i), request(1, 8));  // four slots
  whole_step(scheduler);
  EXPECT_FALSE(scheduler.find(RequestId(5))->tenancy.has_value());
  scheduler.set_paused(RequestId(2), true);
  whole_step(scheduler);
  whole_step(scheduler);
  EXPECT_TRUE(scheduler.find(RequestId(5))->tenancy.has_value());
  EXPECT_EQ(scheduler.num_waiting_again(), 1);
  scheduler.leave(RequestId(1));
  whole_step(scheduler);
  EXPECT_FALSE(scheduler.find(RequestId(2))->tenancy.has_value()) << "its consumer still does not read";
  scheduler.set_paused(RequestId(2), false);
  whole_step(scheduler);
  EXPECT_TRUE(scheduler.find(RequestId(2))->tenancy.has_value());
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
  EXPECT_EQ(waiting[0].second.prompt, request(5, 4).prompt);
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
