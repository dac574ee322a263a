// The best keys seen so far, sorted, largest first: a bounded insertion sort. CPU kernels merge short lists with it.
#pragma once

#include <array>
#include <span>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/tile_candidates.h"

namespace helios {

class BestKeys {
 public:
  /// Keeps the best `limit` keys, at most kKeptSortKeys.
  explicit BestKeys(int limit) : limit_(limit) {}

  void insert(SortKey key) {
    if (size_ == limit_) {
      if (limit_ == 0 || key <= keys_[size_ - 1]) return;
      --size_;
    }
    int at = size_++;
    for (; at > 0 && keys_[at - 1] < key; --at) keys_[at] = keys_[at - 1];
    keys_[at] = key;
  }
  std::span<const SortKey> keys() const { return {keys_.data(), static_cast<size_t>(size_)}; }
  /// The i-th best, or kNoKey.
  SortKey at(int i) const { return i < size_ ? keys_[i] : kNoKey; }

 private:
  int limit_;
  int size_ = 0;
  std::array<SortKey, kKeptSortKeys> keys_;
};

/// Merges the keys that launch 3 kept of `num_tiles` tiles from `first_tile` on.
inline void merge_tile_keys(const SortKey* keys, const int32_t* counts, int64_t first_tile, int num_tiles,
                            BestKeys& best) {
  for (int64_t tile = first_tile; tile < first_tile + num_tiles; ++tile) {
    for (int i = 0; i < counts[tile]; ++i) best.insert(keys[tile * kKeptSortKeys + i]);
  }
}

/// Logits of the tiles that launch 3 read.
inline int64_t candidate_logits_read(const int32_t* counts, int64_t num_positions, const TilesView& shard) {
  int64_t words = 0;
  for (int64_t item = 0; item < num_positions * shard.num_tiles; ++item) {
    if (counts[item] != kTileNotRead) words += shard.tiles[item % shard.num_tiles].width;
  }
  return words;
}

}  // namespace helios
