// Matrix products against float64, and X1: a row's bits do not depend on its company, threads or sharding.
#include "kernels/transformer/matmul.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/base/aligned_buffer.h"
#include "kernels/transformer/layers.h"
#include "tests/kernels/transformer/kernel_test_data.h"

namespace helios {
namespace {

using testing::bits_of;
using testing::count_of;
using testing::GuardedFloats;
using testing::HostStore;
using testing::random_bf16_floats;
using testing::random_floats;
using testing::to_bf16;

// Tolerance: k roundings of relative size 2^-24, each of a partial sum no larger than sum |x w|. Their signs are as
// good as random, so they add up like sqrt(k), not k; twice that, and two more for the tree and the bias. A lost or
// doubled term changes the result by about sum |x w| / k, which is hundreds of times more. Scales are as good as terms.
double tolerance(const float* x, const double* w, int64_t k, double bias) {
  double sum = std::fabs(bias);
  for (int64_t i = 0; i < k; ++i) sum += std::fabs(static_cast<double>(x[i]) * w[i]);
  return (2 * std::sqrt(static_cast<double>(k)) + 4) * 0x1p-24 * sum;
}

std::vector<int64_t> even_segments(int64_t k, int count) {
  std::vector<int64_t> bounds;
  for (int s = 0; s <= count; ++s) bounds.push_back(k * s / count);
  return bounds;
}

PackedMatrix pack(std::span<const WeightRows> parts, int64_t k_begin, int64_t k_end, std::span<const int64_t> segments,
                  DType stored, ThreadPool& pool) {
  HostStore store(pool);
  return PackedMatrix::pack(parts, k_begin, k_end, segments, stored, store);
}

/// A weight format: the element type, and for how many columns a scale holds.
struct Format {
  DType dtype;
  int64_t scale_columns = 0;  // kWholeRow: a scale a row
};
constexpr int64_t kWholeRow = int64_t{1} << 40;

/// Those without scales are all that the emulated device has.
std::vector<Format> formats() {
  return testing::cases_for_device<Format>({{DType::kFloat32},
                                            {DType::kBFloat16},
                                            {DType::kFloat16},
                                            {DType::kInt8, kWholeRow},
                                            {DType::kFloat8E4M3, kWholeRow},
                                            {DType::kInt8, 37},
                                            {DType::kFloat8E4M3, 128}},
                                           3);
}

/// A checkpoint's matrix [n, k] as it lies in its file.
struct Source {
  int64_t n, k;
  Format format;
  std::vector<std::byte> data;
  std::vector<float> scales;   // [n, blocks]
  std::vector<double> values;  // [n, k], what the packed matrix holds exactly

  int64_t blocks() const { return (k + format.scale_columns - 1) / format.scale_columns; }
  WeightRows rows(int64_t first, int64_t count) const {
    WeightRows rows{data.data() + first * k * static_cast<int64_t>(dtype_bytes(format.dtype)), format.dtype, count, k};
    if (format.scale_columns != 0) {
      rows.scales = scales.data() + first * blocks();
      rows.scale_stride = blocks();
      rows.scale_columns = format.scale_columns;
    }
    return rows;
  }
};

Source make_source(int64_t n, int64_t k, Format format, uint32_t seed = 5) {
  Source s{n, k, format, {}, {}, {}};
  s.data.resize(static_cast<size_t>(n * k) * dtype_bytes(format.dtype));
  const std::vector<float> random = random_floats(n * k, seed);
  if (format.scale_columns != 0) {
    for (const float value : random_floats(n * s.blocks(), seed + 1)) s.scales.push_back(0.01f + std::fabs(value));
  }
  std::mt19937 bytes(seed + 2);
  for (int64_t i = 0; i < n * k; ++i) {
    const auto at = static_cast<size_t>(i) * dtype_bytes(format.dtype);
    if (format.scale_columns != 0) {
      auto byte = static_cast<uint8_t>(bytes());  // every code: subnormals, -128
      if (format.dtype == DType::kFloat8E4M3 && e4m3_is_nan(byte)) byte = 0x7e;
      s.data[at] = std::byte{byte};
    } else if (format.dtype != DType::kFloat32) {
      const float value = random[static_cast<size_t>(i)];  // every fifth of F16 is small, or subnormal
      const uint16_t bits = format.dtype == DType::kBFloat16 ? float_to_bf16(value)
                                                             : float_to_f16(i % 5 == 0 ? value * 0x1p-16f : value);
      std::memcpy(&s.data[at], &bits, sizeof bits);
    } else {
      std::memcpy(&s.data[at], &random[static_cast<size_t>(i)], sizeof(float));
    }
    double value = load_element(s.data.data(), format.dtype, i);
    if (format.scale_columns != 0) {
      value *= s.scales[static_cast<size_t>(i / k * s.blocks() + i % k / format.scale_columns)];
    }
    s.values.push_back(value);
  }
  return s;
}

PackedMatrix pack(const Source& source, int64_t k_begin, int64_t k_end, std::span<const int64_t> segments,
                  ThreadPool& pool) {
  const WeightRows rows = source.rows(0, source.n);
  return pack(std::span(&rows, 1), k_begin, k_end, segments, source.format.dtype, pool);
}

struct Weights {
  std::vector<double> values;  // [n, k], what the packed matrix holds exactly
  PackedMatrix packed;
};

Weights make_weights(int64_t n, int64_t k, Format format, std::span<const int64_t> segments, ThreadPool& pool) {
  const Source source = make_source(n, k, format);
  return {source.values, pack(source, 0, k, segments, pool)};
}
Weights make_weights(int64_t n, int64_t k, DType dtype, std::span<const int64_t> segments, ThreadPool& pool) {
  return make_weights(n, k, Format{dtype}, segments, pool);
}

/// out [m, n] dense; scratch exactly as long as promised, guarded.
std::vector<float> run_matmul(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t m, const float* bias,
                              ThreadPool& pool) {
  const int64_t bytes = matmul_scratch_bytes(w, m, pool.num_threads());
  AlignedBuffer scratch(static_cast<size_t>(bytes + 64));
  std::fill_n(static_cast<uint8_t*>(scratch.data()), bytes + 64, uint8_t{0xff});  // NaN everywhere
  GuardedFloats out(m * (w.n() + 3));
  matmul({x, x_stride, &w, bias, out.data(), w.n() + 3, count_of(m), 0, m}, scratch.data(), pool);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(static_cast<uint8_t*>(scratch.data())[bytes + i], 0xff) << "scratch overrun";
  std::vector<float> dense(m * w.n());
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < w.n(); ++c) dense[r * w.n() + c] = out[r * (w.n() + 3) + c];
    for (int64_t c = w.n(); c < w.n() + 3; ++c) EXPECT_EQ(out[r * (w.n() + 3) + c], -77.0f) << "written past column n";
  }
  return dense;
}

struct Shape {
  int64_t m, n, k;
  int segments;
};

class MatmulShapes : public ::testing::TestWithParam<std::tuple<Format, Shape, int>> {};

TEST_P(MatmulShapes, MeetFloat64) {
  const auto [format, shape, threads] = GetParam();
  ThreadPool pool(threads);
  const auto [m, n, k, segments] = shape;
  const Weights w = make_weights(n, k, format, even_segments(k, segments), pool);
  const std::vector<float> x = random_floats(m * (k + 5), 7), bias = random_floats(n, 9);
  std::vector<float> dense_x(m * k);
  for (int64_t r = 0; r < m; ++r) std::copy_n(&x[r * (k + 5)], k, &dense_x[r * k]);
  std::vector<double> expected(m * n);
  matmul_reference(dense_x.data(), m, k, w.values.data(), n, bias.data(), expected.data());
  const std::vector<float> out = run_matmul(w.packed, x.data(), k + 5, m, bias.data(), pool);
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      ASSERT_NEAR(out[r * n + c], expected[r * n + c], tolerance(&dense_x[r * k], &w.values[c * k], k, bias[c]))
          << "row " << r << " column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MatmulShapes,
    ::testing::Combine(::testing::ValuesIn(formats()),
                       ::testing::Values(Shape{1, 1, 1, 1}, Shape{3, 2, 3, 1}, Shape{1, 515, 43, 2},
                                         Shape{2, 33, 64, 1}, Shape{5, 31, 1, 4}, Shape{6, 17, 43, 8},
                                         Shape{7, 515, 129, 1}, Shape{13, 64, 300, 2}, Shape{29, 100, 777, 4},
                                         Shape{40, 128, 515, 8}, Shape{200, 130, 301, 1}, Shape{401, 9, 64, 2},
                                         Shape{64, 80, 1100, 2}),
                       ::testing::ValuesIn(testing::cases_for_device<int>({1, 2, 3}, 1))));

TEST(Matmul, X1_ARowsBitsDoNotDependOnItsCompanyOrThreads) {
  for (const Format& format : formats()) {
    for (const int segments : {1, 8}) {
      ThreadPool one(1), two(2), five(5);
      const int64_t n = 515, k = testing::kEmulatedDevice ? 83 : 603, most = testing::kEmulatedDevice ? 7 : 40;
      const Weights w = make_weights(n, k, format, even_segments(k, segments), one);
      const std::vector<float> x = random_floats(most * k, 11), bias = random_floats(n, 12);
      std::vector<float> alone(most * n);
      for (int64_t r = 0; r < most; ++r) {
        const std::vector<float> row = run_matmul(w.packed, &x[r * k], k, 1, bias.data(), one);
        std::copy(row.begin(), row.end(), &alone[r * n]);
      }
      for (int64_t m = 1; m <= most; ++m) {
        for (ThreadPool* pool : testing::cases_for_device<ThreadPool*>({&one, &two, &five}, 1)) {
          const int64_t first = most - m;  // each row meets every position in the batch
          const std::vector<float> out = run_matmul(w.packed, &x[first * k], k, m, bias.data(), *pool);
          ASSERT_EQ(bits_of(out.data(), m * n), bits_of(&alone[first * n], m * n)) << m << " rows, " << segments;
        }
      }
    }
  }
}

// An F16 checkpoint kept in half the bytes is the one that was widened at load, to the bit.
TEST(Matmul, X1_F16WeightsGiveTheBitsOfTheSameWeightsInFp32) {
  if (!PackedMatrix::holds_eight_bits()) GTEST_SKIP() << "this device multiplies F16 by inputs in pieces";
  ThreadPool one(1), two(2);
  const int64_t n = 75, k = 1033, most = 230;
  std::mt19937 codes(3);
  std::vector<uint16_t> halves(static_cast<size_t>(n * k));
  for (uint16_t& half : halves) half = static_cast<uint16_t>(codes() % 0x7c00 | codes() % 2 << 15);  // all finite ones
  const WeightRows rows{halves.data(), DType::kFloat16, n, k};
  const std::vector<float> x = random_floats(most * k, 35), bias = random_floats(n, 36);
  for (const int segments : {1, 8}) {
    const PackedMatrix kept = pack(std::span(&rows, 1), 0, k, even_segments(k, segments), DType::kFloat16, two);
    const PackedMatrix widened = pack(std::span(&rows, 1), 0, k, even_segments(k, segments), DType::kFloat32, two);
    EXPECT_LT(kept.bytes() * 19, widened.bytes() * 10);
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 40, 96, 230}) {
      for (ThreadPool* pool : {&one, &two}) {
        const std::vector<float> got = run_matmul(kept, x.data(), k, m, bias.data(), *pool);
        const std::vector<float> want = run_matmul(widened, x.data(), k, m, bias.data(), *pool);
        ASSERT_EQ(bits_of(got.data(), m * n), bits_of(want.data(), m * n)) << m << " rows, " << segments;
      }
    }
  }
}

TEST(Matmul, X1_LargeBatchesGiveTheBitsOfSmallOnes) {
  ThreadPool one(1), two(2);
  const int64_t n = 70, k = 1030, m = 500;
  const std::vector<float> x = random_floats(m * k, 13);
  for (const Format& format : formats()) {
    const Weights w = make_weights(n, k, format, even_segments(k, 4), one);
    const std::vector<float> all = run_matmul(w.packed, x.data(), k, m, nullptr, two);
    for (const int64_t r : {0, 1, 191, 192, 193, 384, 499}) {
      const std::vector<float> row = run_matmul(w.packed, &x[r * k], k, 1, nullptr, one);
      ASSERT_EQ(bits_of(row.data(), n), bits_of(&all[r * n], n)) << r;
    }
  }
}

/// A rank at TP `world` owns 8 / world of the eight segments; add_partials is the rest of the tree.
TEST(Matmul, X1_RanksThatOwnSubtreesAgreeWithOneMatrix) {
  ThreadPool pool(2);
  for (const Format& format : formats()) {
    // 344: blocks of scales cross segments and shards; 43: segments of 5 and 6; 5: empty segments among them
    for (const int64_t k : {344, 43, 5}) {
      const int64_t n = 72, m = 9;
      const std::vector<int64_t> bounds = even_segments(k, 8);
      const Source source = make_source(n, k, format);
      const PackedMatrix whole = pack(source, 0, k, bounds, pool);
      const std::vector<float> x = random_floats(m * k, 14);
      const std::vector<float> expected = run_matmul(whole, x.data(), k, m, nullptr, pool);
      for (const int world : {2, 4, 8}) {
        std::vector<float> partials;
        for (int rank = 0; rank < world; ++rank) {
          const int64_t begin = bounds[8 / world * rank], end = bounds[8 / world * (rank + 1)];
          std::vector<int64_t> own;
          for (int s = 8 / world * rank; s <= 8 / world * (rank + 1); ++s) own.push_back(bounds[s] - begin);
          const PackedMatrix shard = pack(source, begin, end, own, pool);
          const std::vector<float> part = run_matmul(shard, x.data() + begin, k, m, nullptr, pool);
          partials.insert(partials.end(), part.begin(), part.end());
        }
        std::vector<float> sum(m * n, 0.0f);
        add_partials({partials.data(), world, count_of(m), m, n, nullptr, sum.data()}, pool);
        std::vector<float> from_zero(m * n, 0.0f);
        add_partials({expected.data(), 1, count_of(m), m, n, nullptr, from_zero.data()}, pool);
        ASSERT_EQ(bits_of(sum.data(), m * n), bits_of(from_zero.data(), m * n)) << "world " << world << " k " << k;
      }
    }
  }
}

TEST(Matmul, X1_ShardingColumnsChangesNoBit) {
  ThreadPool pool(2);
  const int64_t n = 96, k = 201, m = 7;
  const std::vector<int64_t> segments = {0, k};
  const std::vector<float> x = random_floats(m * k, 15);
  for (const Format& format : formats()) {
    const Source whole = make_source(n, k, format);
    const std::vector<float> expected = run_matmul(pack(whole, 0, k, segments, pool), x.data(), k, m, nullptr, pool);
    for (const int64_t begin : {0, 5, 48, 95}) {
      const int64_t width = std::min<int64_t>(n - begin, 37);
      const WeightRows rows = whole.rows(begin, width);
      const PackedMatrix shard = pack(std::span(&rows, 1), 0, k, segments, format.dtype, pool);
      const std::vector<float> out = run_matmul(shard, x.data(), k, m, nullptr, pool);
      for (int64_t r = 0; r < m; ++r) {
        ASSERT_EQ(bits_of(&out[r * width], width), bits_of(&expected[r * n + begin], width));
      }
    }
  }
}

// The count is read when the product runs; blocks of rows give what one product over all of them gives.
TEST(Matmul, OnlyTheRowsOfTheStepAreWrittenInBlocksToo) {
  ThreadPool pool(2);
  const int64_t n = 35, k = 50, max_rows = 11, block = 4;
  const Weights w = make_weights(n, k, DType::kBFloat16, even_segments(k, 2), pool);
  const std::vector<float> x = random_bf16_floats(max_rows * k, 31);
  const std::vector<float> expected = run_matmul(w.packed, x.data(), k, max_rows, nullptr, pool);
  AlignedBuffer scratch(static_cast<size_t>(matmul_scratch_bytes(w.packed, block, pool.num_threads())));
  for (const int32_t rows : {0, 1, 4, 5, 11}) {
    int32_t count = -1;
    GuardedFloats out(max_rows * n);
    std::vector<MatmulArgs> blocks;
    for (int64_t first = 0; first < max_rows; first += block) {
      blocks.push_back({&x[first * k], k, &w.packed, nullptr, out.data() + first * n, n, &count, first,
                        std::min(block, max_rows - first)});
    }
    count = rows;
    for (const MatmulArgs& args : blocks) matmul(args, scratch.data(), pool);
    ASSERT_EQ(bits_of(out.data(), rows * n), bits_of(expected.data(), rows * n));
    for (int64_t i = rows * n; i < max_rows * n; ++i) ASSERT_EQ(out[i], -77.0f) << rows;
  }
}

TEST(Matmul, TheOrderAlongKIsAscendingFusedMultiplyAdds) {
#if defined(HELIOS_CUDA_DEVICE)
  GTEST_SKIP() << "a GPU's library has an order of its own";
#endif
  // One large term that swallows small ones before it, but not after it was cancelled: any other order differs.
  ThreadPool pool(1);
  const int64_t k = 700;
  std::vector<float> w = random_floats(k, 21);
  w[600] = 1e8f, w[601] = -1e8f;
  const std::vector<float> x(k, 1.0f);
  const WeightRows rows{w.data(), DType::kFloat32, 1, k};
  const std::vector<int64_t> segments = {0, k};
  const PackedMatrix packed = pack(std::span(&rows, 1), 0, k, segments, DType::kFloat32, pool);
  float expected = 0;
  for (int64_t i = 0; i < k; ++i) expected = std::fma(x[i], w[i], expected);
  for (const int64_t m : {1, 4, 5, 11}) {
    std::vector<float> batch(m * k, 1.0f);
    const std::vector<float> out = run_matmul(packed, batch.data(), k, m, nullptr, pool);
    for (const float value : out) EXPECT_EQ(value, expected) << m;
  }
}

TEST(Matmul, NanAndInfinityStayInTheirRowAndTheirColumn) {
  ThreadPool pool(2);
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& [k, stored] : {std::pair<int64_t, DType>{43, DType::kBFloat16},
                                  {44, DType::kBFloat16},
                                  {43, DType::kFloat16},
                                  {44, DType::kFloat16}}) {
    const int64_t n = 35, m = 9;
    std::vector<float> w = random_bf16_floats(n * k, 16);
    w[20 * k + 3] = nan;      // poisons column 20 only
    w[34 * k + k - 1] = inf;  // the last column of the padded panel
    const WeightRows rows{w.data(), DType::kFloat32, n, k};
    const PackedMatrix packed = pack(std::span(&rows, 1), 0, k, even_segments(k, 2), stored, pool);
    std::vector<float> x = random_floats(m * k, 17);
    x[4 * k + 42] = inf;  // poisons row 4 only
    const std::vector<float> out = run_matmul(packed, x.data(), k, m, nullptr, pool);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const float value = out[r * n + c];
        if (c == 20) {
          EXPECT_TRUE(std::isnan(value));
        } else if (r == 4 || c == 34) {
          EXPECT_FALSE(std::isfinite(value));
        } else {
          EXPECT_TRUE(std::isfinite(value)) << r << "," << c;
        }
      }
    }
  }
}

TEST(PackedMatrix, StacksPartsOfDifferentTypesAndTakesTheirColumns) {
  ThreadPool pool(2);
  const int64_t k = 37, stride = 50, begin = 7;
  const std::vector<float> a = random_bf16_floats(3 * stride, 18), b = random_bf16_floats(20 * stride, 19);
  const std::vector<uint16_t> a_bits = to_bf16(a);
  std::vector<uint16_t> half(2 * stride);
  for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(0x3c00 + 8 * i);  // 1, 1 + 2^-7, ...: exact
  const std::vector<WeightRows> parts = {{a_bits.data(), DType::kBFloat16, 3, stride},
                                         {b.data(), DType::kFloat32, 20, stride},
                                         {half.data(), DType::kFloat16, 2, stride}};
  std::vector<float> dense;
  for (int64_t r = 0; r < 3; ++r) dense.insert(dense.end(), &a[r * stride + begin], &a[r * stride + begin + k]);
  for (int64_t r = 0; r < 20; ++r) dense.insert(dense.end(), &b[r * stride + begin], &b[r * stride + begin + k]);
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t i = 0; i < k; ++i) dense.push_back(f16_to_float(half[r * stride + begin + i]));
  }
  for (const DType stored : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const PackedMatrix packed = pack(parts, begin, begin + k, even_segments(k, 1), stored, pool);
    ASSERT_EQ(packed.n(), 25);
    ASSERT_EQ(packed.k(), k);
    EXPECT_EQ(packed.dtype(), stored);
    EXPECT_GE(packed.bytes(), 25 * k * static_cast<int64_t>(dtype_bytes(stored)));
    // The identity reads the stored weights back.
    std::vector<float> identity(k * k, 0.0f);
    for (int64_t i = 0; i < k; ++i) identity[i * k + i] = 1.0f;
    const std::vector<float> out = run_matmul(packed, identity.data(), k, k, nullptr, pool);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < 25; ++c) ASSERT_EQ(out[i * 25 + c], dense[c * k + i]) << i << "," << c;
    }
  }
}

/// The bytes lie elsewhere: where the matrix seems to be is nothing.
class Elsewhere final : public ByteSource {
 public:
  Elsewhere(const std::byte* seen, const std::byte* real) : seen_(seen), real_(real) {}
  void copy(const void* from, size_t bytes, void* to) const override {
    std::memcpy(to, real_ + (static_cast<const std::byte*>(from) - seen_), bytes);
  }

 private:
  const std::byte* seen_;
  const std::byte* real_;
};

TEST(PackedMatrix, ReadsRowsThroughTheirSource) {
  if (!PackedMatrix::holds_eight_bits()) GTEST_SKIP() << "this device reads rows in place";
  ThreadPool pool(2);
  const int64_t n = 75, k = 66;
  const std::vector<float> x = random_floats(2 * k, 41);
  for (const Format format : formats()) {
    const Source source = make_source(n, k, format);
    const std::vector<std::byte> nothing(source.data.size());
    const Elsewhere elsewhere(nothing.data(), source.data.data());
    WeightRows rows = source.rows(0, n);
    rows.data = nothing.data();
    rows.source = &elsewhere;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, k}, {0, 31}, {13, 64}}) {
      const std::vector<int64_t> segments = even_segments(end - begin, 2);
      const PackedMatrix copied = pack(std::span(&rows, 1), begin, end, segments, format.dtype, pool);
      const std::vector<float> got = run_matmul(copied, x.data(), k, 2, nullptr, pool);
      const std::vector<float> want =
          run_matmul(pack(source, begin, end, segments, pool), x.data(), k, 2, nullptr, pool);
      EXPECT_EQ(bits_of(got.data(), 2 * n), bits_of(want.data(), 2 * n))
          << static_cast<int>(format.dtype) << " columns " << begin << " to " << end;
    }
  }
}

// A quarter of BF16's bytes and a half of FP32's are what quantised weights are for; every code is exact.
TEST(PackedMatrix, EightBitWeightsStayBytesAndEveryCodeIsReadBack) {
  if (!PackedMatrix::holds_eight_bits()) GTEST_SKIP() << "this device multiplies no 8-bit weights";
  ThreadPool pool(2);
  for (const DType dtype : {DType::kInt8, DType::kFloat8E4M3}) {
    const int64_t n = 256, k = 64;
    std::vector<uint8_t> codes(static_cast<size_t>(n * k), 0);
    for (int64_t r = 0; r < n; ++r) {
      codes[static_cast<size_t>(r * k + r % k)] = static_cast<uint8_t>(r % 128 == 127 ? r - 1 : r);
    }
    const std::vector<float> scales(static_cast<size_t>(n), 0.375f);
    WeightRows rows{codes.data(), dtype, n, k};
    rows.scales = scales.data(), rows.scale_stride = 1, rows.scale_columns = k;
    const std::vector<int64_t> segments = {0, k};
    const PackedMatrix packed = pack(std::span(&rows, 1), 0, k, segments, dtype, pool);
    EXPECT_EQ(packed.bytes(), n * k + n * 4);
    const std::vector<float> ones(static_cast<size_t>(k), 1.0f);
    const std::vector<float> out = run_matmul(packed, ones.data(), k, 1, nullptr, pool);
    for (int64_t r = 0; r < n; ++r) {
      const uint8_t code = codes[static_cast<size_t>(r * k + r % k)];
      const int magnitude = code & 0x7f, exponent = std::max(magnitude >> 3, 1), lead = magnitude >> 3 ? 8 : 0;
      const double value = dtype == DType::kInt8
                               ? static_cast<int8_t>(code)
                               : std::ldexp(lead + magnitude % 8, exponent - 10) * (code & 0x80 ? -1 : 1);
      ASSERT_EQ(out[static_cast<size_t>(r)], value * 0.375) << "code " << int{code};
    }
  }
}

// Parts that no format fits together are dequantised, each weight rounded once.
TEST(PackedMatrix, QuantisedPartsAmongOthersBecomeFp32) {
  ThreadPool pool(1);
  const int64_t k = 40;
  const Source a = make_source(3, k, {DType::kInt8, 16}), b = make_source(5, k, {DType::kFloat32});
  const std::vector<WeightRows> parts = {a.rows(0, 3), b.rows(0, 5)};
  const PackedMatrix packed = pack(parts, 7, k, even_segments(k - 7, 1), DType::kFloat32, pool);
  std::vector<float> identity(static_cast<size_t>((k - 7) * (k - 7)), 0.0f);
  for (int64_t i = 0; i < k - 7; ++i) identity[static_cast<size_t>(i * (k - 7) + i)] = 1.0f;
  const std::vector<float> out = run_matmul(packed, identity.data(), k - 7, k - 7, nullptr, pool);
  for (int64_t i = 0; i < k - 7; ++i) {
    for (int64_t c = 0; c < 8; ++c) {
      const double value = c < 3 ? a.values[static_cast<size_t>(c * k + 7 + i)]
                                 : b.values[static_cast<size_t>((c - 3) * k + 7 + i)];
      ASSERT_EQ(out[static_cast<size_t>(i * 8 + c)], static_cast<float>(value)) << i << "," << c;
    }
  }
}

TEST(PackedMatrix, RoundsWiderSourcesToNearestEven) {
  ThreadPool pool(1);
  const std::vector<float> w = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1.1p-8f, -(1.0f + 0x1p-8f)};
  const WeightRows rows{w.data(), DType::kFloat32, 4, 1};
  const std::vector<int64_t> segments = {0, 1};
  const PackedMatrix packed = pack(std::span(&rows, 1), 0, 1, segments, DType::kBFloat16, pool);
  const float x = 1.0f;
  const std::vector<float> out = run_matmul(packed, &x, 1, 1, nullptr, pool);
  EXPECT_EQ(out, (std::vector<float>{1.0f, 1.0f + 4 * 0x1p-8f, 1.0f + 0x1p-7f, -1.0f}));
  const std::vector<float> fine = {1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 1.0f + 0x1.1p-11f, -65519.0f, 0x1.8p-24f};
  const WeightRows fine_rows{fine.data(), DType::kFloat32, 5, 1};
  const PackedMatrix halves = pack(std::span(&fine_rows, 1), 0, 1, segments, DType::kFloat16, pool);
  EXPECT_EQ(run_matmul(halves, &x, 1, 1, nullptr, pool),
            (std::vector<float>{1.0f, 1.0f + 4 * 0x1p-11f, 1.0f + 0x1p-10f, -65504.0f, 0x1p-23f}));
}

TEST(Matmul, NothingToDoIsDone) {
  ThreadPool pool(2);
  const Weights w = make_weights(20, 8, DType::kBFloat16, even_segments(8, 1), pool);
  AlignedBuffer scratch(static_cast<size_t>(matmul_scratch_bytes(w.packed, 4, 2)));
  matmul({nullptr, 8, &w.packed, nullptr, nullptr, 20, count_of(0), 0, 4}, scratch.data(), pool);
  // A rank that owns no column of k at all contributes +0, plus the bias.
  const std::vector<int64_t> empty = {0, 0, 0};
  const PackedMatrix nothing = pack(make_source(20, 8, {DType::kBFloat16}), 3, 3, empty, pool);
  const std::vector<float> bias = random_floats(20, 20);
  const std::vector<float> x(8, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(run_matmul(nothing, x.data(), 8, 1, bias.data(), pool), bias);
  const std::vector<float> zeros = run_matmul(nothing, x.data(), 0, 6, nullptr, pool);
  EXPECT_EQ(bits_of(zeros.data(), 120), std::vector<uint32_t>(120, 0));  // +0, not -0
}

}  // namespace
}  // namespace helios
