#include "coordinator/scheduler/tiered_cache.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

using Tokens = std::vector<TokenId>;
using Blocks = std::vector<int32_t>;

/// Blocks of one token each: a prefix of n tokens has n blocks.
class TieredCacheTest : public ::testing::Test {
 protected:
  static Capabilities core(int32_t blocks, int32_t host_blocks) {
    return {.kv_block_size = 1, .kv_num_blocks = blocks, .host_num_blocks = host_blocks};
  }

  /// Somebody computes the tokens in these free blocks and leaves.
  static void compute(TieredCache& cache, const Tokens& tokens, const Blocks& blocks, const char* salt = "") {
    take(cache, blocks);
    PrefixCache::Chain chain;
    cache.publish(chain, salt, tokens, blocks);
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) cache.release(*block);
  }
  static CacheMoves take(TieredCache& cache, const Blocks& blocks) {
    cache.begin({});
    for (const int32_t block : blocks) cache.take(block);
    return cache.end();
  }
  static Blocks find(const TieredCache& cache, const Tokens& tokens, const char* salt = "") {
    return cache.prefixes().find(salt, tokens);
  }
};

TEST_F(TieredCacheTest, WhatIsTakenGoesToTheHostAndComesBackToAnotherBlock) {
  TieredCache cache(core(4, 4));
  compute(cache, {1, 2}, {0, 1});
  const CacheMoves out = take(cache, {1, 0});
  ASSERT_EQ(out.out.size(), 2u);
  EXPECT_TRUE(out.in.empty());
  EXPECT_EQ(find(cache, {1, 2}), (Blocks{4 + out.out[1].host_block, 4 + out.out[0].host_block}));
  EXPECT_TRUE(find(cache, {1, 2}, "salt").empty());
  EXPECT_EQ(cache.host_used(), 2);

  const std::vector<BlockCopy> back = {{3, out.out[1].host_block}, {2, out.out[0].host_block}};
  cache.begin(back);
  for (const BlockCopy& copy : back) cache.bring_back(copy);
  const CacheMoves in = cache.end();
  EXPECT_EQ(in.in, back);
  EXPECT_TRUE(in.out.empty());
  EXPECT_EQ(find(cache, {1, 2}), (Blocks{3, 2}));
  EXPECT_EQ(cache.host_used(), 0);
}

TEST_F(TieredCacheTest, TheLongestUnusedIsGoneFirstAndNoPrefixBeforeWhatContinuesIt) {
  TieredCache cache(core(6, 3));
  compute(cache, {1, 2}, {0, 1});
  compute(cache, {7}, {2});
  take(cache, {0});  // the beginning goes before its end
  take(cache, {2});
  take(cache, {1});
  EXPECT_EQ(find(cache, {1, 2}).size(), 2u);
  EXPECT_EQ(find(cache, {7}).size(), 1u);
  compute(cache, {8}, {3});
  take(cache, {3});  // the tier is full: 7 is the oldest now, since 2 came later and 1 goes before it
  EXPECT_TRUE(find(cache, {7}).empty());
  EXPECT_EQ(find(cache, {1, 2}).size(), 2u);
  compute(cache, {9}, {4});
  take(cache, {4});
  EXPECT_EQ(find(cache, {1, 2}).size(), 1u) << "the end is gone, the beginning stays";
  EXPECT_EQ(cache.host_used(), 3);
}

TEST_F(TieredCacheTest, ASubmissionNamesABlockOfTheTierOnce) {
  TieredCache cache(core(4, 1));
  compute(cache, {1}, {0});
  compute(cache, {2}, {1});
  const CacheMoves moves = take(cache, {0, 1});
  ASSERT_EQ(moves.out.size(), 1u) << "there is one block for the two, and it was filled already";
  EXPECT_EQ(find(cache, {1}), (Blocks{4}));
  EXPECT_TRUE(find(cache, {2}).empty());

  compute(cache, {3}, {2});
  const std::vector<BlockCopy> back = {{2, 0}};  // what block 2 holds cannot go where this comes from
  cache.begin(back);
  cache.bring_back(back[0]);
  EXPECT_TRUE(cache.end().out.empty());
  EXPECT_EQ(find(cache, {1}), (Blocks{2}));
  EXPECT_TRUE(find(cache, {3}).empty());
  EXPECT_EQ(cache.host_used(), 0);
}

TEST_F(TieredCacheTest, WhatIsComputedAgainLeavesTheTier) {  // R43: scored prompts look nothing up and are published
  TieredCache cache(core(6, 4));
  compute(cache, {1, 2}, {0, 1});
  take(cache, {1, 0});
  compute(cache, {1, 2, 3}, {3, 4, 5});
  EXPECT_EQ(find(cache, {1, 2, 3}), (Blocks{3, 4, 5}));
  EXPECT_EQ(cache.host_used(), 0);
}

TEST_F(TieredCacheTest, WithoutATierWhatIsTakenIsGone) {
  TieredCache cache(core(4, 0));
  compute(cache, {1, 2}, {0, 1});
  EXPECT_TRUE(take(cache, {1}).out.empty());
  EXPECT_EQ(find(cache, {1, 2}), (Blocks{0}));
  take(cache, {0});
  EXPECT_TRUE(find(cache, {1}).empty());
}

}  // namespace
}  // namespace helios
