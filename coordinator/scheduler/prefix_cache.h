// Token prefixes to KV cache blocks: which blocks hold the keys and values of these tokens at these positions.
//
// Blocks are places: [0, num_blocks) are the KV cache's, those behind them the host tier's.
//
// A full block's contents are a function of all tokens up to its end (and of the model; a cache lives as long as a
// loaded core). So blocks form a tree: a node is a block, found under its parent by its own tokens; the first block of
// a prefix is found under the request's cache salt. A hash only finds candidates: tokens, parent and salt are compared,
// since another request's keys and values would be a wrong answer and a leak.
//
// Every node's parent is a node: what is forgotten takes its descendants along, who could not be found any more.
// Thread: engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace helios {

class PrefixCache {
 public:
  /// How far a request's prefix is in the tree. The last node may have been forgotten since.
  struct Chain {
    int32_t length = 0;   // blocks
    int32_t block = -1;   // the last one's node
    uint64_t serial = 0;  // which node that was; none has 0, none comes twice
  };

  /// `hash_mask`: which bits of a hash count; tests take some away to meet collisions.
  PrefixCache(int32_t num_blocks, int32_t block_size, int32_t num_host_blocks = 0, uint64_t hash_mask = ~uint64_t{0});

  /// The places of the longest known prefix of `tokens`, whole blocks only, in order of position.
  std::vector<int32_t> find(std::string_view salt, std::span<const TokenId> tokens) const;

  /// The chain of a request that starts with these blocks, which hold a known prefix.
  Chain chain_of(std::span<const int32_t> found) const;

  /// Makes the whole blocks of `tokens`, whose keys and values are in the cache, known: blocks[i] holds positions
  /// [i*size, (i+1)*size). Where the tree has the same prefix in another block of the KV cache already, that one stays;
  /// where it has it in the host tier, it moves. Returns the places of the tier that are left so.
  std::vector<int32_t> publish(Chain& chain, std::string_view salt, std::span<const TokenId> tokens,
                               std::span<const int32_t> blocks);

  /// A known block's contents are at `to` from now on, which holds nothing known.
  void move(int32_t from, int32_t to);

  /// The places of the prefixes that a known block continues, the longest first.
  std::vector<int32_t> ancestors(int32_t block) const;

  /// Takes the block's node out and all below it; returns their blocks, none when it is no node.
  std::vector<int32_t> forget(int32_t block);

  bool contains(int32_t block) const { return nodes_[block].serial != 0; }
  int64_t size() const { return static_cast<int64_t>(by_hash_.size()); }

 private:
  struct Node {
    uint64_t serial = 0;  // 0: this block is no node
    uint64_t hash = 0;
    uint64_t parent_serial = 0;  // 0: a first block
    int32_t parent = -1;
    int32_t first_child = -1, next_sibling = -1, prev_sibling = -1;
    std::string salt;  // of a first block
  };

  uint64_t hash_of(uint64_t parent_serial, std::string_view salt, std::span<const TokenId> tokens) const;
  int32_t find_child(uint64_t parent_serial, std::string_view salt, std::span<const TokenId> tokens) const;
  void insert(const Chain& parent, std::string_view salt, std::span<const TokenId> tokens, int32_t block);
  void detach(int32_t block);
  void erase(int32_t block);
  std::span<const TokenId> tokens_of(int32_t block) const;

  const int32_t num_blocks_;  // of the KV cache
  const int32_t block_size_;
  const uint64_t hash_mask_;
  uint64_t last_serial_ = 0;
  std::vector<Node> nodes_;      // by place
  std::vector<TokenId> tokens_;  // [places, block_size]: of blocks that are nodes
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
};

}  // namespace helios
