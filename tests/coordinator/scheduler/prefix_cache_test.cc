#include "coordinator/scheduler/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace helios {
namespace {

using Tokens = std::vector<TokenId>;
using Blocks = std::vector<int32_t>;

TEST(PrefixCache, FindsTheLongestKnownPrefixInWholeBlocks) {
  PrefixCache cache(10, 2);
  PrefixCache::Chain chain;
  cache.publish(chain, "", Tokens{1, 2, 3, 4, 5}, Blocks{7, 3, 9});
  EXPECT_EQ(chain.length, 2);
  EXPECT_FALSE(cache.contains(9)) << "not full";
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3, 4, 5, 6}), (Blocks{7, 3}));
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3}), (Blocks{7}));
  EXPECT_EQ(cache.find("", Tokens{1, 2, 9, 4}), (Blocks{7}));
  EXPECT_EQ(cache.find("", Tokens{3, 4}), Blocks{}) << "a block is known under its prefix only";
  EXPECT_EQ(cache.find("", Tokens{1}), Blocks{});
}

TEST(PrefixCache, GrowsAChainAsItsTokensBecomeKnown) {
  PrefixCache cache(10, 2);
  PrefixCache::Chain chain;
  cache.publish(chain, "", Tokens{1, 2}, Blocks{0});
  cache.publish(chain, "", Tokens{1, 2, 3, 4, 5, 6}, Blocks{0, 1, 2});
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3, 4, 5, 6}), (Blocks{0, 1, 2}));
}

TEST(PrefixCache, OtherSaltsDoNotMeet) {
  PrefixCache cache(10, 2, 0, 0);  // not even when their hashes do
  PrefixCache::Chain a, b;
  cache.publish(a, "alice", Tokens{1, 2, 3, 4}, Blocks{0, 1});
  EXPECT_EQ(cache.find("bob", Tokens{1, 2, 3, 4}), Blocks{});
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3, 4}), Blocks{});
  cache.publish(b, "bob", Tokens{1, 2, 3, 4}, Blocks{5, 6});
  EXPECT_EQ(cache.find("alice", Tokens{1, 2, 3, 4}), (Blocks{0, 1}));
  EXPECT_EQ(cache.find("bob", Tokens{1, 2, 3, 4}), (Blocks{5, 6}));
}

TEST(PrefixCache, TheFirstBlockOfAPrefixStays) {
  PrefixCache cache(10, 2);
  PrefixCache::Chain a, b;
  cache.publish(a, "", Tokens{1, 2, 3, 4}, Blocks{0, 1});
  cache.publish(b, "", Tokens{1, 2, 3, 4, 5, 6}, Blocks{4, 5, 6});  // computed at the same time
  EXPECT_FALSE(cache.contains(4) || cache.contains(5));
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3, 4, 5, 6}), (Blocks{0, 1, 6}));
}

TEST(PrefixCache, WhatIsForgottenTakesItsDescendantsAlong) {
  PrefixCache cache(10, 1);
  PrefixCache::Chain a, b, c;
  cache.publish(a, "", Tokens{1, 2, 3}, Blocks{0, 1, 2});
  cache.publish(b, "", Tokens{1, 2, 4}, Blocks{0, 1, 3});
  cache.publish(c, "", Tokens{1, 5}, Blocks{0, 4});
  Blocks forgotten = cache.forget(1);
  std::sort(forgotten.begin(), forgotten.end());
  EXPECT_EQ(forgotten, (Blocks{1, 2, 3}));
  EXPECT_EQ(cache.find("", Tokens{1, 2, 3}), (Blocks{0}));
  EXPECT_EQ(cache.find("", Tokens{1, 5}), (Blocks{0, 4}));
  EXPECT_EQ(cache.size(), 2);
  EXPECT_TRUE(cache.forget(1).empty());
  // A request whose chain was cut publishes from the start again, what is still known included.
  cache.publish(b, "", Tokens{1, 2, 4, 6}, Blocks{0, 1, 3, 7});
  EXPECT_EQ(cache.find("", Tokens{1, 2, 4, 6}), (Blocks{0, 1, 3, 7}));
}

/// Against a map of whole prefixes, with all hashes equal (`mask` 0), few different, and all bits.
void check_against_map(uint64_t mask, uint32_t seed) {
  std::mt19937 random(seed);
  constexpr int kBlocks = 24, kSize = 2;
  PrefixCache cache(kBlocks, kSize, 0, mask);
  std::map<std::pair<std::string, Tokens>, int32_t> known;  // (salt, whole prefix) to block
  std::vector<bool> used(kBlocks, false);
  const auto tokens_of = [&] {
    Tokens tokens(random() % 9);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    return tokens;
  };
  const auto expected = [&](const std::string& salt, const Tokens& tokens) {
    Blocks blocks;
    for (size_t end = kSize; end <= tokens.size(); end += kSize) {
      const auto it = known.find({salt, Tokens(tokens.begin(), tokens.begin() + static_cast<long>(end))});
      if (it == known.end()) break;
      blocks.push_back(it->second);
    }
    return blocks;
  };
  for (int step = 0; step < 2000; ++step) {
    const std::string salt = random() % 3 == 0 ? "s" : "";
    const Tokens tokens = tokens_of();
    Blocks blocks = cache.find(salt, tokens);
    ASSERT_EQ(blocks, expected(salt, tokens)) << step;
    if (random() % 3 == 0) {
      const auto block = static_cast<int32_t>(random() % kBlocks);
      const Blocks forgotten = cache.forget(block);
      ASSERT_EQ(!forgotten.empty(), used[block]);
      for (const int32_t gone : forgotten) used[gone] = false;
      std::erase_if(known, [&](const auto& entry) {
        return std::find(forgotten.begin(), forgotten.end(), entry.second) != forgotten.end();
      });
      continue;
    }
    PrefixCache::Chain chain = cache.chain_of(blocks);
    for (size_t i = blocks.size(); i < tokens.size() / kSize; ++i) {
      const auto unused = std::find(used.begin(), used.end(), false);
      if (unused == used.end()) break;
      *unused = true;
      blocks.push_back(static_cast<int32_t>(unused - used.begin()));
      known[{salt, Tokens(tokens.begin(), tokens.begin() + static_cast<long>((i + 1) * kSize))}] = blocks.back();
    }
    cache.publish(chain, salt, std::span(tokens).first(std::min(tokens.size(), blocks.size() * kSize)), blocks);
    ASSERT_EQ(cache.size(), static_cast<int64_t>(known.size()));
  }
}

TEST(PrefixCache, AgreesWithAMapOfPrefixesWhateverTheHashes) {
  for (const uint64_t mask : {uint64_t{0}, uint64_t{3}, ~uint64_t{0}}) check_against_map(mask, 7);
}

}  // namespace
}  // namespace helios
