#include "coordinator/submission/submission_builder.h"

#include "coordinator/scheduler/scheduler.h"
#include "tests/support/small_core.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

RequestSpec request(std::vector<TokenId> prompt, int max_tokens, bool logprobs, std::vector<TokenId> ids = {}) {
  RequestSpec spec{.prompt = std::move(prompt), .logprobs = logprobs, .logprob_token_ids = std::move(ids)};
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

Submission next(Scheduler& scheduler, uint64_t sequence) {
  const Decision decision = scheduler.plan();
  Submission out = build_submission(decision, scheduler.capabilities(), 3, Sequence(sequence), FrameIndex(0));
  scheduler.commit(decision);
  return out;
}

/// Ends the submission that next() made: every sampling lane of `ids` emitted `token`.
void decode(Scheduler& scheduler, std::vector<RequestId> ids, int32_t rows, TokenId token) {
  for (const RequestId id : ids) scheduler.note_decoded(id, rows, std::span(&token, 1));
  scheduler.frame_decoded(ids);
}

TEST(SubmissionBuilder, BlocksTravelWithTheLanesThatNeedThem) {
  Scheduler scheduler(testing::small_core());  // blocks of 4
  scheduler.enqueue(RequestId(1), request({5, 6, 7}, 6, false));
  const Submission first = next(scheduler, 1);
  EXPECT_EQ(first.incarnation, 3u);
  EXPECT_EQ(first.operation, Operation::kPrefill);
  ASSERT_EQ(first.admissions.size(), 1u);
  EXPECT_EQ(first.admissions[0].epoch, Epoch(1));
  EXPECT_EQ(first.admissions[0].sampling.max_tokens, 6);
  ASSERT_EQ(first.block_updates.size(), 1u);
  EXPECT_EQ(first.block_updates[0].first, 0);
  EXPECT_EQ(first.block_updates[0].blocks.size(), 1u);
  EXPECT_EQ(first.admissions[0].generated, 0);
  ASSERT_EQ(first.lanes.size(), 1u);
  EXPECT_EQ(first.lanes[0].tokens, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(first.lanes[0].start, 0);
  EXPECT_TRUE(first.lanes[0].samples);

  decode(scheduler, {RequestId(1)}, 3, 1);
  const Submission second = next(scheduler, 2);
  EXPECT_TRUE(second.admissions.empty());
  EXPECT_TRUE(second.block_updates.empty());
  EXPECT_EQ(second.operation, Operation::kDecode);
  EXPECT_TRUE(second.lanes[0].tokens.empty());
  EXPECT_EQ(second.lanes[0].start, -1);

  decode(scheduler, {RequestId(1)}, 0, 2);
  const Submission third = next(scheduler, 3);  // position 4
  ASSERT_EQ(third.block_updates.size(), 1u);
  EXPECT_EQ(third.block_updates[0].first, 1);
  EXPECT_EQ(third.block_updates[0].blocks.size(), 1u);
}

TEST(SubmissionBuilder, ACachedPrefixComesAsBlocksAndTheRestAsTokens) {
  Scheduler scheduler(testing::small_core());
  scheduler.enqueue(RequestId(1), request({5, 6, 7, 8, 9}, 6, false));
  const Submission first = next(scheduler, 1);
  decode(scheduler, {RequestId(1)}, 5, 1);
  scheduler.enqueue(RequestId(2), request({5, 6, 7, 8, 3}, 6, false));
  const Submission second = next(scheduler, 2);
  ASSERT_EQ(second.block_updates.size(), 2u);
  EXPECT_EQ(second.block_updates[0].slot, SlotIndex(1));
  EXPECT_EQ(second.block_updates[0].first, 0);
  EXPECT_EQ(second.block_updates[0].blocks[0], first.block_updates[0].blocks[0]);
  EXPECT_EQ(second.block_updates[1].first, 1);
  EXPECT_EQ(second.lanes[1].start, 4);
  EXPECT_EQ(second.lanes[1].tokens, (std::vector<TokenId>{3}));
}

TEST(SubmissionBuilder, AReadmissionBringsWhatWasGenerated) {
  testing::SmallCoreOptions options{.slot_capacity = 2, .kv_num_blocks = 6};  // 24 positions, and two need 40
  Scheduler scheduler(testing::small_core(options));
  RequestSpec spec = request({5, 6, 7}, 17, false);
  spec.sampling.presence_penalty = 1.0f;
  scheduler.enqueue(RequestId(1), request({1, 2, 3}, 17, false));
  scheduler.enqueue(RequestId(2), spec);
  uint64_t sequence = 0;
  const Submission first = next(scheduler, ++sequence);
  ASSERT_EQ(first.admissions.size(), 2u);
  EXPECT_TRUE(first.admissions[1].sampling.output_counts.empty());
  decode(scheduler, {RequestId(1), RequestId(2)}, 3, 40);
  while (scheduler.find(RequestId(2))->tenancy) {
    ASSERT_LT(sequence, 20u);
    const Submission s = next(scheduler, ++sequence);
    std::vector<RequestId> ids;
    for (const Lane& lane : s.lanes) ids.push_back(RequestId(lane.slot.value + 1));
    decode(scheduler, ids, 0, static_cast<TokenId>(40 + sequence / 3));
  }
  scheduler.leave(RequestId(1));
  const Submission again = next(scheduler, ++sequence);
  ASSERT_EQ(again.admissions.size(), 1u);
  const auto& tokens = scheduler.find(RequestId(2))->tokens;
  EXPECT_EQ(again.admissions[0].generated, static_cast<int>(tokens.size()) - 3);
  EXPECT_EQ(again.lanes[0].start + again.lanes[0].tokens.size(), tokens.size());
  EXPECT_EQ(again.lanes[0].tokens.back(), tokens.back());
  EXPECT_TRUE(again.lanes[0].samples);
  const auto& counts = again.admissions[0].sampling.output_counts;
  EXPECT_EQ(counts.front().id, 40);
  int32_t counted = 0;
  for (const TokenCount& count : counts) counted += count.count;
  EXPECT_EQ(counted, again.admissions[0].generated);
}

TEST(SubmissionBuilder, ChunksCarryTheirOwnTokens) {
  Scheduler scheduler(testing::small_core());
  std::vector<TokenId> prompt;
  for (int i = 0; i < 11; ++i) prompt.push_back(i + 1);
  scheduler.enqueue(RequestId(1), request(prompt, 4, false));
  next(scheduler, 1);
  const Submission second = next(scheduler, 2);
  EXPECT_EQ(second.lanes[0].start, 8);
  EXPECT_EQ(second.lanes[0].tokens, (std::vector<TokenId>{9, 10, 11}));
}

TEST(SubmissionBuilder, FlagsAndCountsGoWholeAndIdsAsPrefixes) {  // R13
  Scheduler scheduler(testing::small_core());
  scheduler.enqueue(RequestId(1), request({1}, 4, true));
  scheduler.enqueue(RequestId(2), request({1}, 4, false));
  scheduler.enqueue(RequestId(3), request({1}, 4, true, {9, 4, 7}));
  const Submission s = next(scheduler, 1);
  EXPECT_EQ(s.logprob_requested, (std::vector<int32_t>{1, 0, 1, 0}));
  EXPECT_EQ(s.logprob_token_id_counts, (std::vector<int32_t>{0, 0, 3, 0}));
  ASSERT_EQ(s.logprob_token_ids.size(), 1u);
  EXPECT_EQ(s.logprob_token_ids[0].slot, SlotIndex(2));
  EXPECT_EQ(s.logprob_token_ids[0].ids, (std::vector<TokenId>{9, 4, 7}));
}

TEST(SubmissionBuilder, TheChosenTokenAloneIsAskedForBesideAnyIdWhereTheCoreTakesIds) {  // R5, R7
  const auto asked = [](Capabilities core) {
    Scheduler scheduler(core);
    RequestSpec spec = request({1}, 4, true);
    spec.chosen_alone = true;
    scheduler.enqueue(RequestId(1), std::move(spec));
    return build_submission(scheduler.plan(), core, 1, Sequence(1), FrameIndex(0));
  };
  Capabilities core = testing::small_core();
  const Submission with_ids = asked(core);
  EXPECT_EQ(with_ids.logprob_requested, (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(with_ids.logprob_token_id_counts, (std::vector<int32_t>{1, 0, 0, 0}));
  ASSERT_EQ(with_ids.logprob_token_ids.size(), 1u);
  EXPECT_EQ(with_ids.logprob_token_ids[0].ids.size(), 1u);
  core.logprob_token_ids = false;  // R35
  const Submission without = asked(core);
  EXPECT_EQ(without.logprob_requested, (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(without.logprob_token_id_counts, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_TRUE(without.logprob_token_ids.empty());
}

TEST(SubmissionBuilder, OnlyLanesOfTheSubmissionSetFlags) {  // R13
  Scheduler scheduler(testing::small_core());
  scheduler.enqueue(RequestId(1), request({1}, 1, true));
  next(scheduler, 1);
  scheduler.enqueue(RequestId(2), request({1}, 4, false));
  const Submission s = next(scheduler, 2);  // request 1 may emit no more: it has no lane
  ASSERT_EQ(s.lanes.size(), 1u);
  EXPECT_EQ(s.logprob_requested, (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(SubmissionBuilder, AChunkThatDoesNotSampleSetsNoFlag) {
  Scheduler scheduler(testing::small_core());
  scheduler.enqueue(RequestId(1), request(std::vector<TokenId>(12, 1), 4, true));
  EXPECT_EQ(next(scheduler, 1).logprob_requested[0], 0);
  EXPECT_EQ(next(scheduler, 2).logprob_requested[0], 1);
}

TEST(SubmissionBuilder, ACoreWithoutTheBuffersNeverGetsAFlag) {  // R13, R34
  Scheduler scheduler(testing::small_core({.logprobs = false}));
  scheduler.enqueue(RequestId(1), request({1}, 4, true));
  const Submission s = next(scheduler, 1);
  EXPECT_EQ(s.logprob_requested, (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(SubmissionBuilder, ScoredLanesCarryTheTokenBehindEachRowAcrossChunks) {  // R38
  Scheduler scheduler(testing::small_core({.prompt_scoring = true}));         // eight rows a submission
  for (const auto& [id, prompt] : {std::pair(1, std::vector<TokenId>{10, 11, 12}),
                                   std::pair(2, std::vector<TokenId>{20, 21, 22, 23, 24, 25, 26})}) {
    RequestSpec spec = request(prompt, 4, false);
    spec.prompt_scores = true;
    scheduler.enqueue(RequestId(id), std::move(spec));
  }
  const Submission first = next(scheduler, 1);
  EXPECT_EQ(first.operation, Operation::kScoredPrefill);
  EXPECT_EQ(first.prompt_target_tokens, (std::vector<TokenId>{11, 12, kNoTarget, 21, 22, 23, 24, 25}));
  scheduler.note_decoded(RequestId(1), 3, std::vector<TokenId>{1});
  scheduler.note_decoded(RequestId(2), 5, {});
  const RequestId both[] = {RequestId(1), RequestId(2)};
  scheduler.frame_decoded(both);
  const Submission decode_step = next(scheduler, 2);
  EXPECT_EQ(decode_step.operation, Operation::kDecode);
  EXPECT_TRUE(decode_step.prompt_target_tokens.empty());
  EXPECT_EQ(next(scheduler, 3).prompt_target_tokens, (std::vector<TokenId>{26, kNoTarget}));
}

}  // namespace
}  // namespace helios
