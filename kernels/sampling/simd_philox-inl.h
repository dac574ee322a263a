// 64 neighbouring words of a noise stream on vectors; philox.h's noise_word(), word for word. Included once a target.
#if defined(HELIOS_KERNELS_SAMPLING_SIMD_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_KERNELS_SAMPLING_SIMD_PHILOX_INL_H_
#undef HELIOS_KERNELS_SAMPLING_SIMD_PHILOX_INL_H_
#else
#define HELIOS_KERNELS_SAMPLING_SIMD_PHILOX_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/sampling/philox.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
inline void noise_words(NoiseKey key, NoiseStream stream, uint32_t group, uint32_t* HWY_RESTRICT words) {
  for (uint32_t i = 0; i < kNoiseBlock; ++i) words[i] = noise_word(key, stream, group * kNoiseBlock + i);
}
#else
using NoiseD = hn::CappedTag<uint32_t, kNoiseLanes>;
using NoiseV = hn::Vec<NoiseD>;

HWY_INLINE void multiply_wide(NoiseV a, NoiseV b, NoiseV* high, NoiseV* low) {
  const NoiseD d;
  const hn::Repartition<uint64_t, NoiseD> d64;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), b);
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

/// `words` [64] out: words 64 * group + i.
inline void noise_words(NoiseKey key, NoiseStream stream, uint32_t group, uint32_t* HWY_RESTRICT words) {
  const NoiseD d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(NoiseD()));
  constexpr int kParts = kNoiseLanes / kN;
  const NoiseV m0 = hn::Set(d, kPhiloxM0), m1 = hn::Set(d, kPhiloxM1);
  for (int part = 0; part < kParts; ++part) {
    NoiseV c0 = hn::Iota(d, group * kNoiseLanes + static_cast<uint32_t>(part * kN));
    NoiseV c1 = hn::Set(d, static_cast<uint32_t>(key.position));
    NoiseV c2 = hn::Set(d, static_cast<uint32_t>(stream));
    NoiseV c3 = hn::Zero(d);
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
      NoiseV high0, low0, high1, low1;
      multiply_wide(c0, m0, &high0, &low0);
      multiply_wide(c2, m1, &high1, &low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
      c1 = low1;
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
      c3 = low0;
    }
    hn::StoreU(c0, d, words + part * kN);
    hn::StoreU(c1, d, words + kNoiseLanes + part * kN);
    hn::StoreU(c2, d, words + 2 * kNoiseLanes + part * kN);
    hn::StoreU(c3, d, words + 3 * kNoiseLanes + part * kN);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif
