#include "coordinator/scheduler/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/base/check.h"

namespace helios {

PrefixCache::PrefixCache(int32_t num_blocks, int32_t block_size, int32_t num_host_blocks, uint64_t hash_mask)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      hash_mask_(hash_mask),
      nodes_(static_cast<size_t>(num_blocks) + num_host_blocks),
      tokens_(nodes_.size() * block_size, -1) {}

std::span<const TokenId> PrefixCache::tokens_of(int32_t block) const {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
}

uint64_t PrefixCache::hash_of(uint64_t parent_serial, std::string_view salt, std::span<const TokenId> tokens) const {
  uint64_t hash = parent_serial != 0 ? parent_serial : std::hash<std::string_view>()(salt);
  for (const TokenId token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash & hash_mask_;
}

int32_t PrefixCache::find_child(uint64_t parent_serial, std::string_view salt, std::span<const TokenId> tokens) const {
  const auto [begin, end] = by_hash_.equal_range(hash_of(parent_serial, salt, tokens));
  for (auto it = begin; it != end; ++it) {
    const Node& node = nodes_[it->second];
    if (node.parent_serial != parent_serial || (parent_serial == 0 && node.salt != salt)) continue;
    if (std::ranges::equal(tokens_of(it->second), tokens)) return it->second;
  }
  return -1;
}

std::vector<int32_t> PrefixCache::find(std::string_view salt, std::span<const TokenId> tokens) const {
  std::vector<int32_t> found;
  uint64_t parent = 0;
  for (; tokens.size() >= static_cast<size_t>(block_size_); tokens = tokens.subspan(block_size_)) {
    const int32_t block = find_child(parent, salt, tokens.first(block_size_));
    if (block < 0) break;
    found.push_back(block);
    parent = nodes_[block].serial;
  }
  return found;
}

PrefixCache::Chain PrefixCache::chain_of(std::span<const int32_t> found) const {
  if (found.empty()) return {};
  return {static_cast<int32_t>(found.size()), found.back(), nodes_[found.back()].serial};
}

std::vector<int32_t> PrefixCache::publish(Chain& chain, std::string_view salt, std::span<const TokenId> tokens,
                                          std::span<const int32_t> blocks) {
  std::vector<int32_t> left;
  const auto whole = static_cast<int32_t>(tokens.size()) / block_size_;
  if (chain.length >= whole) return left;
  if (chain.length > 0 && nodes_[chain.block].serial != chain.serial) chain = {};  // forgotten: from the start
  while (chain.length < whole) {
    const auto mine = tokens.subspan(static_cast<size_t>(chain.length) * block_size_, block_size_);
    int32_t block = find_child(chain.serial, salt, mine);
    if (block < 0) {
      block = blocks[chain.length];
      insert(chain, salt, mine, block);
    } else if (block >= num_blocks_) {
      left.push_back(block);
      move(block, blocks[chain.length]);
      block = blocks[chain.length];
    }
    chain = {chain.length + 1, block, nodes_[block].serial};
  }
  return left;
}

void PrefixCache::move(int32_t from, int32_t to) {
  HELIOS_CHECK(contains(from) && !contains(to), from, to);
  nodes_[to] = std::exchange(nodes_[from], {});
  const Node& node = nodes_[to];
  std::ranges::copy(tokens_of(from), tokens_.begin() + static_cast<ptrdiff_t>(to) * block_size_);
  const auto [begin, end] = by_hash_.equal_range(node.hash);
  std::find_if(begin, end, [&](const auto& entry) { return entry.second == from; })->second = to;
  if (node.prev_sibling >= 0) {
    nodes_[node.prev_sibling].next_sibling = to;
  } else if (node.parent >= 0) {
    nodes_[node.parent].first_child = to;
  }
  if (node.next_sibling >= 0) nodes_[node.next_sibling].prev_sibling = to;
  for (int32_t child = node.first_child; child >= 0; child = nodes_[child].next_sibling) nodes_[child].parent = to;
}

std::vector<int32_t> PrefixCache::ancestors(int32_t block) const {
  std::vector<int32_t> above;
  for (int32_t at = nodes_[block].parent; at >= 0; at = nodes_[at].parent) above.push_back(at);
  return above;
}

void PrefixCache::insert(const Chain& parent, std::string_view salt, std::span<const TokenId> tokens, int32_t block) {
  Node& node = nodes_[block];
  HELIOS_CHECK(node.serial == 0, block);  // a block has one prefix, and that one is not in the tree
  node.serial = ++last_serial_;
  node.hash = hash_of(parent.serial, salt, tokens);
  node.parent_serial = parent.serial;
  node.parent = parent.block;
  if (parent.length == 0) {
    node.salt = salt;
  } else {
    Node& above = nodes_[parent.block];
    node.next_sibling = above.first_child;
    if (above.first_child >= 0) nodes_[above.first_child].prev_sibling = block;
    above.first_child = block;
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  by_hash_.emplace(node.hash, block);
}

void PrefixCache::detach(int32_t block) {
  Node& node = nodes_[block];
  if (node.prev_sibling >= 0) {
    nodes_[node.prev_sibling].next_sibling = node.next_sibling;
  } else if (node.parent >= 0) {
    nodes_[node.parent].first_child = node.next_sibling;
  }
  if (node.next_sibling >= 0) nodes_[node.next_sibling].prev_sibling = node.prev_sibling;
}

void PrefixCache::erase(int32_t block) {
  const auto [begin, end] = by_hash_.equal_range(nodes_[block].hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == block; }));
  nodes_[block] = Node{};
}

std::vector<int32_t> PrefixCache::forget(int32_t block) {
  std::vector<int32_t> forgotten;
  if (!contains(block)) return forgotten;
  detach(block);
  forgotten.push_back(block);
  for (size_t i = 0; i < forgotten.size(); ++i) {
    for (int32_t child = nodes_[forgotten[i]].first_child; child >= 0; child = nodes_[child].next_sibling) {
      forgotten.push_back(child);
    }
  }
  for (const int32_t gone : forgotten) erase(gone);
  return forgotten;
}

}  // namespace helios
