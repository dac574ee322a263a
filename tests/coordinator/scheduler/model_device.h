// A device for tests of the scheduler: the tokens that each block of the KV cache holds, written and read through the
// slots' block tables, and a next token that is computed from the whole prefix as the blocks have it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "coordinator/scheduler/scheduler.h"

namespace helios {

inline constexpr TokenId kNothing = -1;

/// `repeats`: three times out of four the text goes on with what stood there three tokens ago.
inline TokenId next_token(const std::vector<TokenId>& prefix, bool repeats) {
  uint64_t hash = 17;
  for (const TokenId token : prefix) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u;
  if (repeats && prefix.size() >= 3 && (hash >> 20) % 4 != 0) return prefix[prefix.size() - 3];
  return static_cast<TokenId>(hash >> 40) % 100;
}

/// Executes submissions in order, as a rank does.
class ModelDevice {
 public:
  ModelDevice(const Capabilities& core, bool repeats)
      : repeats_(repeats),
        block_size_(core.kv_block_size),
        cache_(static_cast<size_t>(core.kv_num_blocks) * core.kv_block_size, kNothing),
        host_(static_cast<size_t>(core.host_num_blocks) * core.kv_block_size, kNothing),
        slots_(core.slot_capacity) {}

  /// A submission's copies, before its step.
  void move(const CacheMoves& moves) {
    const auto copy = [&](std::vector<TokenId>& to, int32_t to_block, std::vector<TokenId>& from, int32_t from_block) {
      for (int32_t i = 0; i < block_size_; ++i) {
        TokenId& token = from.at(static_cast<size_t>(from_block) * block_size_ + i);
        EXPECT_NE(token, kNothing) << "a block that was never whole";
        to.at(static_cast<size_t>(to_block) * block_size_ + i) = token;
        token = kNothing;  // whoever still reads it there finds out
      }
    };
    for (const BlockCopy& c : moves.out) copy(host_, c.host_block, cache_, c.block);
    for (const BlockCopy& c : moves.in) copy(cache_, c.block, host_, c.host_block);
  }

  /// The blocks that a lane's slot can read or write.
  const std::vector<int32_t>& table(SlotIndex slot) const { return slots_[slot.value].table; }

  /// The tokens that each lane emits, none for a prompt chunk that does not sample.
  std::vector<std::vector<TokenId>> execute(const Decision& decision) {
    for (const PlannedAdmission& admission : decision.admissions) {
      const RequestState& request = *admission.request;
      slots_[admission.tenancy.slot.value] = {.epoch = admission.tenancy.epoch,
                                              .table = admission.cached,
                                              .left = request.spec.sampling.max_tokens - request.generated()};
    }
    std::vector<std::vector<TokenId>> emitted;
    for (const PlannedLane& lane : decision.lanes) {
      Slot& slot = slots_[lane.tenancy.slot.value];
      EXPECT_EQ(slot.epoch, lane.tenancy.epoch);
      EXPECT_EQ(static_cast<int>(slot.table.size()), lane.first_block);
      slot.table.insert(slot.table.end(), lane.new_blocks.begin(), lane.new_blocks.end());
      if (lane.role == LaneRole::kPrefill) {
        slot.length = lane.start;
        for (int i = 0; i < lane.rows; ++i) write(slot, lane.request->tokens[lane.start + i]);
      } else {
        write(slot, slot.last);
      }
      emitted.emplace_back();
      if (lane.samples) emitted.back() = sample(slot, lane.proposals);
    }
    return emitted;
  }

 private:
  struct Slot {
    Epoch epoch;
    std::vector<int32_t> table;
    int32_t length = 0;
    TokenId last = kNothing;
    int32_t left = 0;  // of max_tokens
  };

  /// Every proposal is written, and those that were not chosen lie behind the slot's length.
  std::vector<TokenId> sample(Slot& slot, const std::vector<TokenId>& proposals) {
    for (size_t i = 0; i < proposals.size(); ++i) at(slot, slot.length + static_cast<int32_t>(i)) = proposals[i];
    std::vector<TokenId> out;
    do {
      out.push_back(slot.last = next_token(prefix_of(slot), repeats_));
      if (--slot.left == 0 || out.size() > proposals.size() || proposals[out.size() - 1] != slot.last) break;
      ++slot.length;
    } while (true);
    return out;
  }
  TokenId& at(const Slot& slot, int32_t position) {
    return cache_.at(static_cast<size_t>(slot.table.at(position / block_size_)) * block_size_ + position % block_size_);
  }
  void write(Slot& slot, TokenId token) { at(slot, slot.length++) = token; }
  std::vector<TokenId> prefix_of(const Slot& slot) {
    std::vector<TokenId> prefix;
    for (int32_t p = 0; p < slot.length; ++p) prefix.push_back(at(slot, p));
    return prefix;
  }

  const bool repeats_;
  const int32_t block_size_;
  std::vector<TokenId> cache_, host_;
  std::vector<Slot> slots_;
};

}  // namespace helios
