// Logarithms in FP64 with the same bits on every device: a sampled token follows from them, and libm's differ by ulps.
//
// Within 3 ulp of the real value. log(m) = 2 atanh(s) with s = (m - 1) / (m + 1) and m in [sqrt(1/2), sqrt(2)), where
// s^2 < 0.0295, so that ten terms of the series are enough. Every step is a rounded FP64 operation.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace helios {

namespace exact_log_detail {

/// 2 atanh(s) for |s| <= 0.1716.
HELIOS_HD inline double twice_atanh(double s) {
  const auto step = [](double a, double b, double c) { return rounded_sum(a, rounded_product(b, c)); };
  const double z = rounded_product(s, s), z2 = rounded_product(z, z);
  const double z4 = rounded_product(z2, z2), z8 = rounded_product(z4, z4);
  const double a = step(step(2.0 / 3, 2.0 / 5, z), step(2.0 / 7, 2.0 / 9, z), z2);
  const double b = step(step(2.0 / 11, 2.0 / 13, z), step(2.0 / 15, 2.0 / 17, z), z2);
  const double p = step(step(a, b, z4), step(2.0 / 19, 2.0 / 21, z), z8);
  return rounded_sum(s + s, rounded_product(s, rounded_product(z, p)));
}

}  // namespace exact_log_detail

/// log(x) of a positive normal number.
HELIOS_HD inline double exact_log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // eleven zero bits: a multiple of it by an exponent is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52)) - 1.0;
  const double log_m = exact_log_detail::twice_atanh(f / (2.0 + f));
  const double n = static_cast<double>(exponent);
  return rounded_sum(rounded_product(n, kLn2High), rounded_sum(log_m, rounded_product(n, kLn2Low)));
}

/// -log(1 - u) for u in (0, 1), small u included.
HELIOS_HD inline double exact_neg_log1m(double u) {
  if (u < 0.25) return exact_log_detail::twice_atanh(u / (2.0 - u));
  return -exact_log(1.0 - u);
}

/// 1 - exp(-y) for y in [0, 0.36], small y included: fifteen terms of the series.
HELIOS_HD inline double exact_one_minus_exp(double y) {
  constexpr double kInverseFactorials[] = {1.0,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800,
                                           1.0 / 87178291200,
                                           1.0 / 1307674368000};
  double p = kInverseFactorials[14];
  for (int n = 13; n >= 0; --n) p = rounded_sum(kInverseFactorials[n], -rounded_product(y, p));
  return rounded_product(y, p);
}

}  // namespace helios
