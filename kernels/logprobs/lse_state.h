// The mergeable partial logsumexp, and the one exponential that every merge uses.
//
// A rank owns a whole subtree of the eight vocabulary segments, so its maximum and mass are all that the tree above it
// needs, and the normaliser has the same bits at every tensor-parallel degree (X1). The exponential is spelled out here
// because libm's differs between machines. Same polynomial as simd_exp-inl.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/host_device.h"

namespace helios {

inline constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// exp(x) for x <= 0: x = n*ln2 + f with |f| <= ln2/2, times a degree-5 polynomial with exp(0) == 1 exactly; relative
// error below 2e-7 + 2.8e-9 * |x|. Below kLowest the result is zero, never a subnormal. One FMA reduces the argument:
// ln2's rounding (1.9e-9 * n) is far under FP32 where the result still counts.
namespace exp_constants {
inline constexpr float kLowest = -87.0f;
inline constexpr float kLog2e = 0x1.715476p+0f;
inline constexpr float kLn2 = 0x1.62e430p-1f;
inline constexpr float kMagic = 12582912.0f + 127.0f;  // 1.5 * 2^23: rounds to an integer; 127: the exponent's bias
inline constexpr float kC1 = 0x1.fffff6p-1f;
inline constexpr float kC2 = 0x1.fffdc4p-2f;
inline constexpr float kC3 = 0x1.555a6ep-3f;
inline constexpr float kC4 = 0x1.573adp-5f;
inline constexpr float kC5 = 0x1.0fa7d8p-7f;
}  // namespace exp_constants

HELIOS_HD inline float exp_nonpositive(float x) {
  using namespace exp_constants;
  if (x < kLowest) return 0.0f;
  if (!(x <= 0.0f)) return std::numeric_limits<float>::quiet_NaN();  // NaN in, NaN out
  const float shifted = std::fma(x, kLog2e, kMagic);
  const float n = shifted - kMagic;
  const float f = std::fma(n, -kLn2, x);
  float p = std::fma(kC5, f, kC4);
  p = std::fma(p, f, kC3);
  p = std::fma(p, f, kC2);
  p = std::fma(p, f, kC1);
  p = std::fma(p, f, 1.0f);
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

/// A partial logsumexp. Identity: the default. Domain: finite logits and -inf. A NaN or a +inf logit makes the mass
/// NaN, and every state that it is merged into; the maximum stays a number. Unit: nats.
struct LseState {
  float max = kNegativeInfinity;
  float mass = 0.0f;  // sum of exp(logit - max)
  friend bool operator==(const LseState&, const LseState&) = default;
};

inline LseState merge(LseState a, LseState b) {
  const float max = a.max > b.max ? a.max : b.max;
  if (max == kNegativeInfinity) return {max, a.mass + b.mass};  // both empty, or a NaN without a number beside it
  return {max, a.mass * exp_nonpositive(a.max - max) + b.mass * exp_nonpositive(b.max - max)};
}

/// Merges `count` neighbouring subtrees, a power of two, as a balanced binary tree.
inline LseState merge_tree(const LseState* states, int count) {
  if (count == 1) return states[0];
  return merge(merge_tree(states, count / 2), merge_tree(states + count / 2, count / 2));
}

/// The normaliser in FP32, rounded once. NaN when a logit was NaN or +inf; -inf when every logit is -inf, so that every
/// logprob of that row is NaN: there is no distribution to report from.
inline float log_sum_exp(LseState state) {
  return static_cast<float>(static_cast<double>(state.max) + std::log(static_cast<double>(state.mass)));
}

/// The reported value of a logit: one FP32 subtraction, -0 made +0.
inline float reported_logprob(float logit, float normalizer) { return (logit - normalizer) + 0.0f; }

}  // namespace helios
