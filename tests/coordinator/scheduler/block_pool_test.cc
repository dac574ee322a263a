#include "coordinator/scheduler/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace helios {
namespace {

TEST(BlockPool, RoundsPositionsUpToBlocks) {
  const BlockPool pool(10, 16);
  EXPECT_EQ(pool.blocks_for(1), 1);
  EXPECT_EQ(pool.blocks_for(16), 1);
  EXPECT_EQ(pool.blocks_for(17), 2);
}

TEST(BlockPool, PeekWithASkipNamesWhatASecondTakeWouldGive) {
  BlockPool pool(10, 16);
  const auto first = pool.peek(0, 3), second = pool.peek(3, 4);
  pool.take(first);
  EXPECT_EQ(pool.peek(0, 4), second);
  pool.take(second);
  std::set<int32_t> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(pool.num_free(), 3);
  pool.release(first);
  pool.release(second);
  EXPECT_EQ(pool.num_free(), 10);
}

TEST(BlockPoolDeathTest, ABlockIsNotReleasedTwice) {
  BlockPool pool(4, 16);
  const auto blocks = pool.peek(0, 2);
  pool.take(blocks);
  pool.release(blocks);
  EXPECT_DEATH(pool.release(blocks), "check failed");
}

}  // namespace
}  // namespace helios
