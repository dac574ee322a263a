// The logarithms that every device shares, against long double.
#include "kernels/base/exact_log.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/logit_rows.h"

namespace helios {
namespace {

constexpr double kBound = 3 * 0x1p-52;  // 3 ulp of a value just above a power of two

template <class Definition>
void expect_close(double found, Definition definition) {
  EXPECT_NEAR(static_cast<double>((found - definition) / definition), 0.0, kBound) << static_cast<double>(definition);
}

TEST(ExactLog, StaysWithinAFewUlpsOfTheDefinition) {
  testing::Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const double x = i % 4 ? std::ldexp(1.0 + random.uniform(), static_cast<int>(random.below(100)) - 60)
                           : 1.0 + std::ldexp(random.uniform() - 0.5, -static_cast<int>(random.below(30)));
    if (x != 1.0) expect_close(exact_log(x), std::log(static_cast<long double>(x)));
    const double u = std::ldexp(random.uniform() + 0x1p-60, -static_cast<int>(random.below(40)));
    if (u < 1.0) expect_close(exact_neg_log1m(u), -std::log1p(-static_cast<long double>(u)));
    const double y = 0.36 * u;
    expect_close(exact_one_minus_exp(y), -std::expm1(-static_cast<long double>(y)));
  }
}

TEST(ExactLog, KnownBits) {  // the same on every compiler and device
  EXPECT_EQ(exact_log(1.0), 0.0);
  EXPECT_EQ(exact_log(2.0), 0x1.62e42fefa39efp-1);
  EXPECT_EQ(exact_log(0.5), -0x1.62e42fefa39efp-1);
  EXPECT_EQ(exact_neg_log1m(0.5), 0x1.62e42fefa39efp-1);
  EXPECT_EQ(exact_one_minus_exp(0.0), 0.0);
}

}  // namespace
}  // namespace helios
