// The best keys seen so far, sorted, largest first: a bounded insertion sort. Kernels merge short lists with it.
#pragma once

#include <array>
#include <span>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/sort_key.h"

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

 private:
  int limit_;
  int size_ = 0;
  std::array<SortKey, kKeptSortKeys> keys_;
};

}  // namespace helios
