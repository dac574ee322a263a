#include "coordinator/scheduler/block_scratch.h"

#include <algorithm>

#include "common/base/check.h"

namespace helios {

std::vector<int32_t> BlockScratch::take(int32_t count) {
  HELIOS_CHECK(count <= num_free_, count, num_free_);
  std::vector<int32_t> blocks;
  for (; static_cast<int32_t>(blocks.size()) < count; next_ = pool_.next_free(next_)) {
    if (!shared_.contains(next_)) blocks.push_back(next_);
  }
  taken_.insert(blocks.begin(), blocks.end());
  num_free_ -= count;
  return blocks;
}

void BlockScratch::cut_taken(std::vector<int32_t>& found) const {
  found.erase(std::find_if(found.begin(), found.end(), [&](int32_t block) { return taken_.contains(block); }),
              found.end());
}

bool BlockScratch::is_free(int32_t block) const {
  return pool_.holders(block) == 0 && !shared_.contains(block) && !taken_.contains(block);
}

int32_t BlockScratch::num_free_of(const std::vector<int32_t>& found) const {
  return static_cast<int32_t>(std::count_if(found.begin(), found.end(), [&](int32_t b) { return is_free(b); }));
}

void BlockScratch::share(const std::vector<int32_t>& found) {
  num_free_ -= num_free_of(found);
  for (const int32_t block : found) {
    if (is_free(block)) shared_.insert(block);
  }
}

}  // namespace helios
