#include "worker/replay/commit_records.h"

#include <algorithm>

#include "common/contract/completion_layout.h"

namespace helios {
namespace {

/// Writes an empty record: nothing emitted, not finished.
int64_t* begin_record(const CommitArgs& args, int32_t slot, uint32_t epoch) {
  const int words = record_words(args.token_capacity);
  int64_t* record = args.records[args.inputs.header->frame] + int64_t{slot} * words;
  std::fill_n(record, words, 0);
  record[record_word::kAbi] = kRecordAbi;
  record[record_word::kSlot] = slot;
  record[record_word::kEpoch] = epoch;
  record[record_word::kOperation] = args.inputs.header->operation;
  record[record_word::kSequence] = args.inputs.header->sequence;
  return record;
}

/// Why generation ends with `token`, just emitted; kNone when it goes on.
FinishCode finish_of(const SlotState& slot, TokenId token, int32_t max_model_len) {
  if (token == slot.eos_id && !slot.ignore_eos) return FinishCode::kEos;
  if (std::find(slot.stop_ids, slot.stop_ids + slot.num_stop_ids, token) != slot.stop_ids + slot.num_stop_ids) {
    return FinishCode::kStopId;
  }
  if (slot.generated >= slot.max_tokens) return FinishCode::kTokenLimit;
  if (slot.position + 1 >= max_model_len) return FinishCode::kContextLimit;  // prompt and output fill the context
  return FinishCode::kNone;
}

void commit_token(const CommitArgs& args, SlotState& slot, TokenId token, int64_t* record) {
  if (token < 0) {
    record[record_word::kFinish] = static_cast<int64_t>(FinishCode::kError);
    slot.finished = 1;
    return;
  }
  slot.last_token = token;
  ++slot.generated;
  record[record_word::kEmitted] = 1;
  record[record_word::kTokens] = token;
  if (token == slot.eos_id && slot.ignore_eos) record[record_word::kFlags] |= kRecordFlagSilentEos;
  const FinishCode finish = finish_of(slot, token, args.max_model_len);
  record[record_word::kFinish] = static_cast<int64_t>(finish);
  if (finish != FinishCode::kNone) slot.finished = 1;
}

void commit_lane(const CommitArgs& args, int32_t i, int64_t* record) {
  const LaneInput& lane = args.inputs.lanes[i];
  if (args.lane_fates[i] == LaneFate::kDead) return;  // the slot may have another tenant: leave it alone
  SlotState& slot = args.slots[lane.slot];
  if (args.lane_fates[i] == LaneFate::kBroken) {
    record[record_word::kFinish] = static_cast<int64_t>(FinishCode::kError);
    slot.finished = 1;
  } else {
    slot.position = lane.decodes ? slot.position + 1 : lane.start + lane.num_tokens;
    if (args.lane_sampling[i] >= 0) commit_token(args, slot, args.sampled[args.lane_sampling[i]], record);
  }
  record[record_word::kKvLength] = slot.position;
}

}  // namespace

uint64_t extend_digest(uint64_t digest, const int64_t* words, int count) {
  for (int i = 0; i < count; ++i) {
    digest ^= static_cast<uint64_t>(words[i]);
    digest *= 0x9e3779b97f4a7c15u;  // odd, so no word is lost
    digest ^= digest >> 29;
  }
  return digest;
}

void commit_records(const CommitArgs& args) {
  const StepHeader& header = *args.inputs.header;
  const int words = record_words(args.token_capacity);
  uint64_t digest = 0x243f6a8885a308d3u;
  for (int32_t i = 0; i < header.num_lanes; ++i) {
    int64_t* record = begin_record(args, args.inputs.lanes[i].slot, args.inputs.lanes[i].epoch);
    commit_lane(args, i, record);
    digest = extend_digest(digest, record, words);
  }
  for (int32_t i = 0; header.num_lanes == 0 && i < header.num_admissions; ++i) {  // R19: records only
    const AdmissionInput& a = args.inputs.admissions[i];
    digest = extend_digest(digest, begin_record(args, a.slot, a.state.epoch), words);
  }
  args.digests[header.frame] = digest;
}

}  // namespace helios
