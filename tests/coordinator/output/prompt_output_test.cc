// Entries of scored prompts: texts, offsets into the echoed text, nulls (wire formats 2.5, 2.6, 2.8, 3.5).
#include "coordinator/output/prompt_output.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios {
namespace {

using Ids = std::vector<TokenId>;

const std::vector<std::string> kPromptWords = {"ab", " a", "a\xF0\x9F",
                                               "\x98\x80"
                                               "b",
                                               "é"};
constexpr TokenId kAb = 256, kA = 257, kHalf = 258, kOtherHalf = 259, kAcute = 260, kBos = 261;

PromptScores scores_of(const Ids& prompt, int32_t first, int32_t end, int alternatives = 0) {
  PromptScores out{.first = first};
  for (int32_t p = first; p < end; ++p) {
    PromptScore score{.token = prompt[p], .logprob = -static_cast<float>(p), .rank = p};
    for (int i = 0; i < alternatives; ++i) score.alternatives.push_back({i, -0.5f});
    out.scores.emplace_back(score);
  }
  return out;
}

std::vector<std::string> texts(const std::vector<OutputEntry>& entries) {
  std::vector<std::string> out;
  for (const OutputEntry& entry : entries) out.emplace_back(entry.text.view());
  return out;
}

TEST(PromptOutput, TheFirstPositionHasATextAndAPlaceButNoValue) {  // R40
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  const Ids prompt = {kAb, kA, kAcute};
  const std::vector<int64_t> offsets = prompt_text_offsets(*tokenizer, prompt, "ab aé");
  PromptOutput output(*tokenizer, false, prompt, offsets);
  std::vector<OutputEntry> entries;
  output.push(scores_of(prompt, 1, 3), &entries);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_FALSE(entries[0].has_value);
  EXPECT_EQ(texts(entries), (std::vector<std::string>{"ab", " a", "é"}));
  EXPECT_TRUE(entries[2].has_value);
  EXPECT_EQ(entries[2].logprob, -2.0f);
  EXPECT_EQ(entries[2].rank, 2);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(entries[2].text_offset, 4);
}

TEST(PromptOutput, ChunksGiveTheSameEntriesAsOne) {  // R40: in order, no gaps, no repeats
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Ids prompt;
    for (int i = 1 + static_cast<int>(random() % 20); i > 0; --i)
      prompt.push_back(static_cast<TokenId>(random() % 262));
    const std::string echo = tokenizer->decode(prompt, false);
    const auto offsets = prompt_text_offsets(*tokenizer, prompt, echo);
    const auto size = static_cast<int32_t>(prompt.size());
    std::vector<OutputEntry> whole, parts;
    PromptOutput(*tokenizer, false, prompt, offsets).push(scores_of(prompt, 1, size, 3), &whole);
    PromptOutput output(*tokenizer, false, prompt, offsets);
    output.begin(&parts);
    for (int32_t at = 1; at < size;) {
      const int32_t end = std::min<int32_t>(size, at + 1 + static_cast<int32_t>(random() % 5));
      output.push(scores_of(prompt, at, end, 3), &parts);
      at = end;
    }
    ASSERT_EQ(texts(parts), texts(whole));
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(parts[i].text_offset, whole[i].text_offset);
      ASSERT_EQ(parts[i].alternatives.size(), whole[i].alternatives.size());
      for (size_t k = 0; k < whole[i].alternatives.size(); ++k) {
        EXPECT_EQ(parts[i].alternatives[k].text, whole[i].alternatives[k].text);
      }
    }
    // Where each token starts in the decoded text, from the definition.
    const DecodedText reference = testing::reference_decode(*tokenizer, false, {}, prompt);
    EXPECT_EQ(reference.text, echo);
    for (size_t i = 0; i < prompt.size(); ++i) EXPECT_EQ(offsets[i], reference.starts[i].code_points) << i;
  }
}

TEST(PromptOutput, AFragmentIsRepairedFromThePromptBeforeIt) {
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  const Ids prompt = {kHalf, kOtherHalf};
  PromptOutput output(*tokenizer, false, prompt, {});
  PromptScores scores{.scores = {PromptScore{.token = kOtherHalf, .rank = 1, .alternatives = {{0x98, -1.0f}}}}};
  std::vector<OutputEntry> entries;
  output.push(scores, &entries);
  EXPECT_EQ(texts(entries), (std::vector<std::string>{"a", "😀b"}));
  EXPECT_EQ(entries[1].alternatives[0].text, "") << "it would leave the character unfinished";
}

TEST(PromptOutput, ABosThatIsNotInTheEchoStartsWhereTheTextStarts) {
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  const Ids prompt = {kBos, kAb, kA, kBos};
  EXPECT_EQ(prompt_text_offsets(*tokenizer, prompt, "ab a", 1, 1), (std::vector<int64_t>{0, 0, 2, 4}));
  EXPECT_EQ(prompt_text_offsets(*tokenizer, prompt, "<s>ab a<s>"), (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(prompt_text_offsets(*tokenizer, prompt, "a", 1, 1), (std::vector<int64_t>{0, 0, 1, 1})) << "never past it";
}

TEST(PromptOutput, SentencepieceTokensStartWhereTheirTextDoes) {
  const auto tokenizer = testing::sentencepiece_tokenizer({"▁a", "b", "▁"});
  const Ids prompt = {256, 257, 0xE4, 0xB8, 0xAD, 258, 256};  // "ab中  a"
  const std::string echo = tokenizer->decode(prompt, false);
  EXPECT_EQ(echo, "ab中  a");
  EXPECT_EQ(prompt_text_offsets(*tokenizer, prompt, echo), (std::vector<int64_t>{0, 1, 2, 2, 2, 3, 4}));
}

TEST(PromptOutput, TokensMayBeShownAsIds) {
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  const Ids prompt = {kAb, kA};
  std::vector<OutputEntry> entries;
  PromptOutput(*tokenizer, true, prompt, {}).push(scores_of(prompt, 1, 2, 1), &entries);
  EXPECT_EQ(texts(entries), (std::vector<std::string>{"token_id:256", "token_id:257"}));
  EXPECT_EQ(entries[1].alternatives[0].text, "token_id:0");
  EXPECT_EQ(entries[1].bytes, " a");
}

TEST(PromptOutput, APositionInsideAnImageIsNull) {  // R40
  const auto tokenizer = testing::byte_level_tokenizer(kPromptWords);
  const Ids prompt = {kAb, kA, kAb};
  PromptScores scores = scores_of(prompt, 1, 3);
  scores.scores[0].reset();
  std::vector<OutputEntry> entries;
  PromptOutput(*tokenizer, false, prompt, {}).push(scores, &entries);
  EXPECT_FALSE(entries[1].has_value);
  EXPECT_TRUE(entries[2].has_value);
}

}  // namespace
}  // namespace helios
