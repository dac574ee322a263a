// The KV cache's blocks: how many hold each, and in which order the others are used again.
//
// A block holds kv_block_size positions on every rank; its number is the same everywhere. Requests with the same prefix
// share blocks, so a block has a count of holders. A block that nobody holds keeps its contents until it is taken:
// worthless ones are taken first, then those that were released longest ago. Thread: engine.
#pragma once

#include <cstdint>
#include <vector>

namespace helios {

class BlockPool {
 public:
  BlockPool(int32_t num_blocks, int32_t block_size);

  /// Blocks that `positions` positions need.
  int32_t blocks_for(int64_t positions) const;

  /// A free block gets its first holder, who will overwrite it.
  void take(int32_t block);
  /// One holder more, who will read it; it may be free.
  void share(int32_t block);
  /// One holder less. `keep`: when it was the last, the contents may be found again, so others are taken first.
  void release(int32_t block, bool keep);
  /// The contents of a free block are worthless: it is taken next.
  void drop(int32_t block);

  int32_t holders(int32_t block) const { return holders_[block]; }

  // The free blocks, in the order in which they should be taken; -1: none, or no more.
  int32_t first_free() const { return link_or_none(next_[num_blocks()]); }
  int32_t next_free(int32_t block) const { return link_or_none(next_[block]); }

  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return static_cast<int32_t>(holders_.size()); }
  int32_t num_free() const { return num_free_; }

 private:
  int32_t link_or_none(int32_t link) const { return link == num_blocks() ? -1 : link; }
  void link_before(int32_t block, int32_t successor);
  void unlink(int32_t block);

  int32_t block_size_;
  int32_t num_free_ = 0;
  std::vector<int32_t> holders_;
  std::vector<int32_t> next_, prev_;  // a ring of the free blocks; the last element is its head
};

}  // namespace helios
