// Pieces of row-wise kernels, once for each Highway target: element loops, rounding to BF16 and F16, sums in virtual
// lanes.
//
// A sum over a row runs in 16 virtual lanes, whatever the vector width: lane j adds the elements j, j + 16, ... in
// ascending order, and a fixed tree adds the lanes. So AVX2 and AVX-512 give the same bits.
#include <hwy/highway.h>

#include "kernels/base/dtype.h"

#if defined(HELIOS_ROW_OPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_ROW_OPS_INL_H
#undef HELIOS_ROW_OPS_INL_H
#else
#define HELIOS_ROW_OPS_INL_H
#endif

// GCC calls a lambda that it finds large, and its vectors then go through memory: five times slower.
#ifndef HELIOS_INLINE_LAMBDA
#define HELIOS_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
constexpr int64_t kVirtualLanes = 16;

/// body(tag, i) for all of [0, count): whole vectors, then single elements with the same operations.
template <class Body>
HWY_INLINE void ForEach(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(F32(), i);
  if (kLanes > 1) {
    for (; i < count; ++i) body(One(), i);
  }
}

/// Nearest BF16 value, ties to even, as FP32; NaN stays NaN. Same bits as round_to_bf16().
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundBf16(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto tie = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), tie);
  const auto kept = hn::And(rounded, hn::Set(du, 0xffff0000u));
  const auto quiet = hn::And(hn::Or(bits, hn::Set(du, 0x00400000u)), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::Eq(value, value), hn::BitCast(d, kept), hn::BitCast(d, quiet));
}

/// Nearest F16 value, ties to even, as FP32; infinite from 65520 on, NaN stays NaN. Same bits as round_to_f16().
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundF16(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value), kept = hn::Set(du, 0xffffe000u);
  const auto tie = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1u));
  const auto normal = hn::BitCast(d, hn::And(hn::Add(hn::Add(bits, hn::Set(du, 0xfffu)), tie), kept));
  const auto magnitude = hn::Abs(value), half = hn::Set(d, 0.5f);
  const auto small = hn::CopySignToAbs(hn::Sub(hn::Add(magnitude, half), half), value);  // a multiple of 2^-24
  const auto infinite = hn::CopySignToAbs(hn::BitCast(d, hn::Set(du, 0x7f800000u)), value);
  const auto quiet = hn::BitCast(d, hn::And(hn::Or(bits, hn::Set(du, 0x00400000u)), kept));
  auto rounded = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x1p-14f)), small, normal);
  rounded = hn::IfThenElse(hn::Ge(magnitude, hn::Set(d, 65520.0f)), infinite, rounded);
  return hn::IfThenElse(hn::Eq(value, value), rounded, quiet);
}

/// What round_to_dtype() does.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundTo(D d, V value, DType dtype) {
  if (dtype == DType::kBFloat16) return RoundBf16(d, value);
  return dtype == DType::kFloat16 ? RoundF16(d, value) : value;
}

/// ((l0+l8) + (l4+l12)) + ...: halves folded onto each other.
HWY_INLINE float FoldLanes(float* lanes) {
  for (int64_t half = kVirtualLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

/// Sum of squares of x[0, count).
HWY_INLINE float SumOfSquares(const float* HWY_RESTRICT x, int64_t count) {
  constexpr int64_t kVecs = kLanes >= kVirtualLanes ? 1 : kVirtualLanes / kLanes;
  static_assert(kLanes <= kVirtualLanes);
  const F32 d;
  hn::Vec<F32> sums[kVecs];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kVirtualLanes <= count; i += kVirtualLanes) {
    for (int64_t v = 0; v < kVecs; ++v) {
      const auto value = hn::LoadU(d, x + i + v * kLanes);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  }
  HWY_ALIGN float lanes[kVirtualLanes];
  for (int64_t v = 0; v < kVecs; ++v) hn::Store(sums[v], d, lanes + v * kLanes);
  const One one;
  for (int64_t j = 0; i < count; ++i, ++j) {
    const auto value = hn::LoadU(one, x + i);
    hn::StoreU(hn::MulAdd(value, value, hn::LoadU(one, lanes + j)), one, lanes + j);
  }
  return FoldLanes(lanes);
}

/// out = x / sqrt(mean(x^2) + eps) * weight; x and out may be the same.
HWY_INLINE void NormRow(const float* x, const float* weight, float eps, int64_t count, float* out, DType round_to) {
  const float mean = SumOfSquares(x, count) / static_cast<float>(count);
  const float scale = 1.0f / std::sqrt(mean + eps);
  ForEach(count, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
    auto value = hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), hn::LoadU(d, weight + i));
    hn::StoreU(RoundTo(d, value, round_to), d, out + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_ROW_OPS_INL_H
