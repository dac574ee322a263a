#include "coordinator/engine/sequence_pipe.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

TEST(SequencePipe, ACancelledPipeForgetsItsEventsAndTellsTheEngineOnce) {
  auto inbox = std::make_shared<RequestInbox>(4);
  SequencePipe pipe(RequestId(7), 8, inbox);
  pipe.push(TokenEvent{.token = 1});
  pipe.cancel();
  pipe.cancel();
  EXPECT_FALSE(pipe.try_pop().has_value());
  pipe.push(TokenEvent{.token = 2});
  EXPECT_FALSE(pipe.try_pop().has_value());
  EXPECT_EQ(inbox->take().cancelled, std::vector{RequestId(7)});
}

TEST(SequencePipe, DroppingTheStreamCancels) {
  auto inbox = std::make_shared<RequestInbox>(4);
  { PipeStream stream(std::make_shared<SequencePipe>(RequestId(7), 8, inbox)); }
  EXPECT_EQ(inbox->take().cancelled.size(), 1u);
}

TEST(SequencePipe, AnEndedSequenceIsNotCancelled) {
  auto inbox = std::make_shared<RequestInbox>(4);
  SequencePipe pipe(RequestId(7), 8, inbox);
  pipe.push(TokenEvent{.token = 1, .finish = FinishCode::kEos});
  pipe.cancel();
  EXPECT_TRUE(inbox->take().cancelled.empty());
}

TEST(SequencePipe, IsBehindFromNearlyFullUntilHalfEmpty) {
  auto inbox = std::make_shared<RequestInbox>(4);
  SequencePipe pipe(RequestId(7), 8, inbox);
  for (int i = 0; i < 6; ++i) pipe.push(TokenEvent{.token = i});
  EXPECT_FALSE(pipe.is_behind(2));
  pipe.push(TokenEvent{.token = 6});
  EXPECT_TRUE(pipe.is_behind(2));
  pipe.try_pop();
  pipe.try_pop();
  EXPECT_TRUE(pipe.is_behind(2));  // five left: no flutter around the mark
  pipe.try_pop();
  EXPECT_FALSE(pipe.is_behind(2));
}

TEST(RequestInbox, TakesAllOrNothingUpToItsBound) {
  RequestInbox inbox(3);
  const auto sequences = [](int n) { return std::vector<ArrivedSequence>(n); };
  EXPECT_EQ(inbox.push(sequences(1)).error().code, Errc::kUnavailable);
  inbox.set_refusal("");
  EXPECT_TRUE(inbox.push(sequences(2)).ok());
  EXPECT_EQ(inbox.push(sequences(2)).error().code, Errc::kQueueFull);
  EXPECT_TRUE(inbox.push(sequences(1)).ok());
  EXPECT_EQ(inbox.take().arrived.size(), 3u);
  EXPECT_EQ(inbox.push(sequences(1)).error().code, Errc::kQueueFull);  // taken is not yet admitted
  inbox.no_longer_waiting(1);
  EXPECT_TRUE(inbox.push(sequences(1)).ok());
}

}  // namespace
}  // namespace helios
