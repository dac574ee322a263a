// What surrounds a library's matrix product on CUDA, with a plain loop in the library's place: pieces add up to the
// input exactly, padding and other steps' rows are zeros, and the whole meets float64.
#include "kernels/transformer/matmul_stage.h"

#include <limits>

#include "kernels/base/aligned_buffer.h"
#include "tests/kernels/transformer/kernel_test_data.h"

namespace helios {
namespace {

using testing::count_of;
using testing::GuardedFloats;
using testing::HostStore;
using testing::random_floats;

constexpr uint16_t kUntouched = 0x7fc1;

PackedMatrix pack(const std::vector<float>& weights, int64_t n, int64_t k, std::span<const int64_t> segments,
                  DType dtype, ThreadPool& pool) {
  HostStore store(pool);
  const WeightRows rows{weights.data(), DType::kFloat32, n, k};
  return PackedMatrix::pack(std::span(&rows, 1), 0, k, segments, dtype, store);
}

/// products [segments, pieces * rows, padded_n], as the library computes them from whole padded rows.
void multiply(const RowsView& w, const void* staged, int64_t rows, float* products) {
  for (int64_t s = 0; s < w.num_segments; ++s) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < w.padded_n; ++c) {
        float sum = 0.0f;
        for (int64_t i = 0; i < w.segment_k; ++i) {
          const float x = load_element(staged, w.dtype, (s * rows + r) * w.segment_k + i);
          sum = std::fma(x, load_element(w.data, w.dtype, s * w.segment_elements() + c * w.segment_k + i), sum);
        }
        products[(s * rows + r) * w.padded_n + c] = sum;
      }
    }
  }
}

// A library chooses by the length of a segment: a rank that owns none of the longest has to have it too.
TEST(MatmulStage, X1_SegmentsAreAsLongOnEveryRankAsTheLongestOfAll) {
  ThreadPool pool(1);
  HostStore store(pool);
  const int64_t n = 3, k = 37;
  const std::vector<float> weights = random_floats(n * k, 1);
  const WeightRows rows{weights.data(), DType::kFloat32, n, k};
  const std::vector<int64_t> whole = {0, 9, 18, 27, 37}, own = {0, 9, 18}, none = {0, 0};
  const auto segment_k = [&](int64_t begin, int64_t end, const std::vector<int64_t>& segments) {
    const PackedMatrix matrix =
        PackedMatrix::pack(std::span(&rows, 1), begin, end, segments, DType::kBFloat16, store, 33);
    return MatmulRows::view(matrix).segment_k;
  };
  EXPECT_EQ(segment_k(0, 37, whole), 40);
  EXPECT_EQ(segment_k(0, 18, own), 40);
  EXPECT_EQ(segment_k(37, 37, none), 40);
}

TEST(MatmulStage, ThreeBf16PiecesAreTheInputAndPaddingIsZero) {
  ThreadPool pool(1);
  const int64_t n = 3, k = 21, stride = 24, rows = 5, padded_rows = 7, first_row = 40;
  const std::vector<int64_t> segments = {0, 10, 21};  // padded to 16
  const PackedMatrix matrix = pack(random_floats(n * k, 1), n, k, segments, DType::kBFloat16, pool);
  const RowsView w = MatmulRows::view(matrix);
  ASSERT_EQ(w.segment_k, 16);
  ASSERT_EQ(w.padded_n, 8);
  std::vector<float> x = random_floats(rows * stride, 2);
  x[0] = 0x1.fffffep127f;  // rounding would make it infinite
  x[1] = 0x1.234566p-100f;
  x[2] = -0.0f;
  x[stride] = std::numeric_limits<float>::infinity();
  x[stride + 1] = -std::numeric_limits<float>::infinity();
  x[2 * stride] = std::bit_cast<float>(0x7f800001u);  // a NaN that a cut would make infinite
  for (const auto& [pieces, live] : {std::pair(1, 3), std::pair(3, 3), std::pair(3, 9)}) {
    std::vector<uint16_t> staged(static_cast<size_t>(w.num_segments * pieces * padded_rows * w.segment_k) + 8,
                                 kUntouched);
    stage_inputs({.x = x.data(),
                  .x_stride = stride,
                  .num_rows = count_of(first_row + live),
                  .first_row = first_row,
                  .rows = rows,
                  .padded_rows = padded_rows,
                  .w = w,
                  .pieces = pieces,
                  .staged = staged.data()},
                 pool);
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t r = 0; r < padded_rows; ++r) {
        for (int64_t i = 0; i < w.segment_k; ++i) {
          const auto piece = [&](int p) {
            return bf16_to_float(staged[static_cast<size_t>(((s * pieces + p) * padded_rows + r) * w.segment_k + i)]);
          };
          const bool inside = r < std::min<int64_t>(live, rows) && segments[s] + i < segments[s + 1];
          const float want = inside ? x[static_cast<size_t>(r * stride + segments[s] + i)] : 0.0f;
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(piece(0)));
          } else if (pieces == 1) {
            ASSERT_EQ(piece(0), round_to_bf16(want));
          } else {
            ASSERT_EQ(piece(0) + (piece(1) + piece(2)), want) << s << " " << r << " " << i;
          }
        }
      }
    }
    for (size_t i = staged.size() - 8; i < staged.size(); ++i)
      ASSERT_EQ(staged[i], kUntouched) << "written past the end";
  }
}

/// x as three F16 pieces of one row and segment stand for it.
double joined(const uint16_t* first, int64_t piece_elements, int exponent) {
  double value = 0.0;
  for (int p = 2; p >= 0; --p) value = value * 0x1p-11 + f16_to_float(first[p * piece_elements]);
  return std::ldexp(value, -exponent);
}

TEST(MatmulStage, ThreeScaledF16PiecesAreTheInputDownToItsSmallestParts) {
  ThreadPool pool(1);
  const int64_t n = 3, k = 600, rows = 9, padded_rows = 10, live = 8;
  const std::vector<int64_t> segments = {0, 290, 600};
  const PackedMatrix matrix = pack(random_floats(n * k, 1), n, k, segments, DType::kFloat16, pool);
  const RowsView w = MatmulRows::view(matrix);
  std::vector<float> x = random_floats(rows * k, 2);
  const float denormal = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < k; ++i) {
    x[1 * k + i] *= std::ldexp(1.0f, static_cast<int>(i * 7919 % 253) - 126);  // 1e-38 to 1e38 in one row
    x[2 * k + i] = 0.0f;
    x[3 * k + i] = static_cast<float>(i % 5) * denormal;
    x[4 * k + i] = i % 3 == 0 ? -most : x[4 * k + i];
  }
  x[2 * k + 599] = -0.0f;
  x[5 * k + 10] = infinity, x[5 * k + 500] = -infinity;
  x[6 * k + 289] = std::bit_cast<float>(0x7f800001u);
  const int64_t piece_elements = padded_rows * w.segment_k;
  std::vector<uint16_t> staged(static_cast<size_t>(2 * 3 * piece_elements) + 8, kUntouched);
  std::vector<int32_t> exponents(2 * padded_rows + 4, -12345);
  stage_inputs({.x = x.data(),
                .x_stride = k,
                .num_rows = count_of(live),
                .rows = rows,
                .padded_rows = padded_rows,
                .w = w,
                .pieces = 3,
                .staged = staged.data(),
                .exponents = exponents.data()},
               pool);
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t r = 0; r < padded_rows; ++r) {
      const int exponent = exponents[static_cast<size_t>(s * padded_rows + r)];
      const auto inside = [&](int64_t i) { return r < live && segments[s] + i < segments[s + 1]; };
      double largest = 0.0;
      for (int64_t i = 0; inside(i); ++i) {
        const float value = x[static_cast<size_t>(r * k + segments[s] + i)];
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
      }
      const double scaled = std::ldexp(largest, exponent);
      if (largest > 0.0) {
        ASSERT_TRUE(scaled >= 0x1p14 && scaled < 0x1p15) << s << " " << r << " " << scaled;
      } else {
        ASSERT_EQ(exponent, 0) << s << " " << r;
      }
      for (int64_t i = 0; i < w.segment_k; ++i) {
        const uint16_t* first = &staged[static_cast<size_t>((s * 3 * padded_rows + r) * w.segment_k + i)];
        const float want = inside(i) ? x[static_cast<size_t>(r * k + segments[s] + i)] : 0.0f;
        if (!std::isfinite(want)) {
          const float whole = f16_to_float(*first);
          ASSERT_TRUE(std::isnan(want) ? std::isnan(whole) : whole == want) << s << " " << r << " " << i;
          continue;
        }
        const double got = joined(first, piece_elements, exponent);
        const double allowed = std::fabs(want) >= largest * 0x1p-37 ? 0.0 : largest * 0x1p-60;
        ASSERT_LE(std::fabs(got - want), allowed) << s << " " << r << " " << i << ": " << want;
      }
    }
  }
  for (size_t i = staged.size() - 8; i < staged.size(); ++i) ASSERT_EQ(staged[i], kUntouched) << "past the end";
  for (size_t i = exponents.size() - 4; i < exponents.size(); ++i) ASSERT_EQ(exponents[i], -12345) << "past the end";
}

struct Case {
  DType dtype;
  int64_t n, k;
  std::vector<int64_t> segments;
  int pieces;
};

TEST(MatmulStage, AroundALibraryItMeetsFloat64) {
  ThreadPool pool(1);
  const std::vector<Case> cases = {
      {DType::kBFloat16, 37, 43, {0, 43}, 3},
      {DType::kBFloat16, 300, 20, {0, 5, 10, 15, 20}, 3},
      {DType::kBFloat16, 16, 43, {0, 5, 10, 16, 21, 26, 32, 37, 43}, 3},
      {DType::kBFloat16, 5, 300, {0, 150, 300}, 1},
      {DType::kFloat16, 37, 43, {0, 43}, 3},
      {DType::kFloat16, 9, 300, {0, 150, 300}, 3},
      {DType::kFloat16, 20, 300, {0, 0, 300, 300, 300}, 3},
      {DType::kFloat16, 16, 43, {0, 5, 10, 16, 21, 26, 32, 37, 43}, 3},
      {DType::kFloat16, 8, 35, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 35}, 3},
      {DType::kFloat16, 5, 300, {0, 150, 300}, 1},
      {DType::kFloat32, 9, 300, {0, 0, 300, 300, 300}, 1},
      {DType::kFloat32, 8, 35, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 35}, 1},
  };
  for (const Case& c : cases) {
    const bool rounded = c.dtype != DType::kFloat32 && c.pieces == 1, wide = c.dtype == DType::kFloat16 && !rounded;
    const int64_t rows = 6, padded_rows = 8, live = 5, first_row = 2, x_stride = c.k + 3, out_stride = c.n + 2;
    std::vector<float> weights = random_floats(c.n * c.k, 3), x = random_floats(rows * x_stride, 4);
    for (float& value : weights) value = round_to_dtype(c.dtype, value);
    for (float& value : x) value = rounded ? round_to_dtype(c.dtype, value) : value;
    for (int64_t i = 0; wide && i < x_stride; ++i) {  // 1e-30 to 1e30 in a row, subnormals in another, zeros
      x[1 * x_stride + i] *= std::ldexp(1.0f, static_cast<int>(i * 7919 % 201) - 100);
      x[2 * x_stride + i] *= 0x1p-135f;
      x[3 * x_stride + i] = 0.0f;
    }
    const std::vector<float> bias = random_floats(c.n, 5);
    const PackedMatrix matrix = pack(weights, c.n, c.k, c.segments, c.dtype, pool);
    const RowsView w = MatmulRows::view(matrix);
    AlignedBuffer staged(static_cast<size_t>(w.num_segments * c.pieces * padded_rows * w.segment_k) *
                         dtype_bytes(c.dtype));
    GuardedFloats products(w.num_segments * c.pieces * padded_rows * w.padded_n);
    std::vector<int32_t> exponents(static_cast<size_t>(w.num_segments * padded_rows));
    for (const bool with_bias : {false, true}) {
      GuardedFloats out(rows * out_stride);
      stage_inputs(
          {x.data(), x_stride, count_of(first_row + live), first_row, rows, padded_rows, w, c.pieces, staged.data(),
           exponents.data()},
          pool);
      multiply(w, staged.data(), c.pieces * padded_rows, products.data());
      finish_products({products.data(), count_of(first_row + live), first_row, rows, padded_rows, w, c.pieces,
                       exponents.data(), with_bias ? bias.data() : nullptr, out.data(), out_stride},
                      pool);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t column = 0; column < out_stride; ++column) {
          if (r >= live || column >= c.n) {
            ASSERT_EQ(out[r * out_stride + column], -77.0f) << "written where no row of the step is";
            continue;
          }
          double sum = with_bias ? bias[column] : 0.0, size = std::fabs(sum), largest = 0.0, weight = 0.0;
          for (int64_t i = 0; i < c.k; ++i) {
            const double term = static_cast<double>(x[r * x_stride + i]) * weights[column * c.k + i];
            sum += term, size += std::fabs(term);
            largest = std::max(largest, std::fabs(static_cast<double>(x[r * x_stride + i])));
            weight += std::fabs(weights[column * c.k + i]);
          }
          double tolerance = (2 * std::sqrt(static_cast<double>(c.k)) + 4) * 0x1p-24 * size;
          // What is lost of elements far below the row's largest; and FP32's own smallest number, a segment.
          if (wide) tolerance += largest * weight * 0x1p-60 + w.num_segments * 0x1p-149;
          ASSERT_NEAR(out[r * out_stride + column], sum, tolerance) << c.k << " row " << r << " column " << column;
        }
      }
    }
  }
}

// As in FP32: what is not finite stays so, in its own row, whatever the others of the row are.
TEST(MatmulStage, F16PiecesOfInfinityAndNanGiveNoFiniteNumber) {
  ThreadPool pool(1);
  const float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const int64_t k = 4, rows = 6;
  const std::vector<int64_t> segments = {0, 2, 4};
  const PackedMatrix matrix = pack({2.0f, 1.0f, 0.0f, 65504.0f}, 1, k, segments, DType::kFloat16, pool);
  const RowsView w = MatmulRows::view(matrix);
  std::vector<float> x(rows * k, 1.0f);
  x[0] = infinity;
  x[1 * k] = 1e-30f, x[1 * k + 1] = -infinity;
  x[2 * k] = infinity, x[2 * k + 1] = -infinity;
  x[3 * k + 2] = infinity;
  x[4 * k] = 1e30f, x[4 * k + 1] = std::numeric_limits<float>::quiet_NaN();
  x[5 * k + 3] = most;
  std::vector<uint16_t> staged(static_cast<size_t>(2 * 3 * rows * w.segment_k));
  std::vector<float> products(static_cast<size_t>(2 * 3 * rows * w.padded_n)), out(rows);
  std::vector<int32_t> exponents(2 * rows);
  stage_inputs({x.data(), k, count_of(rows), 0, rows, rows, w, 3, staged.data(), exponents.data()}, pool);
  multiply(w, staged.data(), 3 * rows, products.data());
  finish_products({products.data(), count_of(rows), 0, rows, rows, w, 3, exponents.data(), nullptr, out.data(), 1},
                  pool);
  EXPECT_EQ(out[0], infinity);
  EXPECT_EQ(out[1], -infinity);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_TRUE(std::isnan(out[3])) << "infinity times zero";
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_EQ(out[5], infinity) << "a product beyond FP32";
}

// The tree over segments, not a running sum.
TEST(MatmulStage, SegmentsAddAsATree) {
  ThreadPool pool(1);
  const std::vector<int64_t> segments = {0, 1, 2, 3, 4};
  const PackedMatrix matrix = pack(std::vector<float>(4, 1.0f), 1, 4, segments, DType::kFloat32, pool);
  const RowsView w = MatmulRows::view(matrix);
  std::vector<float> products(static_cast<size_t>(4 * w.padded_n), 0.0f);
  const float parts[] = {1.0f, 0x1p-24f, 0x1p-24f, 0x1p-25f};
  for (int64_t s = 0; s < 4; ++s) products[static_cast<size_t>(s * w.padded_n)] = parts[s];
  float out = 0.0f;
  finish_products({products.data(), count_of(1), 0, 1, 1, w, 1, nullptr, nullptr, &out, 1}, pool);
  EXPECT_EQ(out, (parts[0] + parts[1]) + (parts[2] + parts[3]));
  EXPECT_NE(out, ((parts[0] + parts[1]) + parts[2]) + parts[3]);
}

}  // namespace
}  // namespace helios
