// Row-wise operations against float64, and each row alone.
#include "kernels/transformer/layers.h"

#include <algorithm>

#include "kernels/transformer/reference.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/float_values.h"

namespace helios {
namespace {

using testing::bits_of;
using testing::count_of;
using testing::GuardedFloats;
using testing::random_floats;
using testing::to_bf16;

using testing::kInf;
using testing::kNan;

// Tolerances, relative to the float64 value.
//   RMS norm: sum of squares in 16 lanes (about sqrt(hidden / 16) roundings), mean, root, division, two products.
//   gated MLP: exp within 1 ulp, one sum, one division, two products, each half an ulp.
//   one rounding to BF16 or F16: half an ulp of it on top; F16's subnormals are 2^-24 apart.
constexpr double kNormTolerance = 12 * 0x1p-24, kGateTolerance = 5 * 0x1p-24, kBf16Rounding = 0x1p-8;
constexpr double kF16Rounding = 0x1p-11, kF16Smallest = 0x1p-25;

constexpr DType kInputTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

void expect_near(float actual, double expected, double relative) {
  ASSERT_NEAR(actual, expected, std::fabs(expected) * relative + 1e-37);
}

/// FP32 values around every place where rounding to F16 changes its mind: each value, the midpoint to the next and its
/// neighbours; with what they round to by the order of F16's bits alone.
void f16_edges(std::vector<float>& values, std::vector<float>& rounded, uint32_t step) {
  for (uint32_t bits = 0; bits < 0x7c00; bits += step) {
    const auto half = static_cast<uint16_t>(bits);
    const bool last = bits == 0x7bff;
    const float low = f16_to_float(half), next = last ? 65536.0f : f16_to_float(static_cast<uint16_t>(bits + 1));
    const float high = last ? kInf : next, middle = low + (next - low) / 2;
    for (const auto& [value, nearest] : {std::pair{low, low},
                                         {std::nextafter(middle, 0.0f), low},
                                         {middle, bits % 2 == 0 ? low : high},
                                         {std::nextafter(middle, kInf), high}}) {
      for (const float sign : {1.0f, -1.0f}) values.push_back(sign * value), rounded.push_back(sign * nearest);
    }
  }
  for (const float value : {0x1p-149f, 65535.0f, 65536.0f, 1e38f, kInf}) {
    values.push_back(-value), rounded.push_back(value < 1.0f ? -0.0f : -kInf);
  }
}

TEST(RoundToF16, IsNearestAndEvenAndInfiniteBeyond) {
  ThreadPool pool(1);
  std::vector<float> values, rounded;
  f16_edges(values, rounded, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(round_to_f16(values[i])), std::bit_cast<uint32_t>(rounded[i])) << values[i];
  }
  for (const uint32_t nan : {0x7f800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(round_to_f16(std::bit_cast<float>(nan))));
  }
  if (testing::kEmulatedDevice) values.clear(), rounded.clear(), f16_edges(values, rounded, 311);
  values.push_back(kNan);
  const auto count = static_cast<int64_t>(values.size());
  const std::vector<int32_t> token = {0};
  std::vector<float> out(values.size());
  embed({values.data(), DType::kFloat32, count, token.data(), count_of(1), 1, out.data(), DType::kFloat16}, pool);
  EXPECT_TRUE(std::isnan(out.back()));
  out.pop_back();
  EXPECT_EQ(bits_of(out.data(), count - 1), bits_of(rounded.data(), count - 1));
}

TEST(Embed, WidensEveryTypeExactlyAndZeroesNegativeTokens) {
  ThreadPool pool(2);
  const int64_t hidden = 37;
  const std::vector<float> table = random_floats(5 * hidden, 1);
  const std::vector<uint16_t> bf16 = to_bf16(table);
  std::vector<uint16_t> f16(table.size());
  for (size_t i = 0; i < f16.size(); ++i) f16[i] = static_cast<uint16_t>(i * 131 % 0x7c00);
  const std::vector<int32_t> tokens = {4, -1, 0, 4, 3};
  for (const auto& [data, dtype] : {std::pair<const void*, DType>{table.data(), DType::kFloat32},
                                    {bf16.data(), DType::kBFloat16},
                                    {f16.data(), DType::kFloat16}}) {
    for (const DType round : kInputTypes) {
      GuardedFloats out(5 * hidden);
      const EmbedArgs args{data, dtype, hidden, tokens.data(), count_of(5), 5, out.data(), round};
      embed(args, pool);
      std::vector<double> expected(5 * hidden);
      embed_reference(args, expected.data());
      for (int64_t i = 0; i < 5 * hidden; ++i) {
        const auto value = static_cast<float>(expected[i]);
        ASSERT_EQ(out[i], round_to_dtype(round, value)) << i;
      }
    }
  }
}

TEST(Embed, ReadsRowsThroughTheirSourceWhereThereIsOne) {
  if (testing::kEmulatedDevice) GTEST_SKIP() << "other devices have a copy";
  struct Elsewhere final : ByteSource {
    const std::byte *seen = nullptr, *real = nullptr;
    void copy(const void* from, size_t bytes, void* to) const override {
      std::memcpy(to, real + (static_cast<const std::byte*>(from) - seen), bytes);
    }
  } source;
  ThreadPool pool(2);
  const int64_t hidden = 2500;  // more than is copied at once
  const std::vector<uint16_t> table = to_bf16(random_floats(3 * hidden, 1)), nothing(table.size());
  source.seen = reinterpret_cast<const std::byte*>(nothing.data());
  source.real = reinterpret_cast<const std::byte*>(table.data());
  const std::vector<int32_t> tokens = {2, 0};
  GuardedFloats out(2 * hidden);
  EmbedArgs args{nothing.data(), DType::kBFloat16, hidden, tokens.data(), count_of(2), 2, out.data()};
  args.source = &source;
  embed(args, pool);
  for (int64_t i = 0; i < 2 * hidden; ++i) {
    const int64_t at = tokens[static_cast<size_t>(i / hidden)] * hidden + i % hidden;
    ASSERT_EQ(out[i], bf16_to_float(table[static_cast<size_t>(at)])) << i;
  }
}

TEST(RmsNorm, MeetsFloat64AtOddSizesStridesAndInPlace) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t hidden : {1, 7, 8, 16, 20, 33, 64, 1024, 4099}) {
      const int64_t rows = hidden > 1000 ? 40 : 3, stride = hidden + 3;
      const std::vector<float> x = random_floats(rows * stride, 2, 3.0f), weight = random_floats(hidden, 3);
      for (const float eps : {1e-6f, 0.5f}) {
        GuardedFloats out(rows * (hidden + 1));
        RmsNormArgs args{x.data(),       stride, nullptr, weight.data(), eps,
                         count_of(rows), rows,   hidden,  out.data(),    hidden + 1};
        rms_norm(args, pool);
        std::vector<double> expected(rows * hidden);
        rms_norm_reference(args, expected.data());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < hidden; ++i) {
            expect_near(out[r * (hidden + 1) + i], expected[r * hidden + i], kNormTolerance);
          }
          ASSERT_EQ(out[r * (hidden + 1) + hidden], -77.0f) << "wrote between rows";
        }
        const std::vector<float> apart = out.values();
        std::vector<float> same = x;
        args.x = args.out = same.data();
        args.out_stride = stride;
        rms_norm(args, pool);
        args.x = x.data();
        std::vector<float> rounded(rows * stride);
        args.out = rounded.data();
        for (const DType round : {DType::kBFloat16, DType::kFloat16}) {
          args.round_to = round;
          rms_norm(args, pool);
          for (int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(bits_of(&same[r * stride], hidden), bits_of(&apart[r * (hidden + 1)], hidden));
            for (int64_t i = 0; i < hidden; ++i) {
              ASSERT_EQ(rounded[r * stride + i], round_to_dtype(round, apart[r * (hidden + 1) + i]));
            }
          }
        }
      }
    }
  }
}

TEST(RmsNorm, X1_SumsInSixteenVirtualLanesWhateverTheVectorWidth) {
  if (testing::kEmulatedDevice) GTEST_SKIP() << "the CPU's own order of summation; CUDA's is a block's";
  ThreadPool pool(1);
  const int64_t hidden = 133;
  const std::vector<float> x = random_floats(hidden, 4), ones(hidden, 1.0f);
  float lanes[16] = {};
  for (int64_t i = 0; i < hidden; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  const float scale = 1.0f / std::sqrt(lanes[0] / hidden + 1e-5f);
  std::vector<float> out(hidden);
  rms_norm({x.data(), hidden, nullptr, ones.data(), 1e-5f, count_of(1), 1, hidden, out.data(), hidden}, pool);
  for (int64_t i = 0; i < hidden; ++i) ASSERT_EQ(out[i], x[i] * scale) << i;
}

TEST(AddPartials, AddsTheRanksAsATreeThenTheBiasThenTheResidual) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const int world : {1, 2, 4, 8}) {
      for (const auto& [rows, hidden] : {std::pair<int64_t, int64_t>{3, 21}, {40, 1030}}) {
        for (const bool with_bias : {false, true}) {
          const std::vector<float> partials = random_floats(world * rows * hidden, 5), bias = random_floats(hidden, 6);
          const std::vector<float> before = random_floats(rows * hidden, 7);
          GuardedFloats residual(rows * hidden);
          std::copy(before.begin(), before.end(), residual.data());
          StepCounters counters;
          const AddPartialsArgs args{
              partials.data(), world,    count_of(rows), rows, hidden, with_bias ? bias.data() : nullptr,
              residual.data(), &counters};
          std::vector<double> reference(rows * hidden);
          add_partials_reference(args, reference.data());
          add_partials(args, pool);
          ASSERT_EQ(counters.partial_sum_words, world > 1 ? rows * hidden : 0);
          for (int64_t i = 0; i < rows * hidden; ++i) {
            std::vector<float> level;
            for (int r = 0; r < world; ++r) level.push_back(partials[r * rows * hidden + i]);
            for (; level.size() > 1; level.resize(level.size() / 2)) {
              for (size_t j = 0; j < level.size() / 2; ++j) level[j] = level[2 * j] + level[2 * j + 1];
            }
            const float sum = with_bias ? level[0] + bias[i % hidden] : level[0];
            ASSERT_EQ(residual[i], before[i] + sum) << "world " << world << " at " << i;
            ASSERT_NEAR(residual[i], reference[i], 1e-5);
          }
        }
      }
    }
  }
}

TEST(GatedMlp, MeetsFloat64OverTheWholeRangeOfGates) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const int64_t inner : {1, 5, 8, 19, 64, 3073}) {
      const int64_t rows = inner > 1000 ? 20 : 3;
      std::vector<float> gate_up = random_floats(rows * 2 * inner, 8, 4.0f);
      for (int64_t i = 0; i < inner; ++i)
        gate_up[i] = (static_cast<float>(i) / static_cast<float>(inner) - 0.5f) * 170.0f;
      GuardedFloats out(rows * inner), rounded(rows * inner);
      GatedMlpArgs args{gate_up.data(), count_of(rows), rows, inner, out.data()};
      gated_mlp(args, pool);
      std::vector<double> expected(rows * inner);
      gated_mlp_reference(args, expected.data());
      args.out = rounded.data();
      for (const DType round : {DType::kBFloat16, DType::kFloat16}) {
        args.round_to = round;
        gated_mlp(args, pool);
        for (int64_t i = 0; i < rows * inner; ++i) {
          expect_near(out[i], expected[i], kGateTolerance);
          ASSERT_EQ(rounded[i], round_to_dtype(round, out[i]));
          const double most = std::fabs(expected[i]) * (round == DType::kFloat16 ? kF16Rounding : kBf16Rounding);
          ASSERT_NEAR(rounded[i], expected[i], most + kF16Smallest);
        }
      }
    }
  }
}

TEST(GatedMlp, ExtremeGatesNeitherOverflowNorHideNan) {
  ThreadPool pool(1);
  const std::vector<float> gates = {1e30f, kInf, -1e30f, -200.0f, 0.0f, kNan, 200.0f, -0.0f, 1.0f};
  std::vector<float> gate_up = gates;
  gate_up.resize(2 * gates.size(), 2.0f);
  std::vector<float> out(gates.size());
  gated_mlp({gate_up.data(), count_of(1), 1, static_cast<int64_t>(gates.size()), out.data()}, pool);
  EXPECT_EQ(out[0], 2e30f);
  EXPECT_EQ(out[1], kInf);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_EQ(out[6], 400.0f);
  EXPECT_EQ(out[7], 0.0f);
  EXPECT_NEAR(out[8], 2 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(RmsNorm, TakesTheRowsThatItsIndexNames) {
  ThreadPool pool(2);
  for (const int64_t hidden : {20, 33}) {
    const std::vector<float> x = random_floats(9 * (hidden + 3), 12), weight = random_floats(hidden, 13);
    const std::vector<int32_t> index = {7, 0, 8, 7, 77777};  // the last is past the count
    GuardedFloats out(5 * hidden), dense(9 * hidden);
    RmsNormArgs args{x.data(),    hidden + 3, index.data(), weight.data(), 1e-6f,
                     count_of(4), 5,          hidden,       out.data(),    hidden};
    std::vector<double> expected(4 * hidden);
    rms_norm_reference(args, expected.data());
    rms_norm(args, pool);
    for (int64_t i = 0; i < 4 * hidden; ++i) expect_near(out[i], expected[i], kNormTolerance);
    for (int64_t i = 4 * hidden; i < 5 * hidden; ++i) ASSERT_EQ(out[i], -77.0f);
    args.row_index = nullptr, args.num_rows = count_of(9), args.max_rows = 9, args.out = dense.data();
    rms_norm(args, pool);
    for (int64_t r = 0; r < 4; ++r) {
      ASSERT_EQ(bits_of(out.data() + r * hidden, hidden), bits_of(dense.data() + index[r] * hidden, hidden));
    }
  }
}

// A step's count is read when the kernel runs, and bounds what is read and written.
TEST(RowOperations, OnlyTheRowsOfTheStepAreTouched) {
  ThreadPool pool(3);
  const int64_t max_rows = 7;
  for (const int64_t hidden : {24, 37}) {
    const std::vector<float> table = random_floats(3 * hidden, 14), x = random_floats(max_rows * 2 * hidden, 15);
    const std::vector<float> weight = random_floats(hidden, 16), partials = random_floats(2 * max_rows * hidden, 17);
    const std::vector<int32_t> tokens(max_rows, 2);
    for (const int32_t rows : {0, 1, 3, 7}) {
      int32_t count = -1;
      GuardedFloats embedded(max_rows * hidden), norm(max_rows * hidden), sum(max_rows * hidden),
          gated(max_rows * hidden);
      const EmbedArgs embed_args{table.data(), DType::kFloat32, hidden,         tokens.data(),
                                 &count,       max_rows,        embedded.data()};
      const RmsNormArgs norm_args{x.data(), hidden,   nullptr, weight.data(), 1e-6f,
                                  &count,   max_rows, hidden,  norm.data(),   hidden};
      const AddPartialsArgs sum_args{partials.data(), 2, &count, max_rows, hidden, nullptr, sum.data()};
      const GatedMlpArgs gated_args{x.data(), &count, max_rows, hidden, gated.data()};
      count = rows;
      embed(embed_args, pool);
      rms_norm(norm_args, pool);
      add_partials(sum_args, pool);
      gated_mlp(gated_args, pool);
      for (int64_t i = 0; i < max_rows * hidden; ++i) {
        const bool live = i < rows * hidden;
        ASSERT_EQ(embedded[i], live ? table[2 * hidden + i % hidden] : -77.0f) << rows;
        ASSERT_EQ(norm[i] != -77.0f, live) << rows;
        ASSERT_EQ(sum[i], live ? -77.0f + (partials[i] + partials[max_rows * hidden + i]) : -77.0f) << rows;
        ASSERT_EQ(gated[i] != -77.0f, live) << rows;
      }
    }
  }
}

TEST(RowOperations, NanStaysInItsRow) {
  ThreadPool pool(2);
  const int64_t rows = 5, hidden = 40;
  std::vector<float> x = random_floats(rows * hidden, 9);
  x[2 * hidden + 11] = kNan;
  x[3 * hidden + 39] = kInf;
  const std::vector<float> weight(hidden, 1.0f);
  std::vector<float> norm(rows * hidden), gated(rows * hidden / 2), sum(rows * hidden, 0.0f);
  rms_norm({x.data(), hidden, nullptr, weight.data(), 1e-6f, count_of(rows), rows, hidden, norm.data(), hidden,
            DType::kBFloat16},
           pool);
  gated_mlp({x.data(), count_of(rows), rows, hidden / 2, gated.data(), DType::kFloat16}, pool);
  add_partials({x.data(), 1, count_of(rows), rows, hidden, nullptr, sum.data()}, pool);
  for (int64_t r : {0, 1, 4}) {
    for (int64_t i = 0; i < hidden; ++i) EXPECT_TRUE(std::isfinite(norm[r * hidden + i]));
    for (int64_t i = 0; i < hidden / 2; ++i) EXPECT_TRUE(std::isfinite(gated[r * hidden / 2 + i]));
    for (int64_t i = 0; i < hidden; ++i) EXPECT_TRUE(std::isfinite(sum[r * hidden + i]));
  }
  EXPECT_TRUE(std::isnan(norm[2 * hidden]));
  EXPECT_TRUE(std::isnan(gated[2 * hidden / 2 + 11]));
  EXPECT_TRUE(std::isnan(norm[3 * hidden + 39]));  // inf / inf
}

TEST(RowOperations, X1_ARowsBitsDoNotDependOnItsCompanyOrThreads) {
  ThreadPool one(1), three(3);
  const int64_t rows = 64, hidden = 1030;
  const std::vector<float> x = random_floats(rows * 2 * hidden, 10), weight = random_floats(hidden, 11);
  std::vector<float> norm(rows * hidden), gated(rows * hidden), row(hidden);
  rms_norm({x.data(), hidden, nullptr, weight.data(), 1e-6f, count_of(rows), rows, hidden, norm.data(), hidden}, three);
  gated_mlp({x.data(), count_of(rows), rows, hidden, gated.data()}, three);
  for (int64_t r = 0; r < rows; ++r) {
    rms_norm({&x[r * hidden], hidden, nullptr, weight.data(), 1e-6f, count_of(1), 1, hidden, row.data(), hidden}, one);
    ASSERT_EQ(bits_of(row.data(), hidden), bits_of(&norm[r * hidden], hidden));
    gated_mlp({&x[r * 2 * hidden], count_of(1), 1, hidden, row.data()}, one);
    ASSERT_EQ(bits_of(row.data(), hidden), bits_of(&gated[r * hidden], hidden));
  }
}

}  // namespace
}  // namespace helios
