// The fixed tiles that a shard's vocabulary is reduced in: at most 2048 ids, never across a canonical segment.
//
// Tiles depend on the vocabulary alone, not on the number of ranks: a rank owns the tiles of its segments. Built once.
#pragma once

#include <vector>

#include "common/base/vocab_range.h"

namespace helios {

inline constexpr int kTileWidth = 2048;  // 8 KiB of logits: read once from memory, the second pass hits L1
inline constexpr int kTileLanes = 16;    // accumulators of a tile: id i of a tile goes to lane i % 16 on every target

struct VocabTile {
  int32_t begin = 0;  // first column in the shard; a multiple of 16
  int32_t width = 0;  // 1..2048
};

/// A shard's tiles as most kernels read them: the table lies in device memory.
struct TilesView {
  const VocabTile* tiles = nullptr;  // [num_tiles] by column
  int32_t num_tiles = 0;             // 0: the shard is empty
  int32_t first_id = 0;              // vocabulary id of column 0
  int32_t width = 0;                 // valid columns; what lies behind is padding and never read
};

/// And with the segments that fold into the tree.
struct ShardTilesView : TilesView {
  const int32_t* segment_first_tile = nullptr;  // [num_segments + 1]
  int32_t num_segments = 0;
};

/// The tables on the host.
struct ShardTiles {
  std::vector<VocabTile> tiles;             // by column; none when the shard is empty
  std::vector<int32_t> segment_first_tile;  // [segments + 1]
  int32_t first_id = 0;                     // vocabulary id of column 0
  int32_t width = 0;                        // valid columns; what lies behind is padding and never read

  int num_tiles() const { return static_cast<int>(tiles.size()); }
  int num_segments() const { return static_cast<int>(segment_first_tile.size()) - 1; }

  /// `tiles` and `segment_first_tile` at another place: their copies in device memory.
  ShardTilesView view_at(const VocabTile* tile_table, const int32_t* first_tile_table) const {
    return {{tile_table, num_tiles(), first_id, width}, first_tile_table, num_segments()};
  }
  ShardTilesView view() const { return view_at(tiles.data(), segment_first_tile.data()); }
};

inline ShardTiles make_shard_tiles(const VocabLayout& layout, Rank rank, int world) {
  ShardTiles shard;
  const Range ids = layout.shard(rank, world);
  const Range segments = rank_segments(rank, world);
  shard.first_id = static_cast<int32_t>(ids.begin);
  shard.width = static_cast<int32_t>(ids.size());
  shard.segment_first_tile.push_back(0);
  for (int64_t s = segments.begin; s < segments.end; ++s) {
    const Range segment = layout.segment(static_cast<int>(s));
    for (int64_t id = segment.begin; id < segment.end; id += kTileWidth) {
      const int64_t width = std::min<int64_t>(kTileWidth, segment.end - id);
      shard.tiles.push_back({static_cast<int32_t>(id - ids.begin), static_cast<int32_t>(width)});
    }
    shard.segment_first_tile.push_back(shard.num_tiles());
  }
  return shard;
}

}  // namespace helios
