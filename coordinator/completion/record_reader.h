// Reads one lane's completion record: who it belongs to, and the prefix of tokens that it emitted.
//
// Records come from a device over a socket: every word is checked against what the lane was submitted with. Thread:
// engine.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/contract/completion_layout.h"

namespace helios {

/// What a lane was submitted with, and what its core allows.
struct ExpectedRecord {
  SlotIndex slot;
  Epoch epoch;
  Sequence sequence;
  int32_t token_capacity = 0;  // T
  int64_t vocab_size = 0;
};

/// Borrowed from the completion.
struct LaneRecord {
  std::span<const int64_t> tokens;  // the emitted prefix, each in the vocabulary
  FinishCode finish = FinishCode::kNone;
  int64_t forced_mask = 0;
  bool silent_eos = false;
  int64_t kv_length = 0;
  int64_t offered = 0, accepted = 0;  // proposals; 0 <= accepted <= offered < T

  bool forced(int i) const { return i < 64 && (forced_mask >> i & 1) != 0; }
};

/// `words`  [16 + T] int64, record ABI 6.
/// Errors: kTruncatedFrame (length), kMismatch (ABI, slot, epoch or sequence of another tenancy or submission),
/// kInternal (a count, code or token out of range). Each names slot, found and expected.
Result<LaneRecord> read_record(std::span<const int64_t> words, const ExpectedRecord& expected);

}  // namespace helios
