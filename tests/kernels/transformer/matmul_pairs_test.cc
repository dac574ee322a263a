// Inputs promised to be BF16 values, against BF16 and 8-bit weights: where the processor multiplies pairs, the bits are
// still those of one fused multiply-add after another.
#include "kernels/transformer/matmul_pairs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/base/aligned_buffer.h"
#include "kernels/transformer/matmul.h"
#include "tests/kernels/transformer/kernel_test_data.h"

namespace helios {
namespace {

using testing::bits_of;
using testing::count_of;
using testing::random_bf16_floats;

/// Weights [n, k] in segments, and how they multiply inputs.
struct Product {
  int64_t n, k;
  PackedMatrix weights;

  Product(int64_t rows, int64_t columns, int segments, const std::vector<float>& values, ThreadPool& pool)
      : Product(WeightRows{values.data(), DType::kFloat32, rows, columns}, segments, DType::kBFloat16, pool) {}
  Product(const WeightRows& source, int segments, DType stored, ThreadPool& pool)
      : n(source.num_rows), k(source.row_stride) {
    std::vector<int64_t> bounds;
    for (int s = 0; s <= segments; ++s) bounds.push_back(k * s / segments);
    testing::HostStore store(pool);
    weights = PackedMatrix::pack(std::span(&source, 1), 0, k, bounds, stored, store);
  }

  std::vector<float> times(const float* x, int64_t m, DType promised, ThreadPool& pool) const {
    const int64_t bytes = matmul_scratch_bytes(weights, m, pool.num_threads());
    AlignedBuffer scratch(static_cast<size_t>(bytes + 64));
    std::fill_n(static_cast<uint8_t*>(scratch.data()), bytes + 64, uint8_t{0xff});  // NaN everywhere
    std::vector<float> out(static_cast<size_t>(m * n));
    matmul({.x = x,
            .x_stride = k,
            .w = &weights,
            .out = out.data(),
            .out_stride = n,
            .num_rows = count_of(m),
            .max_rows = m,
            .x_rounded_to = promised},
           scratch.data(), pool);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(static_cast<uint8_t*>(scratch.data())[bytes + i], 0xff) << "scratch overrun";
    return out;
  }
};

// A processor that has the instruction uses it: were it found to round otherwise, nothing but speed would tell.
TEST(MatmulPairs, TheInstructionRoundsAsDescribedWhereThereIsOne) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "an instruction of x86-64";
#else
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi")) {
    GTEST_SKIP() << "this processor multiplies no pairs";
  }
  EXPECT_TRUE(has_pair_products());
#endif
}

/// As many rows as every tile takes, and several blocks of them.
void expect_that_the_promise_changes_no_bit(const Product& w, const char* what) {
  ThreadPool one(1), two(2), five(5);
  const int64_t most = 230;
  const std::vector<float> x = random_bf16_floats(most * w.k, 52);
  std::vector<int64_t> counts(41);
  std::iota(counts.begin(), counts.end(), 1);
  counts.insert(counts.end(), {96, 192, 193, most});
  for (const int64_t m : counts) {
    const std::vector<float> want = w.times(&x[(most - m) * w.k], m, DType::kFloat32, two);
    for (ThreadPool* pool : {&one, &two, &five}) {
      const std::vector<float> got = w.times(&x[(most - m) * w.k], m, DType::kBFloat16, *pool);
      ASSERT_EQ(bits_of(got.data(), m * w.n), bits_of(want.data(), m * w.n)) << what << ": " << m << " rows, k " << w.k;
    }
  }
}

TEST(MatmulPairs, X1_ThePromiseChangesNoBit) {
  ThreadPool pool(1);
  // Odd segments, empty ones, less than a pair, panels that are not full.
  for (const auto& [n, k, segments] :
       {std::tuple<int64_t, int64_t, int>{515, 603, 8}, {300, 1030, 1}, {70, 5, 8}, {33, 1, 1}, {31, 43, 4}}) {
    expect_that_the_promise_changes_no_bit({n, k, segments, random_bf16_floats(n * k, 51), pool}, "BF16");
  }
}

// Bytes become pairs by look-up: every code in either half, odd runs, runs of a single k, panels that are not full.
TEST(MatmulPairs, X1_ThePromiseChangesNoBitOfEightBitWeights) {
  ThreadPool pool(1);
  for (const auto& [n, k, segments, scale_columns] : {std::tuple<int64_t, int64_t, int, int64_t>{295, 603, 8, 603},
                                                      {70, 1030, 1, 1030},
                                                      {70, 1030, 2, 128},
                                                      {65, 343, 4, 37},
                                                      {33, 9, 2, 1},
                                                      {70, 5, 8, 5}}) {
    for (const DType dtype : {DType::kInt8, DType::kFloat8E4M3}) {
      std::vector<uint8_t> codes;
      for (int64_t i = 0; i < n * k; ++i) {
        const auto code = static_cast<uint8_t>((i * 2654435761u) >> 13);
        codes.push_back(dtype == DType::kFloat8E4M3 && e4m3_is_nan(code) ? uint8_t{8} : code);
      }
      const int64_t blocks = (k + scale_columns - 1) / scale_columns;
      std::vector<float> scales = testing::random_floats(n * blocks, 55);
      for (float& scale : scales) scale = 0.01f + std::fabs(scale);
      const WeightRows rows{codes.data(), dtype, n, k, scales.data(), blocks, scale_columns};
      expect_that_the_promise_changes_no_bit({rows, segments, dtype, pool}, dtype == DType::kInt8 ? "INT8" : "E4M3");
    }
  }
}

// What is not a number neither spreads nor is lost, at either end of a pair and where a segment has an odd length.
TEST(MatmulPairs, NanAndInfinityStayInTheirRowAndTheirColumn) {
  ThreadPool pool(2);
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const int64_t n = 35, k = 43, m = 30;
  for (const int64_t at : {0, 3, 20, 42}) {
    std::vector<float> values = random_bf16_floats(n * k, 53), x = random_bf16_floats(m * k, 54);
    values[static_cast<size_t>(20 * k + at)] = nan;
    x[static_cast<size_t>(4 * k + at)] = inf;
    const Product w(n, k, 2, values, pool);
    for (const int64_t rows : {5, 12, 30}) {
      const std::vector<float> out = w.times(x.data(), rows, DType::kBFloat16, pool);
      for (int64_t i = 0; i < rows * n; ++i) {
        if (i % n == 20) {
          ASSERT_TRUE(std::isnan(out[static_cast<size_t>(i)])) << i;
        } else {
          ASSERT_EQ(std::isfinite(out[static_cast<size_t>(i)]), i / n != 4) << i;
        }
      }
    }
  }
}

// Sums that FP32 cannot hold with all its digits are zeros, of their sign, and only where the promise was given; the
// thread that multiplied goes on as before.
TEST(MatmulPairs, SubnormalSumsAreZeros) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "flushed on x86-64 alone";
#endif
  ThreadPool pool(1);
  const int64_t n = 40, k = 3;
  const Product w(n, k, 1, std::vector<float>(static_cast<size_t>(n * k), 0x1p-70f), pool);
  const std::vector<float> x = {0x1p-70f, 0x1p-70f, 0x1p-70f};
  EXPECT_EQ(w.times(x.data(), 1, DType::kFloat32, pool), std::vector<float>(static_cast<size_t>(n), 0x3p-140f));
  EXPECT_EQ(w.times(x.data(), 1, DType::kBFloat16, pool), std::vector<float>(static_cast<size_t>(n), 0.0f));
  volatile float smallest = std::numeric_limits<float>::min();
  EXPECT_GT(smallest / 2, 0.0f);
}

}  // namespace
}  // namespace helios
