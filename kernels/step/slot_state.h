// What a slot is on the device: written by admission, advanced by the commit alone, read by row expansion and sampling.
//
// Because it lives here, the host plans the next step before it knows this step's tokens; the epoch tells late work
// from current.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/contract/sampling_params.h"

namespace helios {

struct SlotState {
  uint32_t epoch = 0;       // 0: never owned
  int32_t position = 0;     // positions in the KV cache
  TokenId last_token = -1;  // sampled and not yet in the cache; -1: none yet
  int32_t generated = 0;    // tokens emitted
  int32_t max_tokens = 0;
  int32_t min_tokens = 0;
  TokenId eos_id = -1;
  int32_t ignore_eos = 0;
  int32_t finished = 0;  // no lane of this slot does anything until the next admission
  int32_t num_stop_ids = 0;
  TokenId stop_ids[kMaxStopIds] = {};
};

}  // namespace helios
