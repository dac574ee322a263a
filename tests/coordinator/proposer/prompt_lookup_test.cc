// The index against a search of the whole sequence, in which every rule can be read.
#include "coordinator/proposer/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace helios {
namespace {

using Tokens = std::vector<TokenId>;

/// The longest n-gram at the end that ended earlier too, its last earlier end, and what followed.
Tokens search(const Tokens& tokens, const PromptLookupOptions& options) {
  const auto size = static_cast<int32_t>(tokens.size());
  for (int32_t n = std::min(options.longest, size); n >= options.shortest; --n) {
    for (int32_t end = size - 1; end >= n; --end) {
      if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n)) continue;
      Tokens whole = tokens;
      for (int32_t i = 0; i < options.num_tokens; ++i) whole.push_back(whole[static_cast<size_t>(end + i)]);
      return {whole.begin() + size, whole.end()};
    }
  }
  return {};
}

Tokens proposed(const Tokens& tokens, const PromptLookupOptions& options) {
  PromptLookup lookup(options);
  lookup.extend(tokens);
  return lookup.propose(tokens);
}

TEST(PromptLookup, TheLongestNGramDecidesAndOfItsOccurrencesTheLast) {
  const PromptLookupOptions options{.num_tokens = 2, .shortest = 1, .longest = 3};
  EXPECT_EQ(proposed({1, 2, 3, 7, 7, 9, 3, 8, 8, 1, 2, 3}, options), (Tokens{7, 7})) << "three before one";
  EXPECT_EQ(proposed({2, 3, 7, 7, 2, 3, 8, 8, 1, 2, 3}, options), (Tokens{8, 8})) << "the later one";
  EXPECT_EQ(proposed({1, 2, 3, 4}, options), Tokens{});
}

TEST(PromptLookup, APeriodGoesOn) {
  const PromptLookupOptions options{.num_tokens = 5, .shortest = 2, .longest = 4};
  EXPECT_EQ(proposed({4, 4, 4}, options), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(proposed({9, 1, 2, 1, 2}, options), (Tokens{1, 2, 1, 2, 1}));
}

TEST(PromptLookup, NothingIsProposedForLessThanTheShortestNGram) {
  const PromptLookupOptions options{.num_tokens = 3, .shortest = 2, .longest = 2};
  for (const Tokens& tokens : {Tokens{}, Tokens{1}, Tokens{1, 1}, Tokens{1, 2, 2}}) {
    EXPECT_EQ(proposed(tokens, options), Tokens{}) << tokens.size();
  }
  EXPECT_EQ(proposed({1, 1, 1}, options), (Tokens{1, 1, 1}));
}

TEST(PromptLookup, FindsWhatASearchFinds) {
  size_t found = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto uniform = [&](int low, int high) { return std::uniform_int_distribution<>(low, high)(random); };
    const int shortest = uniform(1, 4);
    const PromptLookupOptions options{uniform(1, 15), shortest, uniform(shortest, 8)};
    const int ids = 1 << uniform(0, 6), steps = uniform(1, 40);
    PromptLookup lookup(options);
    Tokens tokens;
    for (int step = 0; step < steps; ++step) {
      for (int more = uniform(step == 0 ? 0 : 1, 12); more > 0; --more) tokens.push_back(uniform(0, ids - 1));
      lookup.extend(tokens);
      const Tokens proposals = lookup.propose(tokens);
      ASSERT_EQ(proposals, search(tokens, options)) << tokens.size() << " tokens of " << ids;
      found += proposals.size();
    }
  }
  EXPECT_GT(found, 10000u);
}

TEST(PromptLookup, ALongContextCostsAStepNothing) {
  std::mt19937 random(3);
  PromptLookup lookup({.num_tokens = 8, .shortest = 2, .longest = 4});
  Tokens tokens(200'000);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 50'000);
  lookup.extend(tokens);
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < 1000; ++step) {
    tokens.push_back(tokens[static_cast<size_t>(step)]);
    lookup.extend(tokens);
    ASSERT_EQ(lookup.propose(tokens).size(), step < 1 ? 0u : 8u);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 0.5) << "a search of the context would take minutes";
}

}  // namespace
}  // namespace helios
