// The mergeable partial logsumexp, and the one exponential that every merge uses.
//
// A rank owns a whole subtree of the eight vocabulary segments, so its maximum and mass are all that the tree above it
// needs, and the normaliser has the same bits at every tensor-parallel degree (X1). exp is spelled out here, and log in
// exact_log.h, fused where they say so and nowhere else, because libm's differ between machines and devices: with these
// a CPU and a GPU report the same bits. Same polynomial as simd_exp-inl.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/exact_log.h"
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
  const float shifted = fmaf(x, kLog2e, kMagic);
  const float n = shifted - kMagic;
  const float f = fmaf(n, -kLn2, x);
  float p = fmaf(kC5, f, kC4);
  p = fmaf(p, f, kC3);
  p = fmaf(p, f, kC2);
  p = fmaf(p, f, kC1);
  p = fmaf(p, f, 1.0f);
  return rounded_product(p, std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23));
}

/// A partial logsumexp. Identity: the default. Domain: finite logits and -inf. A NaN or a +inf logit makes the mass
/// NaN, and every state that it is merged into; the maximum stays a number. Unit: nats.
struct LseState {
  float max = kNegativeInfinity;
  float mass = 0.0f;  // sum of exp(logit - max)
  friend bool operator==(const LseState&, const LseState&) = default;
};

HELIOS_HD inline LseState merge(LseState a, LseState b) {
  const float max = a.max > b.max ? a.max : b.max;
  if (max == kNegativeInfinity) return {max, a.mass + b.mass};  // both empty, or a NaN without a number beside it
  const float left = rounded_product(a.mass, exp_nonpositive(a.max - max));
  return {max, rounded_sum(left, rounded_product(b.mass, exp_nonpositive(b.max - max)))};
}

/// Merges `count` neighbouring subtrees, a power of two, as a balanced binary tree. `states` is scratch.
HELIOS_HD inline LseState merge_tree(LseState* states, int count) {
  for (; count > 1; count /= 2) {
    for (int i = 0; i < count / 2; ++i) states[i] = merge(states[2 * i], states[2 * i + 1]);
  }
  return states[0];
}

/// The normaliser in FP32, rounded once. NaN when a logit was NaN or +inf; -inf when every logit is -inf, so that every
/// logprob of that row is NaN: there is no distribution to report from.
HELIOS_HD inline float log_sum_exp(LseState state) {
  if (!(state.mass > 0.0f)) return state.mass == 0.0f ? kNegativeInfinity : std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(rounded_sum(static_cast<double>(state.max), exact_log(static_cast<double>(state.mass))));
}

/// The reported value of a logit: one FP32 subtraction, -0 made +0.
HELIOS_HD inline float reported_logprob(float logit, float normalizer) { return (logit - normalizer) + 0.0f; }

}  // namespace helios
