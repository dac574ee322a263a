// How a slot samples, as the kernels read it; written by admission.
#pragma once

#include <cstdint>

namespace helios {

struct SlotSampling {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;
  uint64_t seed = 0;
};

}  // namespace helios
