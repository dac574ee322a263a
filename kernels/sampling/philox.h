// Philox4x32-10, stateless, and the uniform number that each token draws from it.
//
// Key: the request's seed. Counter: absolute position and token id. Nothing else enters, so a token's noise does not
// depend on batch, order, shards or earlier steps, and there is no generator state to keep (R9). Every function here
// has the same bits on every device.
//
// Ids draw in blocks of 64: first the smallest of the block's 64 uniforms and who has it, then the other 63, uniform
// above it. That is the joint distribution of 64 independent uniforms, but a block whose smallest cannot win needs one
// word instead of 64. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

#include "common/base/ids.h"
#include "kernels/base/exact_log.h"

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

/// What a word is for: the third word of its counter.
enum class NoiseStream : uint32_t {
  kToken = 0,       // index: token id
  kBlockLeast = 1,  // index: block of 64 ids
  kBlockLane = 2,   // index: block of 64 ids
};

/// One position's noise of one request.
struct NoiseKey {
  uint64_t seed = 0;
  int32_t position = 0;
};

inline constexpr int kNoiseBlock = 64;
inline constexpr int kNoiseLanes = 16;

/// The four words that word `index` of a stream comes with: 64 neighbouring words share sixteen counters, lane l of
/// output w being word 16 * w + l, so that vectors of words line up with vectors of logits.
constexpr PhiloxWords noise_words_of(NoiseKey key, NoiseStream stream, uint32_t index) {
  return philox4x32({index / kNoiseBlock * kNoiseLanes + index % kNoiseLanes, static_cast<uint32_t>(key.position),
                     static_cast<uint32_t>(stream), 0},
                    key.seed);
}

/// Word `index` of a stream.
constexpr uint32_t noise_word(NoiseKey key, NoiseStream stream, uint32_t index) {
  return noise_words_of(key, stream, index)[index / kNoiseLanes % 4];
}

/// In (0, 1), 2^-32 apart.
constexpr double unit_interval(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

/// The smallest of a block's uniforms: 1 - (1 - u)^(1/64), from the block's kBlockLeast word.
HELIOS_HD inline double block_least(uint32_t word) {
  return exact_one_minus_exp(exact_neg_log1m(unit_interval(word)) / kNoiseBlock);
}

/// Which id of the block has it, from the block's kBlockLane word.
constexpr int block_lane(uint32_t word) { return static_cast<int>(word / (0x100000000ull / kNoiseBlock)); }

/// Another id's uniform, from its kToken word.
HELIOS_HD inline double above_least(double least, uint32_t word) {
  return rounded_sum(least, rounded_product(1.0 - least, unit_interval(word)));
}

/// A token's uniform, alone. Kernels draw whole blocks.
HELIOS_HD inline double token_uniform(NoiseKey key, TokenId id) {
  const uint32_t block = static_cast<uint32_t>(id) / kNoiseBlock;
  const double least = block_least(noise_word(key, NoiseStream::kBlockLeast, block));
  if (block_lane(noise_word(key, NoiseStream::kBlockLane, block)) == id % kNoiseBlock) return least;
  return above_least(least, noise_word(key, NoiseStream::kToken, static_cast<uint32_t>(id)));
}

/// Standard Gumbel noise: -log(E) with E = -log(1 - uniform). Small uniforms are large noise, so the tail that decides
/// is the finely resolved one. At most kMaxGumbel, and never above -log(uniform).
HELIOS_HD inline double gumbel(double uniform) { return -exact_log(exact_neg_log1m(uniform)); }
inline constexpr double kMaxGumbel = 27.04;  // of block_least(0)

}  // namespace helios
