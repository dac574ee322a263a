// How the vocabulary, and every other dimension that ranks share, is cut into eight canonical segments.
//
// A rank at tensor-parallel degree 1, 2, 4 or 8 owns a whole subtree of the eight segments, so a fixed binary tree over
// segments gives the same bits at every degree. Segments may be uneven, and the last ones may be empty.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/ids.h"

namespace helios {

inline constexpr int kCanonicalSegments = 8;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool contains(int64_t i) const { return i >= begin && i < end; }
  friend bool operator==(const Range&, const Range&) = default;
};

inline bool valid_world_size(int world) { return world == 1 || world == 2 || world == 4 || world == 8; }

/// Segments [begin, end) that a rank owns, out of the canonical eight.
inline Range rank_segments(Rank rank, int world) {
  const int per_rank = kCanonicalSegments / world;
  return {rank.value * per_rank, (rank.value + 1) * per_rank};
}

/// Even cut of `size` items (heads, intermediate columns): segment s is [s*size/8, (s+1)*size/8).
inline Range even_segment(int64_t size, int segment) {
  return {segment * size / kCanonicalSegments, (segment + 1) * size / kCanonicalSegments};
}
inline Range even_shard(int64_t size, Rank rank, int world) {
  const Range segments = rank_segments(rank, world);
  return {segments.begin * size / kCanonicalSegments, segments.end * size / kCanonicalSegments};
}

/// The vocabulary's cut: segments of equal width, a multiple of 16, so that shards start on vector boundaries. A
/// vocabulary that does not divide leaves the last segments short or empty.
class VocabLayout {
 public:
  explicit VocabLayout(int64_t vocab_size)
      : vocab_size_(vocab_size),
        segment_width_((vocab_size + kCanonicalSegments * 16 - 1) / (kCanonicalSegments * 16) * 16) {}

  int64_t vocab_size() const { return vocab_size_; }
  int64_t segment_width() const { return segment_width_; }
  Range segment(int s) const {
    return {std::min(vocab_size_, s * segment_width_), std::min(vocab_size_, (s + 1) * segment_width_)};
  }
  /// Valid ids of a rank's shard; empty when the vocabulary ends before it.
  Range shard(Rank rank, int world) const {
    const Range segments = rank_segments(rank, world);
    return {std::min(vocab_size_, segments.begin * segment_width_),
            std::min(vocab_size_, segments.end * segment_width_)};
  }
  /// Row stride of a rank's logits, padding included.
  int64_t shard_stride(int world) const { return segment_width_ * (kCanonicalSegments / world); }
  /// The rank whose shard holds `id`; `id` must be in the vocabulary.
  Rank owner(TokenId id, int world) const {
    return Rank(static_cast<int32_t>(id / shard_stride(world)));
  }

 private:
  int64_t vocab_size_;
  int64_t segment_width_;
};

}  // namespace helios
