// The one shared commit: writes each lane's record into the active frame and advances its slot.
//
// Token limits, the context limit, EOS and stop ids are decided here and nowhere else (R17). Everything after reads the
// record: the reduction, the read-back, the coordinator. Only the active frame's records of this submission's lanes are
// written.
#pragma once

#include <cstdint>

#include "worker/replay/row_expansion.h"
#include "kernels/step/step_inputs.h"

namespace helios {

struct CommitArgs {
  StepInputs inputs;
  SlotState* slots = nullptr;                // [capacity]
  const LaneFate* lane_fates = nullptr;      // [lanes]
  const int32_t* lane_sampling = nullptr;    // [lanes] index into sampled, or -1
  const TokenId* sampled = nullptr;          // [sampling]; -1: the row had no finite logit
  int64_t* records[2] = {nullptr, nullptr};  // each [capacity, 16 + T]
  int32_t token_capacity = 0;
  int32_t max_model_len = 0;
  uint64_t* digests = nullptr;  // [2]; the active frame's gets the digest of this submission's records
};
void commit_records(const CommitArgs& args);

/// Order-sensitive digest of record words, for the agreement between ranks (R28).
uint64_t extend_digest(uint64_t digest, const int64_t* words, int count);

}  // namespace helios
