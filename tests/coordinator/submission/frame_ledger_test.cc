#include "coordinator/submission/frame_ledger.h"

#include "coordinator/scheduler/scheduler.h"
#include "tests/support/small_core.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

class FrameLedgerTest : public ::testing::Test {
 protected:
  void enqueue(uint64_t id, bool logprobs, std::vector<TokenId> ids = {}) {
    RequestSpec spec{.prompt = {1}, .logprobs = logprobs, .logprob_token_ids = std::move(ids)};
    spec.sampling.max_tokens = 8;
    scheduler_.enqueue(RequestId(id), std::move(spec));
  }
  const FrameInFlight& begin() {
    const Decision decision = scheduler_.plan();
    const FrameInFlight& frame = ledger_.begin(decision, {});
    scheduler_.commit(decision);
    return frame;
  }
  static Completion report(const FrameInFlight& frame, int rank, uint64_t digest = 77) {
    Completion c{.sequence = frame.sequence,
                 .frame = frame.frame,
                 .rank = Rank(rank),
                 .token_capacity = 8,
                 .record_digest = digest,
                 .width = frame.width};
    if (rank == 0) c.records.assign(frame.lanes.size() * record_words(8), 0);
    return c;
  }

  Scheduler scheduler_{testing::small_core()};
  FrameLedger ledger_{2, testing::small_core()};
};

TEST_F(FrameLedgerTest, TwoFramesAlternateAndNoThirdIsSubmitted) {
  enqueue(1, false);
  EXPECT_EQ(begin().frame, FrameIndex(0));
  EXPECT_TRUE(ledger_.can_submit());
  EXPECT_EQ(begin().frame, FrameIndex(1));
  EXPECT_FALSE(ledger_.can_submit());
}

TEST_F(FrameLedgerTest, AFrameIsReusedOnlyAfterItWasDecoded) {  // R27
  enqueue(1, false);
  const Completion from0 = report(begin(), 0);
  begin();
  ASSERT_TRUE(ledger_.arrived(Rank(0), from0).ok());
  EXPECT_EQ(ledger_.done(), nullptr);  // rank 1 has not reported
  Completion from1 = from0;
  from1.rank = Rank(1);
  from1.records.clear();
  ASSERT_TRUE(ledger_.arrived(Rank(1), from1).ok());
  ASSERT_NE(ledger_.done(), nullptr);
  EXPECT_FALSE(ledger_.can_submit());  // arrived, not yet decoded
  ledger_.release();
  scheduler_.frame_decoded(std::vector{RequestId(1)});
  EXPECT_TRUE(ledger_.can_submit());
  const FrameInFlight& third = begin();
  EXPECT_EQ(third.sequence, Sequence(3));
  EXPECT_EQ(third.frame, FrameIndex(0));
}

TEST_F(FrameLedgerTest, KeepsTheMaskOfWhoAskedAndTheWidth) {  // R26
  enqueue(1, true);
  enqueue(2, false);
  const FrameInFlight& frame = begin();
  EXPECT_EQ(frame.requested_slots, (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(frame.width, kMaxNaturalAlternatives);
  enqueue(3, true,
          std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  EXPECT_EQ(begin().width, 23);
}

TEST_F(FrameLedgerTest, NobodyAskedIsWidthZero) {  // R26
  enqueue(1, false);
  const FrameInFlight& frame = begin();
  EXPECT_EQ(frame.width, 0);
  EXPECT_FALSE(frame.any_requested());
}

TEST_F(FrameLedgerTest, DisagreeingDigestsBreakTheSet) {  // R28
  enqueue(1, false);
  const FrameInFlight& frame = begin();
  ASSERT_TRUE(ledger_.arrived(Rank(1), report(frame, 1, 5)).ok());
  const auto status = ledger_.arrived(Rank(0), report(frame, 0, 6));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("ranks 1 and 0 disagree"), std::string::npos);
}

TEST_F(FrameLedgerTest, ReportsOutOfOrderOrOfTheWrongShapeAreMismatches) {
  enqueue(1, false);
  const FrameInFlight frame = begin();
  const FrameInFlight second = begin();
  EXPECT_FALSE(ledger_.arrived(Rank(0), report(second, 0)).ok());  // out of order
  Completion c = report(frame, 0);
  c.frame = FrameIndex(1);
  EXPECT_FALSE(ledger_.arrived(Rank(0), c).ok());
  c = report(frame, 0);
  c.token_capacity = 4;
  EXPECT_FALSE(ledger_.arrived(Rank(0), c).ok());
  c = report(frame, 0);
  c.records.pop_back();
  EXPECT_FALSE(ledger_.arrived(Rank(0), c).ok());
  EXPECT_FALSE(ledger_.arrived(Rank(1), report(frame, 0)).ok());  // says it is another rank
  c = report(frame, 1);
  c.records.assign(record_words(8), 0);  // only rank 0 sends values (R28)
  EXPECT_FALSE(ledger_.arrived(Rank(1), c).ok());
  ASSERT_TRUE(ledger_.arrived(Rank(0), report(frame, 0)).ok());
  EXPECT_FALSE(ledger_.arrived(Rank(0), report(frame, 0)).ok());  // twice
}

}  // namespace
}  // namespace helios
