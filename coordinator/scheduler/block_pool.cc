#include "coordinator/scheduler/block_pool.h"

#include "common/base/check.h"

namespace helios {

BlockPool::BlockPool(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size), holders_(num_blocks, 0), next_(num_blocks + 1), prev_(num_blocks + 1) {
  next_[num_blocks] = prev_[num_blocks] = num_blocks;
  for (int32_t block = 0; block < num_blocks; ++block) link_before(block, num_blocks);
}

int32_t BlockPool::blocks_for(int64_t positions) const {
  return static_cast<int32_t>((positions + block_size_ - 1) / block_size_);
}

void BlockPool::link_before(int32_t block, int32_t successor) {
  next_[block] = successor;
  prev_[block] = prev_[successor];
  next_[prev_[block]] = block;
  prev_[successor] = block;
  ++num_free_;
}

void BlockPool::unlink(int32_t block) {
  next_[prev_[block]] = next_[block];
  prev_[next_[block]] = prev_[block];
  --num_free_;
}

void BlockPool::take(int32_t block) {
  HELIOS_CHECK(holders_[block] == 0, block, holders_[block]);
  unlink(block);
  holders_[block] = 1;
}

void BlockPool::share(int32_t block) {
  if (holders_[block]++ == 0) unlink(block);
}

void BlockPool::release(int32_t block, bool keep) {
  HELIOS_CHECK(holders_[block] > 0, block);
  if (--holders_[block] > 0) return;
  const int32_t head = num_blocks();
  link_before(block, keep ? head : next_[head]);
}

void BlockPool::drop(int32_t block) {
  HELIOS_CHECK(holders_[block] == 0, block, holders_[block]);
  unlink(block);
  link_before(block, next_[num_blocks()]);
}

}  // namespace helios
