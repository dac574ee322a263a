// One requested position of a step: which row to reduce, what to report, and where to write it.
#pragma once

#include <cstdint>

#include "common/base/ids.h"

namespace helios {

struct LogprobPosition {
  int64_t row = 0;                    // of the logits
  TokenId chosen = -1;                // the emitted token
  int32_t num_selected = 0;           // 0: natural alternatives
  const int32_t* selected = nullptr;  // [num_selected] ids, caller's order
  int32_t* packed = nullptr;          // [2 + 2 * max(num_selected, K)] out
};

}  // namespace helios
