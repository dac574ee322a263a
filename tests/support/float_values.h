// The values that are no numbers of the ordinary kind.
#pragma once

#include <limits>

namespace helios::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace helios::testing
