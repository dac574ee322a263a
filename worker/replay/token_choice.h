// Chooses the step's tokens: the sampler over raw logits, and over a filtered copy for rows that may not stop yet.
//
// A row under min_tokens may not sample EOS or stop ids. Its shard is copied to filtering scratch, a few rows at a
// time, and masked there: raw logits are never written (R18). Which rows those are follows from slot states, so every
// rank makes the same calls. Thread: the rank's compute stream.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/vocab_range.h"
#include "worker/backend/backend.h"
#include "worker/replay/row_expansion.h"
#include "worker/replay/sampler.h"

namespace helios {

class TokenChoice {
 public:
  /// `logits` [capacity, logits_stride], this rank's `shard`. Borrows all. Throws DeviceError.
  TokenChoice(const RowExpansion& rows, const float* logits, int64_t logits_stride, Range shard, int slot_capacity,
              Sampler& sampler, Backend& backend);

  void run(const Launcher& on);

  const TokenId* tokens() const { return tokens_.data(); }  // [sampling]
  int64_t workspace_bytes() const { return static_cast<int64_t>(scratch_.bytes()); }

 private:
  static constexpr int kFilteredRows = 4;

  void run_filtered(const int32_t* rows, int count, const Launcher& on);
  void mask_stops(const SlotState& slot, float* row) const;

  const RowExpansion& rows_;
  const float* logits_;
  const int64_t stride_;
  const Range shard_;
  Sampler& sampler_;
  Memory scratch_;                   // [kFilteredRows, logits_stride]
  std::vector<int32_t> free_slots_;  // [capacity] row slots with -1 for filtered rows
  std::vector<TokenId> tokens_;      // [capacity]
};

}  // namespace helios
