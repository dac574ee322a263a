// Real vocabularies: 32,000 to 150,000 tokens, byte-level and with byte fallback, tokens that end within a character.

#include <gtest/gtest.h>

#include "coordinator/tokenizer/utf8.h"
#include "tests/coordinator/grammar/grammar_fixture.h"
#include "tests/coordinator/tokenizer/golden_data.h"

namespace helios::testing {
namespace {

const char* const kSchema =
    R"({"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string","minLength":1,"maxLength":12}},"at":{"type":["number","null"]},"kids":{"type":"array","items":{"$ref":"#"}}},"required":["name","tags","kids"],"additionalProperties":false})";

// Steps that matter: before, within and after strings, within a character, near a length's end.
const char* const kBeginnings[] = {"",
                                   "{\"",
                                   "{\"name\": \"",
                                   "{\"name\": \"caf\xC3",
                                   "{\"name\": \"\\",
                                   "{\"name\": \"a\", \"tags\": [\"0123456789",
                                   "{\"name\": \"a\", \"tags\": [\"01234\xF0\x9F",
                                   "{\"name\": \"a\",\n  \"tags\": [\n    \"b\"",
                                   "{\"name\":\"\",\"tags\":[],\"at\":-1",
                                   "{\"name\":\"\",\"tags\":[],\"kids\":[{\"name\":\"\",\"tags\":[],\"kids\":["};

class ModelVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelVocabulary, MasksEqualSteppingEveryTokenByItsBytes) {
  HELIOS_NEED_TEST_DATA(dir, std::string("models/tokenizers/") + GetParam());
  const auto tokenizer = load_tokenizer(dir);
  ASSERT_TRUE(tokenizer) << "xz is needed";
  const int64_t vocab_size = tokenizer->vocab_size() + 100;  // models pad their heads
  const TokenId stop = tokenizer->find_piece(tokenizer->eos_token()).value();
  const Vocabulary vocabulary = GrammarVocabulary::from_tokenizer(*tokenizer, vocab_size, {stop}).value();
  const Grammar grammar = compile(GrammarKind::kJsonSchema, kSchema, vocabulary);
  std::vector<TokenId> token_of_byte(256, -1);
  for (TokenId id = 0; id < vocab_size; ++id)
    if (vocabulary->token_bytes(id).size() == 1)
      token_of_byte[static_cast<uint8_t>(vocabulary->token_bytes(id)[0])] = id;
  // A second grammar over bare bytes says what the first should.
  const Grammar bytes = compile(GrammarKind::kJsonSchema, kSchema);
  for (const std::string_view beginning : kBeginnings) {
    GrammarMatcher matcher(grammar);
    for (const char c : beginning) ASSERT_TRUE(matcher.accept(token_of_byte[static_cast<uint8_t>(c)])) << beginning;
    GrammarMatcher reference(bytes);
    for (const char c : beginning) ASSERT_TRUE(reference.accept(static_cast<uint8_t>(c)));
    const std::vector<uint32_t> words = mask_of(&matcher, *vocabulary);
    size_t count = 0;
    for (TokenId token = 0; token < vocab_size; ++token) {
      const std::string_view text = token < tokenizer->vocab_size() && !tokenizer->is_special(token) && token != stop
                                        ? tokenizer->token_bytes(token)
                                        : std::string_view();
      bool fits = !text.empty();
      int taken = 0;
      for (size_t i = 0; fits && i < text.size(); ++i) {
        fits = reference.accept(static_cast<uint8_t>(text[i]));
        taken += fits;
      }
      ASSERT_TRUE(reference.rollback(taken));
      ASSERT_EQ(allowed(words, token), fits)
          << GetParam() << " after " << beginning << ": token " << token << " " << text;
      count += fits;
    }
    EXPECT_GT(count, 0u) << beginning;
  }
}

TEST_P(ModelVocabulary, WhatTheTokenizerMakesOfATextIsAcceptedAndEnds) {
  HELIOS_NEED_TEST_DATA(dir, std::string("models/tokenizers/") + GetParam());
  const auto tokenizer = load_tokenizer(dir);
  ASSERT_TRUE(tokenizer) << "xz is needed";
  const TokenId stop = tokenizer->find_piece(tokenizer->eos_token()).value();
  const Vocabulary vocabulary = GrammarVocabulary::from_tokenizer(*tokenizer, tokenizer->vocab_size(), {stop}).value();
  const Grammar grammar = compile(GrammarKind::kJsonSchema, kSchema, vocabulary);
  const std::string text =
      "{\"name\": \"Zoë 😀 \\\"x\\\" 東京\", \"tags\": [\"a\", \"naïve-ish\"], \"at\": -1.5e3, \"kids\": "
      "[{\"name\":\"\",\"tags\":[],\"kids\":[]}]}";
  std::vector<TokenId> ids = tokenizer->encode(text, false).value();
  if (tokenizer->strips_leading_space()) {  // such tokenizers put a space in front, which the grammar does not have
    ASSERT_TRUE(tokenizer->token_bytes(ids[0]).starts_with(' '));
    ids = tokenizer->encode("\n" + text, false).value();
    while (tokenizer->token_bytes(ids[0]).find('{') == std::string_view::npos) ids.erase(ids.begin());
  }
  GrammarMatcher matcher(grammar);
  for (const TokenId id : ids) {
    EXPECT_FALSE(matcher.is_complete());
    ASSERT_TRUE(allowed(mask_of(&matcher, *vocabulary), id)) << tokenizer->token_bytes(id);
    ASSERT_TRUE(matcher.accept(id));
  }
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_EQ(allowed_tokens(mask_of(&matcher, *vocabulary)), std::vector<TokenId>{stop});
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ModelVocabulary, ::testing::Values("qwen3", "llama2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace helios::testing
