// How a slot samples, as the kernels read it; written by admission. Lists and masks lie in tables beside it.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"

namespace helios {

struct SlotSampling {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int32_t num_biases = 0;     // of its list of logit biases
  int32_t masked = 0;         // its mask says which ids are allowed
  int32_t num_generated = 0;  // with penalties: ids generated before this admission, waiting to be counted
  int32_t counts_due = 0;     // with penalties: its token counts are still a former tenant's

  HELIOS_HD bool penalizes() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
};

}  // namespace helios
