// What of each layer a rank owns: query heads, the KV heads that they read, inner columns, vocabulary rows.
//
// Every cut follows the eight canonical segments, so a rank at any tensor-parallel degree owns a whole subtree of each
// sum (X1). Cuts may be uneven and shards empty: a rank can own no head at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/vocab_range.h"
#include "worker/model/model_config.h"

namespace helios {

struct RankShape {
  Rank rank;
  int world = 1;
  Range q_heads;                 // global
  Range kv_heads;                // global; shared heads are replicated on every rank that reads them
  std::vector<int32_t> kv_of_q;  // [local query heads] local KV head
  Range inner;
  Range vocab;
  // Boundaries of the rank's segments, relative to its first column, for the row-parallel products.
  std::vector<int64_t> o_segments;
  std::vector<int64_t> down_segments;
  int64_t longest_o_segment = 0, longest_down_segment = 0;  // of all eight

  int num_q() const { return static_cast<int>(q_heads.size()); }
  int num_kv() const { return static_cast<int>(kv_heads.size()); }
};

inline RankShape rank_shape(const ModelConfig& config, Rank rank, int world) {
  RankShape s{.rank = rank, .world = world};
  s.q_heads = even_shard(config.num_heads, rank, world);
  s.inner = even_shard(config.inner, rank, world);
  s.vocab = VocabLayout(config.vocab_size).shard(rank, world);
  const int64_t group = config.num_heads / config.num_kv_heads;
  if (s.q_heads.size() > 0) s.kv_heads = {s.q_heads.begin / group, (s.q_heads.end - 1) / group + 1};
  for (int64_t h = s.q_heads.begin; h < s.q_heads.end; ++h) {
    s.kv_of_q.push_back(static_cast<int32_t>(h / group - s.kv_heads.begin));
  }
  const Range segments = rank_segments(rank, world);
  for (int64_t i = segments.begin; i < segments.end; ++i) {
    const auto segment = static_cast<int>(i);
    s.o_segments.push_back((even_segment(config.num_heads, segment).begin - s.q_heads.begin) * config.head_dim);
    s.down_segments.push_back(even_segment(config.inner, segment).begin - s.inner.begin);
  }
  for (int segment = 0; segment < kCanonicalSegments; ++segment) {
    const int64_t heads = even_segment(config.num_heads, segment).size();
    s.longest_o_segment = std::max(s.longest_o_segment, heads * config.head_dim);
    s.longest_down_segment = std::max(s.longest_down_segment, even_segment(config.inner, segment).size());
  }
  s.o_segments.push_back(s.q_heads.size() * config.head_dim);
  s.down_segments.push_back(s.inner.size());
  return s;
}

}  // namespace helios
