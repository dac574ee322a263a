// The KV cache's blocks: which are free, and who holds the others.
//
// A block holds kv_block_size positions on every rank; its number is the same everywhere. Blocks have one holder each
// in this version: there is no prefix cache to share them. Thread: engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace helios {

class BlockPool {
 public:
  BlockPool(int32_t num_blocks, int32_t block_size);

  /// Blocks that `positions` positions need.
  int32_t blocks_for(int64_t positions) const;

  /// The blocks that take(skip) and then take(count) would give second. Changes nothing; skip + count <= num_free().
  std::vector<int32_t> peek(int32_t skip, int32_t count) const;

  /// Takes exactly these blocks, which must be what peek(0, size) names.
  void take(std::span<const int32_t> blocks);
  void release(std::span<const int32_t> blocks);

  int32_t num_blocks() const { return static_cast<int32_t>(taken_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  int32_t block_size_;
  std::vector<int32_t> free_;  // a stack: the last released is taken first, while it is still in cache
  std::vector<bool> taken_;
};

}  // namespace helios
