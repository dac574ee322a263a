// Element types of stored tensors, and the exact conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace helios {

enum class DType : int32_t { kFloat32, kBFloat16, kFloat16 };

constexpr size_t dtype_bytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Nearest, ties to even; NaN stays a quiet NaN.
constexpr uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
constexpr float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

constexpr float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in FP32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/// Reads element `index` of a stored tensor as FP32, exactly.
inline float load_element(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<const float*>(data)[index];
    case DType::kBFloat16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFloat16: return f16_to_float(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0f;
}

}  // namespace helios
