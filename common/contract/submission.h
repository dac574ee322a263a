// One batch: the same bytes for every rank. What a rank needs to fill its graph inputs, and nothing of requests or
// text.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/operation.h"
#include "common/contract/sampling_params.h"

namespace helios {

/// Hands a slot to a new tenant: resets its state on the device before the graph runs.
struct SlotAdmission {
  SlotIndex slot;
  Epoch epoch;
  SamplingParams sampling;
  int32_t generated = 0;  // tokens emitted before a readmission: they count against max_tokens and min_tokens
  friend bool operator==(const SlotAdmission&, const SlotAdmission&) = default;
};

/// Writes block_table[slot][first + i] = blocks[i]. KV cache blocks hold kv_block_size positions each.
struct BlockTableUpdate {
  SlotIndex slot;
  int32_t first = 0;
  std::vector<int32_t> blocks;
  friend bool operator==(const BlockTableUpdate&, const BlockTableUpdate&) = default;
};

enum class LaneRole : int32_t { kPrefill = 0, kDecode = 1 };

/// A slot's part in this submission.
///
/// Prefill: `tokens` are the prompt's ids at absolute positions [start, start + tokens.size()); the last chunk of the
/// prompt has samples = true and emits the first generated token. Decode: tokens is empty, start is -1, samples is
/// true; the device knows the slot's last token and position. A decode lane whose slot has finished or changed epoch
/// emits nothing. In a verify step, whose lanes are all decode lanes, `tokens` are 0 to T - 1 proposals for the tokens
/// behind the next ones: each row samples the target, and tokens come out up to the first that is not what the proposal
/// said, which is among them.
struct Lane {
  SlotIndex slot;
  Epoch epoch;
  LaneRole role = LaneRole::kDecode;
  int32_t start = -1;
  bool samples = true;
  std::vector<TokenId> tokens;
  // [ceil(V / 32)], bit i % 32 of word i / 32: id i may be sampled. In every lane that samples of a slot whose
  // admission announced masks, empty in all others. The whole vocabulary's words, for every rank gets the same bytes.
  std::vector<uint32_t> mask;
  friend bool operator==(const Lane&, const Lane&) = default;
};

struct SelectedIds {
  SlotIndex slot;
  std::vector<TokenId> ids;  // 1..128 distinct ids, caller's order
  friend bool operator==(const SelectedIds&, const SelectedIds&) = default;
};

/// One block's keys and values of all layers, between the KV cache and the host tier behind it.
struct BlockCopy {
  int32_t block = 0;       // of the KV cache
  int32_t host_block = 0;  // of the host tier
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

inline constexpr TokenId kNoTarget = -1;  // a prompt position behind which no prompt token stands

struct Submission {
  uint32_t incarnation = 0;  // of the rank set; anything from an earlier life is dropped
  Sequence sequence;
  FrameIndex frame;
  Operation operation = Operation::kInvalid;
  // The host tier's part, before anything else: first what the cache gives away (block to host_block), then what comes
  // back (host_block to block). A block of the cache is named here only while no lane of a submission that is not yet
  // decoded reads or writes it, so the copies may run beside those; this submission's own step waits for them.
  std::vector<BlockCopy> blocks_out;      // no block and no host block twice
  std::vector<BlockCopy> blocks_in;       // no block twice; host blocks that were written by an earlier submission
  std::vector<SlotAdmission> admissions;  // applied first
  std::vector<BlockTableUpdate> block_updates;  // applied second
  std::vector<Lane> lanes;                      // at most one a slot
  // R13: whole vectors on every submission, zero for slots that do not ask; ids only as prefixes of selecting slots.
  std::vector<int32_t> logprob_requested;        // [capacity]
  std::vector<int32_t> logprob_token_id_counts;  // [capacity]
  std::vector<SelectedIds> logprob_token_ids;
  // R38: one target for each prompt token of the lanes, in lane order: the prompt token behind it, or kNoTarget at the
  // prompt's end and inside image spans. Whole in a scored prefill, whose lanes are all prefill lanes; empty elsewhere.
  std::vector<TokenId> prompt_target_tokens;
  friend bool operator==(const Submission&, const Submission&) = default;
};

}  // namespace helios
