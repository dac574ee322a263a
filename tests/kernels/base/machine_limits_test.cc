// The limits are measured figures, so only their nature is checked: positive, finite, and not absurd.
#include "kernels/base/machine_limits.h"

#include <gtest/gtest.h>

#include <cmath>

namespace helios {
namespace {

TEST(MachineLimits, AreFiniteAndPlausibleForAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const MachineLimits limits = measure_machine_limits(pool, std::chrono::milliseconds(10), 1 << 20);
    // 1 GFLOP/s is a tenth of the slowest core that runs this; 10^6 of either is no CPU.
    EXPECT_GT(limits.read_gb_per_s, 0.01);
    EXPECT_LT(limits.read_gb_per_s, 1e6);
    EXPECT_GT(limits.fma_gflop_per_s, 0.01);
    EXPECT_LT(limits.fma_gflop_per_s, 1e6);
  }
}

}  // namespace
}  // namespace helios
