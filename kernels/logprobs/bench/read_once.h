// The floor that the reduction is compared with: every logit read once, nothing computed but a maximum.
#pragma once

#include <cstdint>

namespace helios {

float read_once(const float* values, int64_t count);

}  // namespace helios
