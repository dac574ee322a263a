// The list of positions that a step reports, made from the records that the commit has just written.
//
// Part of the token writer, not of the reduction: the reduction's four (or six) launches all read this list. A row
// counts when its slot asks, slot and epoch are the record's, its token index lies in the emitted prefix, and that
// token was not forced (R4, R15); the commit's emitted count alone decides, so a rejected, exhausted or unoffered row
// of a verification falls out here and its logits are never read (R16). A second row of the same token is a duplicate:
// the first one was committed. Rows keep their order, which is the same on every rank. One block; reads a few words a
// row.
#pragma once

#include <cstdint>

#include "common/contract/completion_layout.h"
#include "kernels/base/host_device.h"
#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/logprobs/logprob_position.h"

namespace helios {

struct CollectPositionsArgs {
  const int32_t* num_rows = nullptr;  // of this step, at most max_rows
  int64_t max_rows = 0;
  const int32_t* row_slots = nullptr;        // [max_rows] slot of each logit row; outside [0, capacity): no row
  const uint32_t* row_epochs = nullptr;      // [max_rows]
  const int32_t* row_tokens = nullptr;       // [max_rows] index of the row's token within its record; null: 0 for all
  const int32_t* row_halves = nullptr;       // [max_rows] half of the outputs that takes the row's, 0 or 1
  const int64_t* records = nullptr;          // [2, capacity, 16 + T]: the frames, or a mixed graph's roles
  int32_t* packed = nullptr;                 // [2, capacity, T, position_words]
  const int32_t* requested = nullptr;        // [capacity]
  const int32_t* token_ids = nullptr;        // [capacity, 128], or null: a core without the id inputs
  const int32_t* token_id_counts = nullptr;  // [capacity], or null
  int slot_capacity = 0;
  int token_capacity = 0;  // T
  int position_words = 0;
  int32_t* claims = nullptr;             // [capacity, T] scratch; all zero before and after
  LogprobPosition* positions = nullptr;  // [max_rows] out
  int32_t* num_positions = nullptr;      // out

  StepCounters* counters = nullptr;  // adds positions, words sent, and the logits read but for the candidates' launch
  int32_t shard_width = 0;           // logits that the statistics read of a position
  int32_t words_a_position = 0;      // sent by this rank
  int32_t num_launches = 0;          // of the reduction that follows
};

void collect_positions(const CollectPositionsArgs& args, const Launcher& on);

/// The record of a row whose slot exists.
HELIOS_HD inline const int64_t* record_of(const CollectPositionsArgs& a, int64_t row) {
  const int64_t slot = int64_t{a.row_halves[row]} * a.slot_capacity + a.row_slots[row];
  return a.records + slot * record_words(a.token_capacity);
}

/// Index of the record token that `row` reports, or -1 when it reports none; claims are not looked at.
HELIOS_HD inline int reported_token(const CollectPositionsArgs& a, int64_t row) {
  const int32_t slot = a.row_slots[row];
  if (slot < 0 || slot >= a.slot_capacity || a.requested[slot] == 0) return -1;
  const int64_t* record = record_of(a, row);
  if (record[record_word::kAbi] != kRecordAbi || record[record_word::kSlot] != slot ||
      record[record_word::kEpoch] != static_cast<int64_t>(a.row_epochs[row])) {
    return -1;
  }
  const int32_t token = a.row_tokens ? a.row_tokens[row] : 0;
  if (token < 0 || token >= a.token_capacity || token >= record[record_word::kEmitted]) return -1;
  const bool forced = token < 64 && (static_cast<uint64_t>(record[record_word::kForcedMask]) >> token & 1) != 0;
  return forced ? -1 : token;
}

/// What the reduction needs to know of `row`, whose token index is `token`.
HELIOS_HD inline LogprobPosition make_position(const CollectPositionsArgs& a, int64_t row, int token) {
  const int64_t slot = a.row_slots[row], row_of_half = a.row_halves[row] * int64_t{a.slot_capacity} + slot;
  const int most_selected =
      a.position_words / kPairWords - 1 < kMaxSelectedIds ? a.position_words / kPairWords - 1 : kMaxSelectedIds;
  LogprobPosition position;
  position.row = row;
  position.chosen = static_cast<TokenId>(record_of(a, row)[record_word::kTokens + token]);
  if (a.token_ids && a.token_id_counts) {
    const int32_t count = a.token_id_counts[slot];
    position.num_selected = count < 0 ? 0 : count < most_selected ? count : most_selected;
    position.selected = a.token_ids + slot * kMaxSelectedIds;
  }
  position.packed = a.packed + (row_of_half * a.token_capacity + token) * a.position_words;
  return position;
}

}  // namespace helios
