// Element types of stored tensors, and the exact conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace helios {

enum class DType : int32_t { kFloat32, kBFloat16, kFloat16, kInt8, kFloat8E4M3 };

constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 4;
    case DType::kBFloat16:
    case DType::kFloat16: return 2;
    case DType::kInt8:
    case DType::kFloat8E4M3: return 1;
  }
  return 0;
}
/// The types of quantised weights, which mean something with their scales only.
constexpr bool is_eight_bit(DType dtype) { return dtype_bytes(dtype) == 1; }

constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Nearest, ties to even; NaN stays a quiet NaN.
constexpr uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
constexpr float round_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

/// Nearest, ties to even; what is 65520 or more becomes infinite; NaN stays a quiet NaN.
constexpr uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which is what FP32 has left beside a half
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
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

constexpr float round_to_f16(float value) { return f16_to_float(float_to_f16(value)); }

/// The nearest value of a floating type as FP32: what inputs of a matrix product are rounded to. kFloat32: as it is.
constexpr float round_to_dtype(DType dtype, float value) {
  if (dtype == DType::kBFloat16) return round_to_bf16(value);
  return dtype == DType::kFloat16 ? round_to_f16(value) : value;
}

/// OCP E4M3: bias 7, subnormals, no infinity; 0x7f and 0xff are NaN.
constexpr bool e4m3_is_nan(uint8_t bits) { return (bits & 0x7fu) == 0x7fu; }
/// The F16 value of the same digits is 2^-8 times as large, subnormals too: F16's bias is 15.
constexpr uint16_t e4m3_to_f16_over_256(uint8_t bits) {
  return static_cast<uint16_t>(((bits & 0x80u) << 8) | ((bits & 0x7fu) << 7));
}
constexpr float e4m3_to_float(uint8_t bits) {
  if (e4m3_is_nan(bits)) return std::bit_cast<float>(0x7fc00000u);
  return f16_to_float(e4m3_to_f16_over_256(bits)) * 256.0f;
}

/// Reads element `index` of a stored tensor as FP32, exactly. What is quantised comes without its scale.
inline float load_element(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<const float*>(data)[index];
    case DType::kBFloat16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFloat16: return f16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kInt8: return static_cast<const int8_t*>(data)[index];
    case DType::kFloat8E4M3: return e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
  }
  return 0.0f;
}

}  // namespace helios
