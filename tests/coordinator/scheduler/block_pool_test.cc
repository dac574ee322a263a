#include "coordinator/scheduler/block_pool.h"

#include <gtest/gtest.h>

#include "coordinator/scheduler/block_scratch.h"

namespace helios {
namespace {

std::vector<int32_t> order(const BlockPool& pool) {
  std::vector<int32_t> blocks;
  for (int32_t block = pool.first_free(); block >= 0; block = pool.next_free(block)) blocks.push_back(block);
  EXPECT_EQ(static_cast<int32_t>(blocks.size()), pool.num_free());
  return blocks;
}

TEST(BlockPool, RoundsPositionsUpToBlocks) {
  const BlockPool pool(10, 16);
  EXPECT_EQ(pool.blocks_for(1), 1);
  EXPECT_EQ(pool.blocks_for(16), 1);
  EXPECT_EQ(pool.blocks_for(17), 2);
}

TEST(BlockPool, ASharedBlockIsFreeWhenItsLastHolderLetsGo) {
  BlockPool pool(3, 16);
  pool.take(1);
  pool.share(1);
  pool.release(1, false);
  EXPECT_EQ(pool.holders(1), 1);
  EXPECT_EQ(order(pool), (std::vector<int32_t>{0, 2}));
  pool.release(1, false);
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(BlockPool, WorthlessBlocksAreTakenFirstThenThoseReleasedLongestAgo) {
  BlockPool pool(4, 16);
  for (int32_t block = 0; block < 4; ++block) pool.take(block);
  pool.release(2, true);
  pool.release(0, true);
  pool.release(3, false);
  EXPECT_EQ(order(pool), (std::vector<int32_t>{3, 2, 0}));
  pool.share(2);  // found again: nobody may take it, and it is young when it comes back
  pool.release(2, true);
  EXPECT_EQ(order(pool), (std::vector<int32_t>{3, 0, 2}));
  pool.drop(2);
  EXPECT_EQ(order(pool), (std::vector<int32_t>{2, 3, 0}));
}

TEST(BlockScratch, NamesBlocksInOrderAndPassesByThoseItShares) {
  BlockPool pool(6, 16);
  pool.take(4);
  BlockScratch scratch(pool);
  EXPECT_EQ(scratch.num_free_of({1, 4}), 1);
  scratch.share({1, 4});
  EXPECT_EQ(scratch.num_free_of({1, 4}), 0);
  EXPECT_EQ(scratch.num_free(), 4);
  EXPECT_EQ(scratch.take(2), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(scratch.take(2), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(scratch.num_free(), 0);
  EXPECT_EQ(pool.num_free(), 5) << "a plan changes nothing";
}

TEST(BlockScratch, APrefixIsCutWhereThePlanTookABlock) {
  BlockPool pool(6, 16);
  BlockScratch scratch(pool);
  scratch.take(2);  // 0 and 1
  std::vector<int32_t> found{5, 4, 1, 3};
  scratch.cut_taken(found);
  EXPECT_EQ(found, (std::vector<int32_t>{5, 4}));
}

TEST(BlockPoolDeathTest, ABlockIsNotReleasedTwiceNorTakenFromItsHolder) {
  BlockPool pool(4, 16);
  pool.take(0);
  EXPECT_DEATH(pool.take(0), "check failed");
  pool.release(0, true);
  EXPECT_DEATH(pool.release(0, true), "check failed");
}

}  // namespace
}  // namespace helios
