#include "coordinator/scheduler/tiered_cache.h"

#include "common/base/check.h"

#include <utility>

namespace helios {

void TieredCache::begin(std::span<const BlockCopy> returning) {
  for (const BlockCopy& copy : returning) {
    HELIOS_CHECK(prefixes_.contains(host_place(copy.host_block)), copy.host_block);
    host_.share(copy.host_block);
  }
}

CacheMoves TieredCache::end() {
  for (const BlockCopy& copy : moves_.in) host_.release(copy.host_block, false);
  for (const BlockCopy& copy : moves_.out) {
    const int32_t place = host_place(copy.host_block);
    host_.release(copy.host_block, prefixes_.contains(place));  // or it was forgotten together with what it continues
    for (const int32_t above : host_blocks_above(place)) {
      host_.share(above);
      host_.release(above, true);
    }
  }
  return std::exchange(moves_, {});
}

/// What a known block continues in the host tier, the longest first.
std::vector<int32_t> TieredCache::host_blocks_above(int32_t place) const {
  std::vector<int32_t> above;
  for (const int32_t at : prefixes_.ancestors(place)) {
    if (at >= blocks_.num_blocks()) above.push_back(at - blocks_.num_blocks());
  }
  return above;
}

/// The prefixes through this place cannot be found any more: their blocks, free ones, are the next to be taken.
void TieredCache::forget(int32_t place) {
  for (const int32_t gone : prefixes_.forget(place)) {
    const bool on_host = gone >= blocks_.num_blocks();
    BlockPool& pool = on_host ? host_ : blocks_;
    const int32_t block = on_host ? gone - blocks_.num_blocks() : gone;
    if (on_host) --num_host_;
    if (pool.holders(block) == 0) pool.drop(block);
  }
}

/// To the host block that is given up next: none that this submission names already, and none of those that the block
/// continues. False when there is no other.
bool TieredCache::move_out(int32_t block) {
  const std::vector<int32_t> above = host_blocks_above(block);
  for (const int32_t host : above) host_.share(host);
  const int32_t host = host_.first_free();
  if (host >= 0) {
    forget(host_place(host));
    host_.take(host);
    prefixes_.move(block, host_place(host));
    ++num_host_;
    moves_.out.push_back({block, host});
  }
  for (const int32_t kept : above) host_.release(kept, true);
  return host >= 0;
}

void TieredCache::take(int32_t block) {
  const bool moved = host_.num_blocks() > 0 && prefixes_.contains(block) && move_out(block);
  if (!moved) forget(block);
  blocks_.take(block);
}

void TieredCache::bring_back(const BlockCopy& copy) {
  take(copy.block);
  prefixes_.move(host_place(copy.host_block), copy.block);
  --num_host_;
  moves_.in.push_back(copy);
}

void TieredCache::publish(PrefixCache::Chain& chain, std::string_view salt, std::span<const TokenId> tokens,
                          std::span<const int32_t> blocks) {
  for (const int32_t left : prefixes_.publish(chain, salt, tokens, blocks)) {
    host_.drop(left - blocks_.num_blocks());
    --num_host_;
  }
}

}  // namespace helios
