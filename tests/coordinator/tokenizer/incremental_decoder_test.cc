// Streaming text against the one-shot decode, and against a plain statement of where each token starts. R30.
#include "coordinator/tokenizer/incremental_decoder.h"

#include <gtest/gtest.h>

#include "tests/coordinator/tokenizer/decoder_property.h"
#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios {
namespace {

using testing::stream;
using Ids = std::vector<TokenId>;

// "a" + two of an emoji's four bytes; the other two + "b"; literal U+FFFD; and plain words.
const std::vector<std::string> kWords = {"ab",
                                         " a",
                                         "a\xF0\x9F",
                                         "\x98\x80"
                                         "b",
                                         "\xEF\xBF\xBD",
                                         "é",
                                         "  "};
const std::vector<std::string> kPieces = {"▁", "▁a", "a", "中", "\xEF\xBF\xBD", "▁▁"};

TEST(IncrementalDecoder, HoldsBackAnUnfinishedCharacterAndNothingElse) {
  const auto tokenizer = testing::byte_level_tokenizer(kWords);
  IncrementalDecoder decoder(*tokenizer, true, {});
  DecodedText out;
  decoder.push('x', &out);
  EXPECT_EQ(out.text, "x");
  decoder.push(0xE4, &out);
  decoder.push(0xB8, &out);
  EXPECT_EQ(out.text, "x");
  decoder.push(0xAD, &out);
  EXPECT_EQ(out.text, "x中");
  decoder.push(0xE4, &out);
  decoder.push('y', &out);  // now the lead byte can never become text
  EXPECT_EQ(out.text, "x中\uFFFDy");
  decoder.push(0xF0, &out);
  decoder.finish(&out);
  EXPECT_EQ(out.text, "x中\uFFFDy\uFFFD");
}

TEST(IncrementalDecoder, FragmentsStartWhereTheirCharacterDoes) {
  const auto tokenizer = testing::byte_level_tokenizer(kWords);
  const DecodedText out = stream(*tokenizer, true, {}, {'x', 0xF0, 0x9F, 0x98, 0x80, 'y'});
  EXPECT_EQ(out.text, "x😀y");
  const std::vector<int64_t> expected = {0, 1, 1, 1, 1, 2};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out.starts[i].code_points, expected[i]) << i;
}

TEST(IncrementalDecoder, OneBadByteReplacesAWholeByteFallbackRun) {
  const auto tokenizer = testing::sentencepiece_tokenizer(kPieces);
  IncrementalDecoder decoder(*tokenizer, true, Ids{'a'});
  DecodedText out;
  for (const TokenId id : {0xE4, 0xB8, 0xAD}) decoder.push(id, &out);
  EXPECT_EQ(out.text, "");  // a bad byte may still follow
  decoder.push(0xFF, &out);
  EXPECT_EQ(out.text, "\uFFFD\uFFFD\uFFFD\uFFFD");
  decoder.push(0x41, &out);  // still the same run
  EXPECT_EQ(out.text, "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(IncrementalDecoder, KeepsTheFirstTokensSpaceUnlessThePromptHasNoText) {
  const auto tokenizer = testing::sentencepiece_tokenizer(kPieces);
  const TokenId bos = *tokenizer->find_piece("<s>"), space_a = *tokenizer->find_piece("▁a");
  EXPECT_EQ(stream(*tokenizer, true, {bos, space_a}, {space_a}).text, " a");
  EXPECT_EQ(stream(*tokenizer, true, {bos}, {space_a, space_a}).text, "a a");
  EXPECT_EQ(stream(*tokenizer, false, {bos}, {space_a}).text, " a");
  EXPECT_EQ(stream(*tokenizer, true, {}, {space_a}).text, "a");
}

TEST(IncrementalDecoder, FinishesACharacterThatThePromptBegan) {
  const auto tokenizer = testing::byte_level_tokenizer(kWords);
  EXPECT_EQ(stream(*tokenizer, true, {'x', 0xF0, 0x9F}, {0x98, 0x80, 'y'}).text, "😀y");
  EXPECT_EQ(stream(*tokenizer, true, {'x', 0xF0, 0x9F}, {'y'}).text, "y");  // the replacement was the prompt's
  EXPECT_EQ(stream(*tokenizer, true, {'x', 0xF0, 0x9F}, {}).text, "");
}

TEST(IncrementalDecoder, RandomTokensGiveTheOneShotText) {
  for (const bool byte_level : {true, false}) {
    const auto tokenizer =
        byte_level ? testing::byte_level_tokenizer(kWords) : testing::sentencepiece_tokenizer(kPieces);
    Ids candidates = {0x20, 'a', 0xE4, 0xB8, 0xAD, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 5000, -1};
    for (TokenId id = 256; id < tokenizer->vocab_size(); ++id) candidates.push_back(id);
    testing::check_random_decoding(*tokenizer, candidates, 7, 20000);
  }
}

}  // namespace
}  // namespace helios
