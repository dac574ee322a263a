// Prints an FP32 value as the shortest decimal that reads back as the equal double, as std::to_chars(double) does.
//
// A double that was a float has 24 significant bits, so what decides its digits is exact in 128 bits: half the time of
// the general algorithm, and no tables of rounded powers. Thread: any.
#pragma once

#include <cstddef>

namespace helios {

/// The most that write_float touches; the text itself is shorter.
inline constexpr size_t kFloatTextRoom = 48;

/// Writes a finite `value` into [out, out + kFloatTextRoom) and returns the text's end: always with a point or an
/// exponent, -0.0 as 0.0. Source: wire formats, 1.4.
char* write_float(char* out, float value);

}  // namespace helios
