// The incremental decoder over random ids, against the one-shot decode and the definition of a token's start. R30.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "coordinator/tokenizer/incremental_decoder.h"
#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios::testing {

inline DecodedText stream(const Tokenizer& tokenizer, bool skip, const std::vector<TokenId>& prompt,
                          const std::vector<TokenId>& ids) {
  IncrementalDecoder decoder(tokenizer, skip, prompt);
  DecodedText out;
  for (const TokenId id : ids) decoder.push(id, &out);
  decoder.finish(&out);
  return out;
}

inline size_t raw_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  size_t size = 0;
  for (const TokenId id : ids) size += skip && tokenizer.is_special(id) ? 0 : tokenizer.token_bytes(id).size();
  return size;
}

inline void check_random_decoding(const Tokenizer& tokenizer, const std::vector<TokenId>& candidates, uint32_t seed,
                                  int rounds) {
  std::mt19937 random(seed);
  const auto draw = [&](size_t most) {
    std::vector<TokenId> ids(random() % (most + 1));
    for (TokenId& id : ids) id = candidates[random() % candidates.size()];
    return ids;
  };
  for (int round = 0; round < rounds; ++round) {
    const bool skip = random() % 2;
    const std::vector<TokenId> prompt = draw(6), ids = draw(24);
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
    std::vector<TokenId> all = prompt;
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

/// Any id of the vocabulary, and ids most of which are fragments, byte tokens or special.
inline void check_random_decoding(const Tokenizer& tokenizer) {
  std::vector<TokenId> any, fragments;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    any.push_back(id);
    if (!valid_utf8(tokenizer.token_bytes(id)) || tokenizer.is_byte_fallback(id) || tokenizer.is_special(id)) {
      fragments.push_back(id);
    }
  }
  ASSERT_GT(fragments.size(), 100u);
  check_random_decoding(tokenizer, any, 11, 300);
  check_random_decoding(tokenizer, fragments, 13, 1500);
}

}  // namespace helios::testing
