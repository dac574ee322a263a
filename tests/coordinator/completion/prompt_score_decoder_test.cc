#include "coordinator/completion/prompt_score_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "common/contract/completion_layout.h"
#include "common/contract/submission.h"

namespace helios {
namespace {

constexpr int64_t kVocab = 100;

/// A row as a rank writes it: the target's own pair, its rank, twenty alternatives from `first` on.
void append_row(std::vector<int32_t>& rows, TokenId target, float logprob, int32_t rank, TokenId first = 10) {
  const bool valid = target != kNoTarget;
  rows.insert(rows.end(), {target, float_bits(valid ? logprob : NAN), valid ? rank : 0});
  for (int i = 0; i < kMaxNaturalAlternatives; ++i) {
    rows.push_back(valid ? first + i : -1);
    rows.push_back(float_bits(valid ? -0.5f - static_cast<float>(i) : NAN));
  }
}

TEST(PromptScoreDecoder, ReadsTheActualTokenItsRankAndAsManyAlternativesAsAsked) {  // R40
  std::vector<int32_t> rows;
  append_row(rows, 7, -1.25f, 3);
  append_row(rows, 8, -INFINITY, 100);
  const TokenId targets[] = {7, 8};
  for (const int n : {0, 1, 20}) {
    const auto scores = decode_prompt_rows(rows, targets, n, kVocab);
    ASSERT_TRUE(scores.ok()) << scores.error().message;
    ASSERT_EQ(scores->size(), 2u);
    const PromptScore& score = (*scores)[0].value();
    EXPECT_EQ(score.token, 7);
    EXPECT_EQ(score.logprob, -1.25f);
    EXPECT_EQ(score.rank, 3);
    ASSERT_EQ(score.alternatives.size(), static_cast<size_t>(n));
    if (n > 0) {
      EXPECT_EQ(score.alternatives[0], (TokenLogprob{10, -0.5f}));
    }
    EXPECT_EQ((*scores)[1]->logprob, -INFINITY);
  }
}

TEST(PromptScoreDecoder, ValuesKeepTheirBits) {  // R11
  std::vector<int32_t> rows;
  append_row(rows, 7, std::nextafterf(-0.1f, -1.0f), 1);
  const TokenId targets[] = {7};
  const auto scores = decode_prompt_rows(rows, targets, 0, kVocab);
  EXPECT_EQ(float_bits((*scores)[0]->logprob), float_bits(std::nextafterf(-0.1f, -1.0f)));
}

TEST(PromptScoreDecoder, ARowWithoutATargetIsNull) {  // R40: image positions
  std::vector<int32_t> rows;
  append_row(rows, kNoTarget, 0, 0);
  append_row(rows, 8, -1.0f, 1);
  const TokenId targets[] = {kNoTarget, 8};
  const auto scores = decode_prompt_rows(rows, targets, 2, kVocab);
  ASSERT_TRUE(scores.ok());
  EXPECT_FALSE((*scores)[0].has_value());
  EXPECT_TRUE((*scores)[1].has_value());
}

TEST(PromptScoreDecoder, AVocabularySmallerThanTwentyLeavesAlternativesOut) {
  std::vector<int32_t> rows;
  append_row(rows, 1, -1.0f, 1, 0);
  for (int i = 4; i < kMaxNaturalAlternatives; ++i) rows[prompt_score_word::kFirstAlternative + 2 * i] = -1;
  const TokenId targets[] = {1};
  EXPECT_EQ((*decode_prompt_rows(rows, targets, 20, 4))[0]->alternatives.size(), 4u);
}

TEST(PromptScoreDecoder, WhatIsMissingOrNotANumberIsAnErrorThatNamesTheRow) {  // R40
  struct Case {
    const char* what;
    Errc code;
    std::function<void(std::vector<int32_t>&)> spoil;
  };
  const size_t second = kPromptScoreWords;
  const std::vector<Case> cases = {
      {"words", Errc::kTruncatedFrame, [](auto& r) { r.pop_back(); }},
      {"words", Errc::kTruncatedFrame, [](auto& r) { r.clear(); }},
      {"words", Errc::kTruncatedFrame, [](auto& r) { r.push_back(0); }},
      {"row 1: holds token 9, but token 8", Errc::kChosenMismatch, [&](auto& r) { r[second] = 9; }},
      {"row 1: holds token -1, but token 8", Errc::kChosenMismatch, [&](auto& r) { r[second] = -1; }},
      {"row 1: the logprob of token 8 is nan", Errc::kInternal, [&](auto& r) { r[second + 1] = float_bits(NAN); }},
      {"row 1: the logprob of token 8 is inf", Errc::kInternal, [&](auto& r) { r[second + 1] = float_bits(INFINITY); }},
      {"row 1: the rank of token 8 is 0", Errc::kInternal, [&](auto& r) { r[second + 2] = 0; }},
      {"row 1: the rank of token 8 is 101", Errc::kInternal, [&](auto& r) { r[second + 2] = 101; }},
      {"row 1: alternative 1 has id 100", Errc::kInternal, [&](auto& r) { r[second + 5] = 100; }},
      {"row 1: alternative 1 has id -2", Errc::kInternal, [&](auto& r) { r[second + 5] = -2; }},
      {"row 1: the logprob of token 11 is nan", Errc::kInternal, [&](auto& r) { r[second + 6] = float_bits(NAN); }},
  };
  for (const Case& c : cases) {
    std::vector<int32_t> rows;
    append_row(rows, 7, -1.0f, 1);
    append_row(rows, 8, -2.0f, 2);
    c.spoil(rows);
    const TokenId targets[] = {7, 8};
    const auto scores = decode_prompt_rows(rows, targets, 2, kVocab);
    ASSERT_FALSE(scores.ok()) << c.what;
    EXPECT_EQ(scores.error().code, c.code) << c.what;
    EXPECT_NE(scores.error().message.find(c.what), std::string::npos) << scores.error().message;
  }
}

TEST(PromptScoreDecoder, HostileRowsNeverYieldWhatCannotBeReported) {  // fuzz; R40
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<int32_t> rows;
    std::vector<TokenId> targets;
    const int count = static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i) {
      targets.push_back(random() % 8 == 0 ? kNoTarget : static_cast<TokenId>(random() % kVocab));
      append_row(rows, targets.back(), -1.0f, 1 + static_cast<int32_t>(random() % kVocab));
    }
    for (int i = static_cast<int>(random() % 4); i > 0 && !rows.empty(); --i) {
      rows[random() % rows.size()] = static_cast<int32_t>(random());
    }
    if (random() % 16 == 0 && !rows.empty()) rows.resize(random() % (2 * rows.size()));
    const auto scores = decode_prompt_rows(rows, targets, static_cast<int>(random() % 21), kVocab);
    if (!scores) continue;
    ++accepted;
    ASSERT_EQ(scores->size(), targets.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      ASSERT_EQ((*scores)[i].has_value(), targets[i] != kNoTarget);
      if (!(*scores)[i]) continue;
      ASSERT_EQ((*scores)[i]->token, targets[i]);
      ASSERT_FALSE(std::isnan((*scores)[i]->logprob));
      for (const TokenLogprob& a : (*scores)[i]->alternatives) {
        ASSERT_TRUE(a.id >= 0 && a.id < kVocab && !std::isnan(a.logprob) && a.logprob != INFINITY);
      }
    }
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace helios
