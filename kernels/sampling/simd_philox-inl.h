// philox.h's noise of one block of 64 ids on vectors, and the smallest word of it. Included once a target.
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
inline bool noise_block(uint64_t seed, int32_t position, uint32_t block, uint32_t limit, uint32_t* HWY_RESTRICT words) {
  bool any = false;
  for (int i = 0; i < kNoiseBlock; ++i) {
    words[i] = token_noise(seed, position, static_cast<TokenId>(block * kNoiseBlock + i));
    any |= words[i] <= limit;
  }
  return any;
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

/// `words` [64]: the noise of ids 64 * block + i, written only if one of them is at most `limit`. Returns whether.
inline bool noise_block(uint64_t seed, int32_t position, uint32_t block, uint32_t limit, uint32_t* HWY_RESTRICT words) {
  const NoiseD d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(NoiseD()));
  constexpr int kParts = kNoiseLanes / kN;
  const NoiseV m0 = hn::Set(d, kPhiloxM0), m1 = hn::Set(d, kPhiloxM1);
  NoiseV c0[kParts], c1[kParts], c2[kParts], c3[kParts];
  for (int part = 0; part < kParts; ++part) {
    c0[part] = hn::Iota(d, block * kNoiseLanes + part * kN);
    c1[part] = hn::Set(d, static_cast<uint32_t>(position));
    c2[part] = c3[part] = hn::Zero(d);
  }
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
    const NoiseV key0 = hn::Set(d, k0), key1 = hn::Set(d, k1);
    for (int part = 0; part < kParts; ++part) {
      NoiseV high0, low0, high1, low1;
      multiply_wide(c0[part], m0, &high0, &low0);
      multiply_wide(c2[part], m1, &high1, &low1);
      c0[part] = hn::Xor(hn::Xor(high1, c1[part]), key0);
      c1[part] = low1;
      c2[part] = hn::Xor(hn::Xor(high0, c3[part]), key1);
      c3[part] = low0;
    }
  }
  NoiseV least = hn::Min(hn::Min(c0[0], c1[0]), hn::Min(c2[0], c3[0]));
  for (int part = 1; part < kParts; ++part) {
    least = hn::Min(least, hn::Min(hn::Min(c0[part], c1[part]), hn::Min(c2[part], c3[part])));
  }
  if (hn::AllTrue(d, hn::Gt(least, hn::Set(d, limit)))) return false;
  for (int part = 0; part < kParts; ++part) {
    hn::StoreU(c0[part], d, words + part * kN);
    hn::StoreU(c1[part], d, words + kNoiseLanes + part * kN);
    hn::StoreU(c2[part], d, words + 2 * kNoiseLanes + part * kN);
    hn::StoreU(c3[part], d, words + 3 * kNoiseLanes + part * kN);
  }
  return true;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif
