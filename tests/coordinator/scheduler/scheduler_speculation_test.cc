// When proposals are made, who waits for whom, and who gets the rows.
#include "coordinator/scheduler/scheduler.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

using Tokens = std::vector<TokenId>;

class SpeculationTest : public ::testing::Test {
 protected:
  static Capabilities core(int32_t more_rows = 64) {
    return {.vocab_size = 100,
            .max_model_len = 64,
            .slot_capacity = 4,
            .token_capacity = 4,
            .prefill_chunk = 8,
            .kv_block_size = 4,
            .kv_num_blocks = 64,
            .verify_rows = 4 + more_rows};
  }
  static SchedulerOptions options() { return {.proposals = {.num_tokens = 3, .shortest = 2, .longest = 2}}; }

  /// A prompt in which 1 2 is followed by 3 4 5, or whose tokens are all different.
  static RequestSpec request(bool repeats, int max_tokens = 20) {
    RequestSpec spec{.prompt = repeats ? Tokens{1, 2, 3, 4, 5, 1} : Tokens{11, 12, 13, 14, 15, 16}};
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }
  /// Plans and commits. What is in flight is the test's to end.
  Decision next(Scheduler& scheduler) {
    Decision decision = scheduler.plan();
    scheduler.commit(decision);
    return decision;
  }
  static void end(Scheduler& scheduler, const Decision& decision, const std::vector<Tokens>& emitted) {
    std::vector<RequestId> ids;
    for (size_t i = 0; i < decision.lanes.size(); ++i) {
      const PlannedLane& lane = decision.lanes[i];
      ids.push_back(lane.request->id);
      scheduler.note_decoded(lane.request->id, lane.rows, emitted.at(i));
    }
    scheduler.frame_decoded(ids);
  }
};

TEST_F(SpeculationTest, WhatFollowedTheLastTimeIsProposedAndOnlyWhatCameTrueCounts) {
  Scheduler scheduler(core(), options());
  scheduler.enqueue(RequestId(1), request(true));
  end(scheduler, next(scheduler), {{2}});
  const Decision round = next(scheduler);
  EXPECT_EQ(round.operation, Operation::kVerify);
  ASSERT_EQ(round.lanes.size(), 1u);
  EXPECT_EQ(round.lanes[0].proposals, (Tokens{3, 4, 5}));
  EXPECT_EQ(scheduler.find(RequestId(1))->kv_planned, 6 + 4);
  EXPECT_TRUE(scheduler.plan().empty()) << "nobody knows how many tokens come";
  end(scheduler, round, {{3, 4, 9}});
  const RequestState& state = *scheduler.find(RequestId(1));
  EXPECT_EQ(state.tokens, (Tokens{1, 2, 3, 4, 5, 1, 2, 3, 4, 9}));
  EXPECT_EQ(state.kv_known, 9);
  EXPECT_EQ(state.kv_planned, 9);
  EXPECT_EQ(state.samples_planned, 4);
  EXPECT_EQ(next(scheduler).operation, Operation::kDecode) << "9 has never been there before";
}

TEST_F(SpeculationTest, WithoutAnythingToProposeTwoFramesAreInFlight) {
  Scheduler scheduler(core(), options());
  scheduler.enqueue(RequestId(1), request(false));
  end(scheduler, next(scheduler), {{2}});
  const Decision first = next(scheduler);
  EXPECT_EQ(first.operation, Operation::kDecode);
  EXPECT_EQ(next(scheduler).operation, Operation::kDecode);
}

TEST_F(SpeculationTest, EverybodyWaitsForTokensBehindWhichThereAreProposals) {
  Scheduler scheduler(core(), options());
  scheduler.enqueue(RequestId(1), request(false));
  scheduler.enqueue(RequestId(2), request(true));
  const Decision prompts = next(scheduler);  // the second one's in part
  end(scheduler, prompts, {{20}, {}});
  const Decision mixed = next(scheduler);
  EXPECT_EQ(mixed.operation, Operation::kMixed);
  const Decision ahead = next(scheduler);  // nothing is known yet of what the second begins with
  EXPECT_EQ(ahead.operation, Operation::kDecode);
  EXPECT_EQ(ahead.lanes.size(), 2u);
  end(scheduler, mixed, {{21}, {2}});
  EXPECT_TRUE(scheduler.plan().empty()) << "the first could go on, and the second would ride every other step";
  end(scheduler, ahead, {{22}, {3}});
  const Decision round = next(scheduler);
  EXPECT_EQ(round.operation, Operation::kVerify);
  ASSERT_EQ(round.lanes.size(), 2u);
  EXPECT_EQ(round.lanes[0].proposals, Tokens{});
  EXPECT_EQ(round.lanes[1].proposals, (Tokens{4, 5, 1}));
}

TEST_F(SpeculationTest, StepsWithPromptsCarryNoProposalsAndDoNotWait) {
  Scheduler scheduler(core(), options());
  scheduler.enqueue(RequestId(1), request(true));
  end(scheduler, next(scheduler), {{2}});
  RequestSpec long_one = request(false);
  long_one.prompt.assign(40, 7);
  scheduler.enqueue(RequestId(2), long_one);
  const Decision first = next(scheduler), second = next(scheduler);
  for (const Decision* decision : {&first, &second}) {
    EXPECT_EQ(decision->operation, Operation::kMixed);
    EXPECT_EQ(decision->lanes.size(), 2u);
    EXPECT_EQ(decision->lanes[0].proposals, Tokens{});
  }
}

TEST_F(SpeculationTest, RowsAreDealtOutOneARequestBeforeAnybodyGetsASecond) {
  Scheduler scheduler(core(4), options());
  for (int i = 1; i <= 3; ++i) {
    scheduler.enqueue(RequestId(i), request(true));
    end(scheduler, next(scheduler), {{2}});
    scheduler.set_paused(RequestId(i), true);
  }
  for (int i = 1; i <= 3; ++i) scheduler.set_paused(RequestId(i), false);
  const Decision round = next(scheduler);  // eight rows: three tokens, five proposals
  ASSERT_EQ(round.lanes.size(), 3u);
  EXPECT_EQ(round.lanes[0].proposals, (Tokens{3, 4}));
  EXPECT_EQ(round.lanes[1].proposals, (Tokens{3, 4}));
  EXPECT_EQ(round.lanes[2].proposals, (Tokens{3}));
}

TEST_F(SpeculationTest, NothingIsProposedBehindTheLastToken) {
  for (const auto& [max_tokens, proposals] : {std::pair{2, Tokens{}}, {3, Tokens{3}}, {4, Tokens{3, 4}}}) {
    Scheduler scheduler(core(), options());
    scheduler.enqueue(RequestId(1), request(true, max_tokens));
    end(scheduler, next(scheduler), {{2}});
    const Decision round = next(scheduler);
    EXPECT_EQ(round.lanes[0].proposals, proposals) << max_tokens;
  }
}

TEST_F(SpeculationTest, WhereBlocksAreShortProposalsKeepToThoseThatAreThere) {
  Capabilities small = core();
  small.kv_num_blocks = 3;
  small.max_model_len = 12;
  Scheduler scheduler(small, options());
  scheduler.enqueue(RequestId(1), request(true, 4));
  end(scheduler, next(scheduler), {{2}});  // six of eight positions are full
  scheduler.enqueue(RequestId(2), request(false, 4));
  const Decision round = next(scheduler);
  ASSERT_EQ(round.lanes.size(), 1u);
  EXPECT_EQ(round.lanes[0].proposals, Tokens{3}) << "the third block is another's to come";
}

}  // namespace
}  // namespace helios
