#include "coordinator/scheduler/block_pool.h"

#include "common/base/check.h"

namespace helios {

BlockPool::BlockPool(int32_t num_blocks, int32_t block_size) : block_size_(block_size), taken_(num_blocks, false) {
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

int32_t BlockPool::blocks_for(int64_t positions) const {
  return static_cast<int32_t>((positions + block_size_ - 1) / block_size_);
}

std::vector<int32_t> BlockPool::peek(int32_t skip, int32_t count) const {
  HELIOS_CHECK(skip + count <= num_free(), skip, count, num_free());
  std::vector<int32_t> blocks(free_.rbegin() + skip, free_.rbegin() + skip + count);
  return blocks;
}

void BlockPool::take(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) {
    HELIOS_CHECK(!free_.empty() && free_.back() == block && !taken_[block], block);
    free_.pop_back();
    taken_[block] = true;
  }
}

void BlockPool::release(std::span<const int32_t> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    HELIOS_CHECK(taken_[*it], *it);
    taken_[*it] = false;
    free_.push_back(*it);
  }
}

}  // namespace helios
