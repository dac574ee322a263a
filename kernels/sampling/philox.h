// Philox4x32-10, stateless, and which of its words is a token's noise.
//
// Key: the request's seed. Counter: absolute position and token id. Nothing else enters, so a token's noise does not
// depend on batch, order, shards or earlier steps, and there is no generator state to keep (R9).
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "common/base/ids.h"

namespace helios {

inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

using PhiloxWords = std::array<uint32_t, 4>;

constexpr PhiloxWords philox4x32(PhiloxWords counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxW0, k1 += kPhiloxW1) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return counter;
}

// A block of 64 ids shares sixteen counters: lane l of word w belongs to id 64 * block + 16 * w + l. Vectors of words
// then line up with vectors of logits.
inline constexpr int kNoiseBlock = 64;
inline constexpr int kNoiseLanes = 16;

/// A token's 32 random bits at `position`.
constexpr uint32_t token_noise(uint64_t seed, int32_t position, TokenId id) {
  const uint32_t u = static_cast<uint32_t>(id);
  const PhiloxWords counter = {(u / kNoiseBlock) * kNoiseLanes + u % kNoiseLanes, static_cast<uint32_t>(position), 0,
                               0};
  return philox4x32(counter, seed)[u / kNoiseLanes % 4];
}

/// Standard Gumbel noise from 32 random bits: -log(E) with E = -log(1 - v), v = (bits + 1/2) / 2^32. Small bits are
/// large noise, so the tail that decides is the finely resolved one. In [-3.13, 22.88].
inline double gumbel(uint32_t bits) {
  const double v = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  return -std::log(-std::log1p(-v));
}

}  // namespace helios
