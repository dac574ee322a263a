// Vocabularies and small walks for grammar tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/grammar/compiled_grammar.h"

namespace helios::testing {

using Vocabulary = std::shared_ptr<const GrammarVocabulary>;
using Grammar = std::shared_ptr<const CompiledGrammar>;

inline constexpr TokenId kEndOfText = 256;

/// Tokens 0..255 are the bytes, 256 ends the text, then come `pieces`.
inline Vocabulary vocabulary_with(const std::vector<std::string>& pieces) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("<eos>");
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  return GrammarVocabulary::make(std::move(tokens), {kEndOfText}).value();
}

inline Vocabulary byte_vocabulary() {
  static const Vocabulary vocabulary = vocabulary_with({});
  return vocabulary;
}

/// Pieces cut at random out of `text`, some of them twice: bytes, so also within characters.
inline std::vector<std::string> random_pieces(std::string_view text, size_t count, std::mt19937_64* random) {
  std::vector<std::string> pieces;
  while (pieces.size() < count && !text.empty()) {
    const size_t begin = (*random)() % text.size();
    pieces.emplace_back(text.substr(begin, 1 + (*random)() % 6));
  }
  return pieces;
}

inline Result<Grammar> try_compile(GrammarKind kind, std::string source, Vocabulary vocabulary = byte_vocabulary(),
                                   JsonSpace space = JsonSpace::kBounded, const GrammarLimits& limits = {}) {
  return CompiledGrammar::compile({kind, std::move(source), space}, std::move(vocabulary), limits);
}

inline Grammar compile(GrammarKind kind, std::string source, Vocabulary vocabulary = byte_vocabulary(),
                       JsonSpace space = JsonSpace::kBounded) {
  auto grammar = try_compile(kind, source, std::move(vocabulary), space);
  if (!grammar) throw std::runtime_error(source + ": " + grammar.error().message);
  return *grammar;
}

/// The error's message; empty when it compiles.
inline std::string compile_error(GrammarKind kind, std::string source) {
  const auto grammar = try_compile(kind, std::move(source));
  return grammar ? "" : grammar.error().message;
}

/// A vocabulary may hold every byte as tokens 0..255.
inline bool begins(GrammarMatcher matcher, std::string_view text) {
  for (const char c : text)
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  return true;
}

inline bool accepts(const Grammar& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  for (const char c : text)
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  return matcher.is_complete();
}

inline std::vector<uint32_t> mask_of(GrammarMatcher* matcher, const GrammarVocabulary& vocabulary) {
  std::vector<uint32_t> words(vocabulary.mask_words() + 1, ~0u);
  const Status status = matcher->fill_mask(words);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  EXPECT_EQ(words.back(), 0u);
  return words;
}

inline bool allowed(const std::vector<uint32_t>& words, TokenId id) {
  return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

inline std::vector<TokenId> allowed_tokens(const std::vector<uint32_t>& words) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 32 * words.size(); ++i)
    if (allowed(words, static_cast<TokenId>(i))) tokens.push_back(static_cast<TokenId>(i));
  return tokens;
}

/// Follows the masks at random until the text may end and a coin, or the grammar, says so. Nothing when it did not end
/// within `max_tokens`. Each allowed token must be accepted, and one that is not must be refused.
inline std::optional<std::string> random_walk(const Grammar& grammar, size_t max_tokens, std::mt19937_64* random) {
  const GrammarVocabulary& vocabulary = grammar->vocabulary();
  GrammarMatcher matcher(grammar);
  std::string text;
  for (size_t i = 0; i < max_tokens; ++i) {
    const std::vector<uint32_t> words = mask_of(&matcher, vocabulary);
    EXPECT_EQ(allowed(words, kEndOfText), matcher.is_complete()) << text;
    const std::vector<TokenId> tokens = allowed_tokens(words);
    const auto any = static_cast<TokenId>((*random)() % static_cast<uint64_t>(vocabulary.vocab_size()));
    EXPECT_EQ(allowed(words, any), GrammarMatcher(matcher).accept(any)) << text << " then token " << any;
    if (matcher.is_complete() && (tokens.size() == 1 || (*random)() % 4 == 0)) {
      EXPECT_TRUE(matcher.accept(kEndOfText));
      return text;
    }
    // Closing brackets and quotes are favoured, or texts would never end.
    std::vector<TokenId> closing;
    for (const TokenId token : tokens)
      if (token != kEndOfText && vocabulary.token_bytes(token).find_first_of("\"}]") != std::string_view::npos)
        closing.push_back(token);
    const std::vector<TokenId>& from = !closing.empty() && (*random)() % 3 == 0 ? closing : tokens;
    const TokenId token = from[(*random)() % from.size()];
    if (token == kEndOfText) return text;
    EXPECT_TRUE(matcher.accept(token)) << text << " then token " << token;
    text += vocabulary.token_bytes(token);
  }
  return std::nullopt;
}

/// Compares the mask at every step of a random walk with what stepping byte by byte says of each token.
inline void expect_masks_equal_steps(const Grammar& grammar, size_t steps, std::mt19937_64* random) {
  const GrammarVocabulary& vocabulary = grammar->vocabulary();
  GrammarMatcher matcher(grammar);
  std::string text;
  for (size_t i = 0; i < steps; ++i) {
    const std::vector<uint32_t> words = mask_of(&matcher, vocabulary);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < vocabulary.vocab_size(); ++token) {
      if (token == kEndOfText) continue;
      const bool fits = !vocabulary.token_bytes(token).empty() && begins(matcher, vocabulary.token_bytes(token));
      ASSERT_EQ(allowed(words, token), fits) << "after \"" << text << "\": \"" << vocabulary.token_bytes(token) << '"';
      if (fits) tokens.push_back(token);
    }
    ASSERT_EQ(allowed(words, kEndOfText), matcher.is_complete()) << text;
    if (tokens.empty()) return;
    const TokenId token = tokens[(*random)() % tokens.size()];
    ASSERT_TRUE(matcher.accept(token));
    text += vocabulary.token_bytes(token);
  }
}

}  // namespace helios::testing
