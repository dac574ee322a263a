// One lane's commit, the same code on every device: integers only.
#pragma once

#include "common/contract/completion_layout.h"
#include "kernels/base/host_device.h"
#include "kernels/step/commit_records.h"

namespace helios {

/// Writes an empty record: nothing emitted, not finished.
HELIOS_HD inline int64_t* begin_record(const CommitArgs& a, int32_t half, int32_t slot, uint32_t epoch) {
  const int words = record_word::kTokens + a.token_capacity;
  int64_t* record = a.records + (static_cast<int64_t>(half) * a.capacity + slot) * words;
  for (int w = 0; w < words; ++w) record[w] = 0;
  record[record_word::kAbi] = kRecordAbi;
  record[record_word::kSlot] = slot;
  record[record_word::kEpoch] = epoch;
  record[record_word::kOperation] = a.inputs.header->operation;
  record[record_word::kSequence] = a.inputs.header->sequence;
  return record;
}

/// Why generation ends with `token`, just emitted at `position`; kNone when it goes on.
HELIOS_HD inline FinishCode finish_of(const SlotState& slot, TokenId token, int32_t position, int32_t max_model_len) {
  if (token == slot.eos_id && !slot.ignore_eos) return FinishCode::kEos;
  for (int32_t i = 0; i < slot.num_stop_ids; ++i) {
    if (token == slot.stop_ids[i]) return FinishCode::kStopId;
  }
  if (slot.generated >= slot.max_tokens) return FinishCode::kTokenLimit;
  if (position + 1 >= max_model_len) return FinishCode::kContextLimit;  // prompt and output fill the context
  return FinishCode::kNone;
}

/// Emits tokens[0, count), clipped at the first that finishes. `position` is that of the first of them, the slot's KV
/// length without it. Returns how many were emitted.
HELIOS_HD inline int32_t emit_tokens(const CommitArgs& a, SlotState& slot, const TokenId* tokens, int32_t count,
                                     int32_t position, int64_t* record) {
  FinishCode finish = slot.generated >= slot.max_tokens ? FinishCode::kTokenLimit : FinishCode::kNone;
  int32_t emitted = 0;  // a budget of 0 prefills only
  while (emitted < count && emitted < a.token_capacity && finish == FinishCode::kNone) {
    const TokenId token = tokens[emitted];
    if (token < 0) {
      finish = FinishCode::kError;
      break;
    }
    record[record_word::kTokens + emitted] = token;
    slot.last_token = token;
    ++slot.generated;
    if (token == slot.eos_id && slot.ignore_eos) record[record_word::kFlags] |= kRecordFlagSilentEos;
    finish = finish_of(slot, token, position + emitted, a.max_model_len);
    ++emitted;
  }
  record[record_word::kEmitted] = emitted;
  record[record_word::kFinish] = static_cast<int64_t>(finish);
  if (finish != FinishCode::kNone) slot.finished = 1;
  return emitted;
}

HELIOS_HD inline int64_t first_bits(int32_t count) { return count < 63 ? (int64_t{1} << count) - 1 : int64_t{-1}; }

/// Returns the number of tokens emitted.
HELIOS_HD inline int32_t commit_lane(const CommitArgs& a, int32_t i) {
  const LaneInput& lane = a.inputs.lanes[i];
  int64_t* record = begin_record(a, a.lanes.halves[i], lane.slot, lane.epoch);
  if (a.lanes.fates[i] == LaneFate::kDead) return 0;  // the slot may have another tenant: leave it alone
  SlotState& slot = a.slots[lane.slot];
  int32_t emitted = 0;
  if (a.lanes.fates[i] == LaneFate::kBroken) {
    record[record_word::kFinish] = static_cast<int64_t>(FinishCode::kError);
    slot.finished = 1;
  } else {
    // A decode lane's rows are its last token and, behind it, proposals: those that are not emitted leave the cache.
    slot.position = lane.decodes ? slot.position + 1 : lane.start + lane.num_tokens;
    if (a.lanes.sampling[i] >= 0) {
      const int32_t count = a.lane_chosen ? a.lane_chosen[i] : 1;
      emitted = emit_tokens(a, slot, a.chosen + a.lanes.sampling[i], count, slot.position, record);
      if (emitted > 1) slot.position += emitted - 1;
      if (a.lane_offered) {
        record[record_word::kProposalsOffered] = a.lane_offered[i];
        record[record_word::kProposalsAccepted] = count - 1 < emitted ? count - 1 : emitted;
      }
      if (a.lane_forced) record[record_word::kForcedMask] = a.lane_forced[i] & first_bits(emitted);
    }
  }
  record[record_word::kKvLength] = slot.position;
  return emitted;
}

}  // namespace helios
