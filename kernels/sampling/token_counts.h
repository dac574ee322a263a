// How often each slot generated each id, for its penalties: [capacity, this rank's columns].
//
// An admission with penalties clears its slot's counts, which are a former tenant's, and counts what was generated
// before a readmission. From then on the record counts: a token is counted when the commit emitted it. Slots without
// penalties cost nothing, and on the CPU not even memory.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "kernels/base/launcher.h"
#include "kernels/step/slot_sampling.h"

namespace helios {

struct BeginTokenCountsArgs {
  SlotSampling* sampling = nullptr;  // [capacity]; counts_due of those handled becomes 0
  int32_t capacity = 0;
  const TokenId* generated = nullptr;  // [capacity, generated_stride] every id as often as it was generated
  int64_t generated_stride = 0;
  int32_t* token_counts = nullptr;  // [capacity, counts_stride] in and out
  int64_t counts_stride = 0;
  int32_t first_id = 0;  // of the columns
  int32_t width = 0;
};

void begin_token_counts(const BeginTokenCountsArgs& args, const Launcher& on);

struct CountTokensArgs {
  const SlotSampling* sampling = nullptr;
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const int32_t* row_slots = nullptr;    // [max_rows]
  const uint32_t* row_epochs = nullptr;  // [max_rows]
  const int32_t* row_halves = nullptr;   // [max_rows] which half of the records takes the row's
  const int64_t* records = nullptr;      // [2, capacity, 16 + T]
  int32_t capacity = 0;
  int32_t token_capacity = 0;  // T
  int32_t* token_counts = nullptr;
  int64_t counts_stride = 0;
  int32_t first_id = 0;
  int32_t width = 0;
};

/// Counts what the commit emitted. A row counts only if slot and epoch match the record.
void count_tokens(const CountTokensArgs& args, const Launcher& on);

}  // namespace helios
