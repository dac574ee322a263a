#include "coordinator/completion/lane_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace helios {
namespace {

constexpr int kT = 8;

/// One lane of slot 3, emitting `tokens`, with a payload of one alternative a position.
Completion frame(const std::vector<TokenId>& tokens, FinishCode finish = FinishCode::kNone) {
  Completion c{.sequence = Sequence(42), .token_capacity = kT, .width = 1};
  c.records.assign(record_words(kT), 0);
  c.records[record_word::kAbi] = kRecordAbi;
  c.records[record_word::kSlot] = 3;
  c.records[record_word::kEpoch] = 7;
  c.records[record_word::kSequence] = 42;
  c.records[record_word::kEmitted] = static_cast<int64_t>(tokens.size());
  c.records[record_word::kFinish] = static_cast<int64_t>(finish);
  CompletionPayload payload{.slot = SlotIndex(3)};
  for (size_t i = 0; i < tokens.size(); ++i) {
    c.records[record_word::kTokens + i] = tokens[i];
    for (const int32_t word : {tokens[i], float_bits(-1.5f), 50 + static_cast<int32_t>(i), float_bits(-0.25f)}) {
      payload.words.push_back(word);
    }
  }
  c.payloads.push_back(payload);
  return c;
}

ExpectedLane expected() {
  return {.record = {SlotIndex(3), Epoch(7), Sequence(42), kT, 100},
          .requested = true,
          .logprobs = {.num_natural = 1},
          .eos_id = 2,
          .tokens_left = 10};
}

TEST(LaneDecoder, EventsComeInGenerationOrderWithTheirLogprobs) {
  const auto lane = decode_lane(frame({5, 6, 2}, FinishCode::kEos), 0, expected());
  ASSERT_FALSE(lane.error.has_value());
  ASSERT_EQ(lane.events.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lane.events[i].logprobs->chosen, -1.5f);
    EXPECT_EQ(lane.events[i].logprobs->alternatives[0].id, 50 + static_cast<int>(i));
    EXPECT_EQ(lane.events[i].finish, i == 2 ? FinishCode::kEos : FinishCode::kNone);
  }
}

TEST(LaneDecoder, AnErrorSuppressesLaterTokensOfTheFrame) {  // R27
  Completion c = frame({5, 6, 7});
  c.payloads[0].words[4] = 60;  // position 1's chosen id
  const auto lane = decode_lane(c, 0, expected());
  ASSERT_TRUE(lane.error.has_value());
  EXPECT_EQ(lane.error->code, Errc::kInternal);
  EXPECT_NE(lane.error->message.find("chosen id is 60, but token 6 was emitted"), std::string::npos);
  ASSERT_EQ(lane.events.size(), 1u);
  EXPECT_EQ(lane.events[0].token, 5);
  EXPECT_EQ(lane.events[0].finish, FinishCode::kNone);
}

TEST(LaneDecoder, ForcedTokensHaveNoEntry) {  // R4
  Completion c = frame({5, 6});
  c.records[record_word::kForcedMask] = 1;
  c.payloads[0].words[0] = -99;  // what lies there is stale and must not be read
  const auto lane = decode_lane(c, 0, expected());
  ASSERT_EQ(lane.events.size(), 2u);
  EXPECT_TRUE(lane.events[0].forced);
  EXPECT_FALSE(lane.events[0].logprobs.has_value());
  EXPECT_TRUE(lane.events[1].logprobs.has_value());
}

TEST(LaneDecoder, ALaneThatDidNotAskNeverReadsAPayload) {  // R19, R26
  Completion c = frame({5});
  c.payloads[0].words = {1, 2, 3};
  ExpectedLane lane = expected();
  lane.requested = false;
  const auto out = decode_lane(c, 0, lane);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_FALSE(out.events[0].logprobs.has_value());
}

TEST(LaneDecoder, MissingOrShortPayloadFailsTheRequest) {  // R27
  Completion c = frame({5});
  c.payloads[0].words.pop_back();
  EXPECT_TRUE(decode_lane(c, 0, expected()).error.has_value());
  c.payloads.clear();
  EXPECT_TRUE(decode_lane(c, 0, expected()).error.has_value());
  c = frame({5});
  for (const int width : {-3, 0, 2, 129, 1 << 30}) {
    c.width = width;
    EXPECT_TRUE(decode_lane(c, 0, expected()).error.has_value()) << width;
  }
  EXPECT_TRUE(decode_lane(frame({5}), 1, expected()).error.has_value());  // no such record
}

TEST(LaneDecoder, NanFailsTheRequest) {
  Completion c = frame({5});
  c.payloads[0].words[1] = float_bits(NAN);
  EXPECT_EQ(decode_lane(c, 0, expected()).error->code, Errc::kInternal);
}

TEST(LaneDecoder, ARunningSequenceMustAdvanceAndEnd) {
  ExpectedLane lane = expected();
  EXPECT_TRUE(decode_lane(frame({}), 0, lane).error.has_value());  // nothing emitted
  EXPECT_TRUE(decode_lane(frame({5}, FinishCode::kError), 0, lane).error.has_value());
  lane.tokens_left = 1;
  EXPECT_TRUE(decode_lane(frame({5}), 0, lane).error.has_value());  // no finish at the limit
  EXPECT_TRUE(decode_lane(frame({5, 6}, FinishCode::kTokenLimit), 0, lane).error.has_value());
  EXPECT_FALSE(decode_lane(frame({5}, FinishCode::kTokenLimit), 0, lane).error.has_value());
}

TEST(LaneDecoder, APromptChunkEmitsNothing) {
  ExpectedLane lane = expected();
  lane.samples = lane.requested = false;
  EXPECT_FALSE(decode_lane(frame({}), 0, lane).error.has_value());
  EXPECT_TRUE(decode_lane(frame({5}), 0, lane).error.has_value());
}

TEST(LaneDecoder, SilentEosIsMarkedOnTheEosToken) {
  Completion c = frame({5, 2});
  c.records[record_word::kFlags] = kRecordFlagSilentEos;
  const auto lane = decode_lane(c, 0, expected());
  EXPECT_FALSE(lane.events[0].silent_eos);
  EXPECT_TRUE(lane.events[1].silent_eos);
  EXPECT_TRUE(lane.events[1].logprobs.has_value());  // R31: keeps its entry
}

}  // namespace
}  // namespace helios
