// What a plan would do to the blocks, before anybody does it: takes and shares on top of a pool that stays as it is.
//
// A block that the plan takes loses its contents, so later look-ups of the same plan must not find it; a block that the
// plan shares must not be taken. Lives for one plan. Thread: engine.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "coordinator/scheduler/block_pool.h"

namespace helios {

class BlockScratch {
 public:
  explicit BlockScratch(const BlockPool& pool) : pool_(pool), next_(pool.first_free()), num_free_(pool.num_free()) {}

  int32_t num_free() const { return num_free_; }

  /// The next `count` free blocks in the pool's order; count <= num_free().
  std::vector<int32_t> take(int32_t count);

  /// Cuts a found prefix before the first block that this plan has taken; those of the host tier are never taken.
  void cut_taken(std::vector<int32_t>& found) const;
  /// How many of `found` are free now, and would not be after share(found).
  int32_t num_free_of(const std::vector<int32_t>& found) const;
  void share(const std::vector<int32_t>& found);

 private:
  bool is_free(int32_t block) const;

  const BlockPool& pool_;
  int32_t next_;  // free blocks before it are taken or shared
  int32_t num_free_;
  std::unordered_set<int32_t> taken_, shared_;
};

}  // namespace helios
