// Rows of logits for tests, made from a fixed seed, and their cut into shards with poisoned padding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/vocab_range.h"

namespace helios::testing {

/// SplitMix64: the same numbers on every machine and standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  double normal() {
    return std::sqrt(-2.0 * std::log(1.0 - uniform())) * std::cos(2.0 * 3.14159265358979323846 * uniform());
  }

 private:
  uint64_t state_;
};

/// The shape of a language model's row: a broad bulk and a few ids far above it.
inline std::vector<float> model_like_row(int64_t vocab_size, uint64_t seed) {
  Random random(seed);
  std::vector<float> row(vocab_size);
  for (float& logit : row) logit = static_cast<float>(2.5 * random.normal() - 1.0);
  for (int i = 0; i < 24; ++i) row[random.below(vocab_size)] = static_cast<float>(8.0 + 3.0 * random.normal());
  return row;
}

/// One rank's logits, [rows, shard_stride]; padding columns are NaN, so that reading one shows.
inline std::vector<float> shard_rows(const std::vector<std::vector<float>>& rows, const VocabLayout& layout, Rank rank,
                                     int world) {
  const int64_t stride = layout.shard_stride(world);
  const Range shard = layout.shard(rank, world);
  std::vector<float> logits(rows.size() * stride, std::numeric_limits<float>::quiet_NaN());
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t id = shard.begin; id < shard.end; ++id) logits[r * stride + id - shard.begin] = rows[r][id];
  }
  return logits;
}

}  // namespace helios::testing
