// A reported FP32 logprob and its token id as one integer: the larger key is the larger logprob, and among equal
// logprobs the smaller id. +0 and -0 tie. NaN has no place in the order: callers keep it out.
#pragma once

#include <bit>
#include <cstdint>

#include "common/base/ids.h"
#include "kernels/base/host_device.h"

namespace helios {

/// 0 is no key: an id is at most 2^31 - 1, so its complement is never 0.
using SortKey = uint64_t;
inline constexpr SortKey kNoKey = 0;

/// Unsigned order equals the floats' order. -inf .. +inf maps to 0x007fffff .. 0xff800000.
HELIOS_HD inline uint32_t ordered_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes +0
  return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}
HELIOS_HD inline float from_ordered_bits(uint32_t ordered) {
  return std::bit_cast<float>((ordered & 0x80000000u) ? (ordered & 0x7fffffffu) : ~ordered);
}

HELIOS_HD inline SortKey make_key(float value, TokenId id) {
  return (static_cast<uint64_t>(ordered_bits(value)) << 32) | static_cast<uint32_t>(~id);
}
HELIOS_HD inline float key_value(SortKey key) { return from_ordered_bits(static_cast<uint32_t>(key >> 32)); }
HELIOS_HD inline TokenId key_id(SortKey key) { return static_cast<TokenId>(~static_cast<uint32_t>(key)); }

}  // namespace helios
