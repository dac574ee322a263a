#include "coordinator/completion/lane_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace helios {
namespace {

constexpr int kT = 8;
const std::vector<TokenId> kProposals{5, 6, 7};

/// One lane of slot 3 that brought kProposals, emitting `tokens`, with a payload of one alternative a position.
Completion frame(const std::vector<TokenId>& tokens, FinishCode finish = FinishCode::kNone) {
  Completion c{.sequence = Sequence(42), .token_capacity = kT, .width = 1};
  c.records.assign(record_words(kT), 0);
  c.records[record_word::kAbi] = kRecordAbi;
  c.records[record_word::kSlot] = 3;
  c.records[record_word::kEpoch] = 7;
  c.records[record_word::kSequence] = 42;
  c.records[record_word::kEmitted] = static_cast<int64_t>(tokens.size());
  c.records[record_word::kFinish] = static_cast<int64_t>(finish);
  c.records[record_word::kProposalsOffered] = static_cast<int64_t>(kProposals.size());
  const auto differs = std::mismatch(tokens.begin(), tokens.end(), kProposals.begin(), kProposals.end());
  c.records[record_word::kProposalsAccepted] = differs.first - tokens.begin();
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
          .tokens_left = 10,
          .proposals = kProposals};
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

TEST(LaneDecoder, TokensComeAsFarAsTheTargetChoseWhatWasProposed) {  // R3
  const std::pair<std::vector<TokenId>, int> rounds[] = {
      {{9}, 0}, {{5}, 1}, {{5, 9}, 1}, {{5, 6, 9}, 2}, {{5, 6, 7, 9}, 3}, {{5, 6, 7, 5}, 3}};
  for (const auto& [tokens, accepted] : rounds) {
    SCOPED_TRACE(tokens.size());
    // A round that is cut at its first token, a proposal, has come to its end there.
    const auto finish = tokens == std::vector<TokenId>{5} ? FinishCode::kStopId : FinishCode::kNone;
    const auto lane = decode_lane(frame(tokens, finish), 0, expected());
    ASSERT_FALSE(lane.error.has_value()) << lane.error->message;
    EXPECT_EQ(lane.events.size(), tokens.size());
    EXPECT_EQ(lane.accepted, accepted);
  }
  const auto error = [](Completion c, const ExpectedLane& lane) {
    const auto decoded = decode_lane(c, 0, lane);
    EXPECT_TRUE(decoded.events.empty());
    return decoded.error ? decoded.error->message : "none";
  };
  Completion more = frame({5, 6, 9});
  more.records[record_word::kProposalsAccepted] = 1;
  EXPECT_NE(error(more, expected()).find("3 tokens emitted with 1 proposals accepted"), std::string::npos);
  Completion others = frame({5, 6, 9});
  others.records[record_word::kTokens] = 8;
  EXPECT_NE(error(others, expected()).find("token 8 was emitted before others, where 5 was"), std::string::npos);
  ExpectedLane without = expected();
  without.proposals = {};
  EXPECT_NE(error(frame({5, 9}), without).find("3 proposals were verified, expected 0"), std::string::npos);
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
