// The KV cache's blocks, the host tier behind them, and which prefixes either of them holds.
//
// A place is where a prefix's block can be: a block of the KV cache, or behind those a block of the host tier. A known
// block goes from the cache to the tier when it is taken for something else, and from the tier back when a request
// begins with its prefix: it is in one place at a time. In the tier the longest unused is given up first, and a prefix
// behind what continues it. begin() to end() is one submission, whose copies go in any order: it names a block of the
// tier once, as one that it fills or one that it empties. Thread: engine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/contract/core_manifest.h"
#include "common/contract/submission.h"
#include "coordinator/scheduler/block_pool.h"
#include "coordinator/scheduler/prefix_cache.h"

namespace helios {

/// What a submission moves before its step: first out, then in.
struct CacheMoves {
  std::vector<BlockCopy> out, in;
};

class TieredCache {
 public:
  explicit TieredCache(const Capabilities& core)
      : blocks_(core.kv_num_blocks, core.kv_block_size),
        host_(core.host_num_blocks, core.kv_block_size),
        prefixes_(core.kv_num_blocks, core.kv_block_size, core.host_num_blocks) {}

  const BlockPool& blocks() const { return blocks_; }
  const PrefixCache& prefixes() const { return prefixes_; }
  /// Blocks of the tier that hold something.
  int64_t host_used() const { return num_host_; }

  /// A submission's changes begin; these will come back in it.
  void begin(std::span<const BlockCopy> returning);
  /// They are complete: what has to be copied for them.
  CacheMoves end();

  /// A free block of the cache gets its first holder, who will overwrite it; what it held moves on. Between begin() and
  /// end(), as is bring_back().
  void take(int32_t block);
  /// The same, and the block gets what a host block held.
  void bring_back(const BlockCopy& copy);
  /// One holder more, who will read it.
  void share(int32_t block) { blocks_.share(block); }
  /// One holder less; what the block is known to hold can be found until it is taken.
  void release(int32_t block) { blocks_.release(block, prefixes_.contains(block)); }

  /// As PrefixCache::publish().
  void publish(PrefixCache::Chain& chain, std::string_view salt, std::span<const TokenId> tokens,
               std::span<const int32_t> blocks);

 private:
  int32_t host_place(int32_t host_block) const { return blocks_.num_blocks() + host_block; }
  std::vector<int32_t> host_blocks_above(int32_t place) const;
  void forget(int32_t place);
  bool move_out(int32_t block);

  BlockPool blocks_;
  BlockPool host_;  // held: this submission names it; the free ones in the order in which they are given up
  PrefixCache prefixes_;
  int64_t num_host_ = 0;
  CacheMoves moves_;
};

}  // namespace helios
