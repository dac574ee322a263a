#include "coordinator/completion/logprob_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace helios {
namespace {

std::vector<int32_t> packed(TokenId chosen, float logprob, std::vector<TokenLogprob> pairs) {
  std::vector<int32_t> words{chosen, float_bits(logprob)};
  for (const TokenLogprob& pair : pairs) {
    words.push_back(pair.id);
    words.push_back(float_bits(pair.logprob));
  }
  return words;
}

TEST(LogprobDecoder, KeepsPackedOrderAndBits) {
  const float value = std::nextafterf(-1.0f, 0.0f);
  const auto out = decode_position(packed(5, value, {{9, -0.5f}, {5, value}, {-1, NAN}}), 3, 5);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(float_bits(out->chosen), float_bits(value));
  EXPECT_EQ(out->alternatives, (std::vector<TokenLogprob>{{9, -0.5f}, {5, value}}));  // R11: unused ids left out
}

TEST(LogprobDecoder, ChosenNeedNotBeAnAlternative) {  // R8
  EXPECT_TRUE(decode_position(packed(5, -7.0f, {{9, -0.5f}}), 1, 5).ok());
  EXPECT_TRUE(decode_position(packed(5, -7.0f, {}), 0, 5).ok());
}

TEST(LogprobDecoder, ChosenMustEqualEmitted) {  // R27
  EXPECT_EQ(decode_position(packed(5, -1.0f, {}), 0, 6).error().code, Errc::kChosenMismatch);
}

TEST(LogprobDecoder, ShortOrLongPositionsAreTruncated) {
  const auto words = packed(5, -1.0f, {{9, -0.5f}});
  EXPECT_EQ(decode_position(words, 2, 5).error().code, Errc::kTruncatedFrame);
  EXPECT_EQ(decode_position(words, 0, 5).error().code, Errc::kTruncatedFrame);
  EXPECT_EQ(decode_position(words, -1, 5).error().code, Errc::kTruncatedFrame);
  EXPECT_EQ(decode_position({}, 0, 5).error().code, Errc::kTruncatedFrame);
}

TEST(LogprobDecoder, NanFailsAndMinusInfinityIsAValue) {
  EXPECT_EQ(decode_position(packed(5, NAN, {}), 0, 5).error().code, Errc::kInternal);
  EXPECT_EQ(decode_position(packed(5, INFINITY, {}), 0, 5).error().code, Errc::kInternal);
  EXPECT_EQ(decode_position(packed(5, -1.0f, {{9, NAN}}), 1, 5).error().code, Errc::kInternal);
  EXPECT_TRUE(decode_position(packed(5, -1.0f, {{9, -INFINITY}}), 1, 5).ok());
}

TEST(LogprobDecoder, TrimsNaturalAlternativesToTheRequest) {
  // The last pair is beyond this request's two: its NaN must not matter.
  const auto words = packed(5, -1.0f, {{9, -0.5f}, {5, -1.0f}, {4, NAN}});
  const auto out = decode_requested(words, 3, 5, {.num_natural = 2});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->alternatives.size(), 2u);
  EXPECT_TRUE(decode_requested(words, 3, 5, {.num_natural = 0})->alternatives.empty());
  EXPECT_EQ(decode_requested(words, 3, 5, {.num_natural = 4}).error().code, Errc::kTruncatedFrame);
}

TEST(LogprobDecoder, SelectedIdsComeInTheCallersOrder) {  // R7
  const std::vector<TokenId> ids{4, 9};
  const auto words = packed(5, -1.0f, {{4, -3.0f}, {9, -0.5f}, {77, -9.0f}});
  const auto out = decode_requested(words, 3, 5, {.selected_ids = ids});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->alternatives, (std::vector<TokenLogprob>{{4, -3.0f}, {9, -0.5f}}));
  const std::vector<TokenId> swapped{9, 4};
  EXPECT_EQ(decode_requested(words, 3, 5, {.selected_ids = swapped}).error().code, Errc::kMismatch);
}

}  // namespace
}  // namespace helios
