// Streaming text against the one-shot decode, and against a plain statement of where each token starts. R30.
#include "coordinator/tokenizer/incremental_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/coordinator/tokenizer/golden_data.h"
#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios {
namespace {

using testing::reference_decode;
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

DecodedText stream(const Tokenizer& tokenizer, bool skip, const Ids& prompt, const Ids& ids) {
  IncrementalDecoder decoder(tokenizer, skip, prompt);
  DecodedText out;
  for (const TokenId id : ids) decoder.push(id, &out);
  decoder.finish(&out);
  return out;
}

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

size_t raw_bytes(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  size_t size = 0;
  for (const TokenId id : ids) size += skip && tokenizer.is_special(id) ? 0 : tokenizer.token_bytes(id).size();
  return size;
}

void check_random(const Tokenizer& tokenizer, const Ids& candidates, uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t most) {
    Ids ids(random() % (most + 1));
    for (TokenId& id : ids) id = candidates[random() % candidates.size()];
    return ids;
  };
  for (int round = 0; round < rounds; ++round) {
    const bool skip = random() % 2;
    const Ids prompt = draw(6), ids = draw(24);
    SCOPED_TRACE(::testing::PrintToString(std::make_pair(prompt, ids)) + (skip ? " skip" : ""));
    IncrementalDecoder decoder(tokenizer, skip, prompt);
    const DecodedText expected = reference_decode(tokenizer, skip, prompt, ids);
    DecodedText out;
    for (const TokenId id : ids) {
      decoder.push(id, &out);
      ASSERT_TRUE(expected.text.starts_with(out.text)) << out.text;  // never takes anything back
    }
    decoder.finish(&out);
    ASSERT_EQ(out.text, expected.text);
    ASSERT_EQ(out.starts, expected.starts);
    Ids all = prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    const std::string whole = tokenizer.decode(all, skip), before = tokenizer.decode(prompt, skip);
    if (prompt.empty()) {
      ASSERT_EQ(out.text, whole);
    } else if (whole.starts_with(before) && !(before.empty() && raw_bytes(tokenizer, prompt, skip) > 0)) {
      // (A prompt of one stripped space, in a byte run that turns bad, comes back as U+FFFD: not the new tokens' text.)
      ASSERT_EQ(out.text, whole.substr(before.size()));
    }
  }
}

TEST(IncrementalDecoder, RandomTokensGiveTheOneShotText) {
  for (const bool byte_level : {true, false}) {
    const auto tokenizer =
        byte_level ? testing::byte_level_tokenizer(kWords) : testing::sentencepiece_tokenizer(kPieces);
    Ids candidates = {0x20, 'a', 0xE4, 0xB8, 0xAD, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 5000, -1};
    for (TokenId id = 256; id < tokenizer->vocab_size(); ++id) candidates.push_back(id);
    check_random(*tokenizer, candidates, 7, 20000);
  }
}

// The same over real vocabularies: any id, and ids of which many are fragments.
TEST(IncrementalDecoder, RandomTokensOfRealVocabulariesGiveTheOneShotText) {
  HELIOS_NEED_TEST_DATA(dir, "models");
  for (const char* model :
       {"/helios-demo", "/stories260k/f32", "/tiny-random/qwen3-qknorm-bf16", "/tokenizers/qwen3",
        "/tokenizers/llama3_1", "/tokenizers/gpt35turbo", "/tokenizers/gptoss", "/tokenizers/deepseek_v3",
        "/tokenizers/gemma3", "/tokenizers/llama2", "/tokenizers/mistral_v1"}) {
    SCOPED_TRACE(model);
    const auto tokenizer = testing::load_tokenizer(dir + model);
    if (!tokenizer) continue;
    Ids any, fragments;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      any.push_back(id);
      if (!valid_utf8(tokenizer->token_bytes(id)) || tokenizer->is_byte_fallback(id) || tokenizer->is_special(id)) {
        fragments.push_back(id);
      }
    }
    ASSERT_GT(fragments.size(), 100u);
    check_random(*tokenizer, any, 11, 300);
    check_random(*tokenizer, fragments, 13, 1500);
  }
}

// Golden prefixes: the decode of the first k + 1 ids is what ending the stream there gives.
TEST(IncrementalDecoder, GoldenStreamsEndAtEveryPrefix) {
  HELIOS_NEED_TEST_DATA(dir, "golden/tokenizers");
  int lines = 0;
  for (const auto& [name, model] :
       {std::pair{"stories260k", "models/stories260k/f32"}, {"qwen3", "models/tokenizers/qwen3"}}) {
    const auto tokenizer = testing::load_tokenizer(testing::test_data_dir() + "/" + model);
    if (!tokenizer) continue;
    for (const auto& line : testing::read_json_lines(dir + "/" + name + ".jsonl")) {
      if (!line.contains("stream")) continue;
      const Ids ids = testing::as_ids(line.at("ids"));
      const auto& prefixes = line.at("prefixes").as_array();
      for (size_t k = 0; k < ids.size(); ++k) {
        EXPECT_EQ(stream(*tokenizer, true, {}, Ids(ids.begin(), ids.begin() + k + 1)).text,
                  testing::as_text(prefixes[k]));
      }
      ++lines;
    }
  }
  EXPECT_GT(lines, 20);
}

}  // namespace
}  // namespace helios
