// Weights of packed panels to FP32 vectors, exactly, once for each Highway target: in registers on the way to the
// products, or a panel at a time.
#include <hwy/highway.h>

#include "kernels/transformer/matmul_panels.h"

#if defined(HELIOS_MATMUL_WIDEN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_MATMUL_WIDEN_INL_H
#undef HELIOS_MATMUL_WIDEN_INL_H
#else
#define HELIOS_MATMUL_WIDEN_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using Vec = hn::Vec<F32>;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
constexpr int64_t kWidth = 2 * kLanes;  // columns of a panel

/// The even (kOdd = false) or odd element of each pair of BF16 weights, widened. The mask is read from memory each
/// time: 12 accumulators, two weights and a broadcast leave no register for it on AVX2.
template <bool kOdd>
HWY_INLINE Vec Widen(hn::Vec<U32> pairs, const uint32_t* HWY_RESTRICT mask) {
  const U32 du;
  const F32 d;
  if (!kOdd) return hn::BitCast(d, hn::And(pairs, hn::Load(du, mask)));
  return hn::BitCast(d, hn::ShiftLeft<16>(pairs));
}

/// One vector of 8-bit weights. E4M3 comes 2^-120 times as large, as the FP32 of the same digits, subnormals too: x
/// meets it lift_of() times as large, and the scale makes up for the rest. Powers of two change no rounding here:
/// between 2^63 and 2^-61 nothing of x is lost. Processors that are slow with subnormals meet one in some 1e4 of usual
/// weights; a thread that flushes them widens and lifts a panel at a time.
template <DType kStored>
HWY_INLINE Vec WidenBytes(const int8_t* HWY_RESTRICT bytes) {
  const F32 d;
  const auto loaded = hn::Load(hn::Rebind<int8_t, F32>(), bytes);
  if constexpr (kStored == DType::kInt8) {
    return hn::ConvertTo(d, hn::PromoteTo(hn::Rebind<int32_t, F32>(), loaded));
  } else {
    const hn::Rebind<int32_t, F32> d32;
    const auto shifted = hn::ShiftLeft<20>(hn::PromoteTo(d32, loaded));  // five times the sign, then the magnitude
    return hn::BitCast(d, hn::And(shifted, hn::Set(d32, static_cast<int32_t>(0x87f00000u))));
  }
}

/// One vector of F16 weights. Exact for every code, whatever the instruction set.
HWY_INLINE Vec WidenHalves(const uint16_t* HWY_RESTRICT halves) {
  const F32 d;
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
  const hn::Rebind<hwy::float16_t, F32> d16;
  return hn::PromoteTo(d, hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(halves)));
#else  // Highway's own takes infinity and NaN for numbers here
  const hn::Rebind<uint16_t, F32> d16;
  const U32 du;
  const auto bits = hn::PromoteTo(du, hn::Load(d16, halves));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu)), sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto number = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));  // subnormals too
  const auto none = hn::BitCast(d, hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7f800000u)));
  const auto is_number = hn::Lt(number, hn::Set(d, 65536.0f));
  return hn::Or(hn::IfThenElse(is_number, number, none), hn::BitCast(d, sign));
#endif
}

/// One vector of weights: of a storage row's k_per_row() k the kSub-th, of the panel's two vectors the `half`-th.
template <DType kStored, int kSub>
HWY_INLINE Vec LoadWeights(const uint32_t* HWY_RESTRICT row, int64_t half, const uint32_t* HWY_RESTRICT mask) {
  const U32 du;
  if constexpr (kStored == DType::kFloat32) {
    return hn::BitCast(F32(), hn::Load(du, row + half * kLanes));
  } else if constexpr (kStored == DType::kBFloat16) {
    return Widen<kSub == 1>(hn::Load(du, row + half * kLanes), mask);
  } else if constexpr (kStored == DType::kFloat16) {
    return WidenHalves(reinterpret_cast<const uint16_t*>(row) + kSub * kWidth + half * kLanes);
  } else {
    return WidenBytes<kStored>(reinterpret_cast<const int8_t*>(row) + kSub * kWidth + half * kLanes);
  }
}

/// BF16 weights of one panel, widened to the FP32 panel layout: [len][kWidth].
void WidenPairs(const uint32_t* HWY_RESTRICT words, int64_t len, const uint32_t* mask, float* HWY_RESTRICT to) {
  const F32 d;
  const U32 du;
  for (; len > 0; len -= 2, words += kWidth, to += 2 * kWidth) {
    const auto low = hn::Load(du, words), high = hn::Load(du, words + kLanes);
    hn::Store(Widen<false>(low, mask), d, to);
    hn::Store(Widen<false>(high, mask), d, to + kLanes);
    if (len == 1) break;
    hn::Store(Widen<true>(low, mask), d, to + kWidth);
    hn::Store(Widen<true>(high, mask), d, to + kWidth + kLanes);
  }
}

/// The same for bytes, which lie as [len][kWidth] already.
template <DType kStored>
void WidenBytePanel(const uint32_t* HWY_RESTRICT words, int64_t len, float* HWY_RESTRICT to) {
  const auto* bytes = reinterpret_cast<const int8_t*>(words);
  for (int64_t i = 0; i < len * kWidth; i += kLanes) hn::Store(WidenBytes<kStored>(bytes + i), F32(), to + i);
}

/// The same for E4M3, lifted, so that x meets it as it is: no number is subnormal on the way.
void WidenAndLiftE4m3Panel(const uint32_t* HWY_RESTRICT words, int64_t len, float* HWY_RESTRICT to) {
  const F32 d;
  const hn::Rebind<int32_t, F32> d32;
  const auto* bytes = reinterpret_cast<const int8_t*>(words);
  for (int64_t i = 0; i < len * kWidth; i += kLanes) {
    const auto code = hn::PromoteTo(d32, hn::Load(hn::Rebind<int8_t, F32>(), bytes + i));
    const auto magnitude = hn::And(code, hn::Set(d32, 0x7f));
    const auto normal = hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(d32, 64 << 23)));
    const auto subnormal = hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-65f));
    const auto is_normal = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(d32, 7)));
    const auto sign = hn::BitCast(d, hn::ShiftLeft<31>(hn::ShiftRight<7>(code)));
    hn::Store(hn::Or(hn::IfThenElse(is_normal, normal, subnormal), sign), d, to + i);
  }
}

/// The same for F16, which lies so too.
void WidenHalfPanel(const uint32_t* HWY_RESTRICT words, int64_t len, float* HWY_RESTRICT to) {
  const auto* halves = reinterpret_cast<const uint16_t*>(words);
  for (int64_t i = 0; i < len * kWidth; i += kLanes) hn::Store(WidenHalves(halves + i), F32(), to + i);
}

void WidenPanel(DType stored, const uint32_t* words, int64_t len, const uint32_t* mask, float* to) {
  if (stored == DType::kInt8) return WidenBytePanel<DType::kInt8>(words, len, to);
  if (stored == DType::kFloat8E4M3) return WidenBytePanel<DType::kFloat8E4M3>(words, len, to);
  if (stored == DType::kFloat16) return WidenHalfPanel(words, len, to);
  WidenPairs(words, len, mask, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_MATMUL_WIDEN_INL_H
