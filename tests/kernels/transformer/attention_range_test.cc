// Attention over numbers of every size: wide exponents, sums that cancel, digits whose pieces of BF16 are as large as
// they can be. An output may be off by what FP32 multiply-adds make of such inputs, no more: on tensor cores some
// products of pieces are left out, and too many would show here first.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/aligned_buffer.h"
#include "kernels/transformer/attention.h"
#include "tests/kernels/transformer/kernel_test_data.h"

namespace helios {
namespace {

constexpr int kKeys = testing::kEmulatedDevice ? 150 : 280, kDim = 64, kQueryHeads = 2;
constexpr int kRangeBlocks = (kKeys + kKvBlockSize - 1) / kKvBlockSize;

// In units of 2^-24 of what an output's error is a sum of: |weight * value|, and that times the score's own error, in
// units of the sum of |query * key|. On CUDA, FP32 multiply-adds came to 1.7 over 300 keys, the six products of pieces
// that the kernel keeps to 1.4 (eight or nine: 1.6, noise), the first three alone to 10 and more.
// The CPU adds all that a row sees one after another, where a GPU begins anew every 32 positions: 4.5, of positive
// values.
#if defined(HELIOS_EMULATED_DEVICE) || defined(HELIOS_CUDA_DEVICE)
constexpr double kRangeTolerance = 2.0;
#else
constexpr double kRangeTolerance = 6.0;
#endif

/// One slot's queries, keys and values, filled by a rule.
struct RangeInputs {
  std::vector<float> queries = std::vector<float>(kKeys * row_floats());
  std::vector<float> keys = std::vector<float>(kRangeBlocks * kDim * kKvBlockSize);
  std::vector<float> values = keys;

  static int64_t row_floats() { return (kQueryHeads + 2) * kDim; }
  float& query(int row, int head, int i) { return queries[row * row_floats() + head * kDim + i]; }
  float& key(int j, int i) { return keys[(j / kKvBlockSize * kDim + i) * kKvBlockSize + j % kKvBlockSize]; }
  float& value(int j, int i) { return values[j * kDim + i]; }
};

enum class Rule { kNormal, kWide, kCancelling, kBadDigits, kPositive };

RangeInputs filled(Rule rule) {
  std::mt19937 engine(91);
  std::normal_distribution<float> normal;
  const auto sized = [&](float x, int most) {
    return std::ldexp(x, static_cast<int>(engine() % (2 * most + 1)) - most);
  };
  // Rounded to BF16 twice, both rests are about as large as they can be.
  const auto bad = [&] { return sized(normal(engine) < 0 ? -0x1.00fe0cp0f : 0x1.00fe0cp0f, 1); };
  std::vector<int> exponents(kDim);
  for (int& exponent : exponents) exponent = static_cast<int>(engine() % 61) - 30;
  RangeInputs in;
  const auto fill = [&](float& x, int i, const float* neighbour, bool is_query, bool is_value) {
    x = normal(engine);
    if (rule == Rule::kWide) x = is_value ? sized(x, 20) : std::ldexp(x, is_query ? exponents[i] : -exponents[i]);
    if (rule == Rule::kCancelling && neighbour) {
      x = is_query ? *neighbour : -*neighbour * (1.0f + 0x1p-9f * x);
    } else if (rule == Rule::kCancelling) {
      x *= 20.0f;
    }
    if (rule == Rule::kBadDigits) x = bad();
    if (rule == Rule::kPositive) x = std::fabs(x);
  };
  for (int row = 0; row < kKeys; ++row) {
    for (int i = 0; i < kQueryHeads * kDim; ++i) {
      float& x = in.query(row, 0, i);
      fill(x, i % kDim, i % 2 ? &x - 1 : nullptr, true, false);
    }
    for (int i = 0; i < kDim; ++i) {
      fill(in.key(row, i), i, i % 2 ? &in.key(row, i - 1) : nullptr, false, false);
      fill(in.value(row, i), i, row % 2 ? &in.value(row - 1, i) : nullptr, false, true);
    }
  }
  return in;
}

/// A row's outputs in float64, and the unit of the tolerance for each.
void attend_in_float64(RangeInputs& in, int row, int head, float scale, double* out, double* unit) {
  std::vector<double> weights, errors;  // of scores, in units of 2^-24
  for (int j = 0; j <= row; ++j) {
    double score = 0, terms = 0;
    for (int i = 0; i < kDim; ++i) {
      const double product = static_cast<double>(in.query(row, head, i)) * in.key(j, i);
      score += product, terms += std::fabs(product);
    }
    weights.push_back(score * scale), errors.push_back(terms * scale);
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  double mass = 0, mean_error = 0;
  for (double& weight : weights) mass += weight = std::exp(weight - highest);
  for (int j = 0; j <= row; ++j) mean_error += weights[j] / mass * errors[j];
  for (int i = 0; i < kDim; ++i) {
    out[i] = unit[i] = 0;
    for (int j = 0; j <= row; ++j) {
      const double term = weights[j] / mass * in.value(j, i);
      out[i] += term, unit[i] += std::fabs(term) * (1 + errors[j] + mean_error) * 0x1p-24;
    }
  }
}

TEST(PagedAttention, NumbersOfEverySizeMeetFloat64AsFp32MultiplyAddsDo) {
  ThreadPool pool(1);
  for (const Rule rule : {Rule::kNormal, Rule::kWide, Rule::kCancelling, Rule::kBadDigits, Rule::kPositive}) {
    RangeInputs in = filled(rule);
    const float scale = rule == Rule::kPositive || rule == Rule::kBadDigits ? 0x1p-5f : 0x1p-3f;
    const std::vector<int32_t> kv_of_q(kQueryHeads, 0);
    std::vector<int32_t> positions(kKeys), slots(kKeys, 0), table(kRangeBlocks);
    std::iota(positions.begin(), positions.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    const AttentionRows rows{positions.data(), slots.data(), table.data(), kRangeBlocks,
                             testing::count_of(kKeys), kKeys};
    const AttentionShape shape{kQueryHeads, 1, kDim, kv_of_q.data(), scale, 0};
    testing::GuardedFloats out(kKeys * kQueryHeads * kDim);
    AlignedBuffer scratch(static_cast<size_t>(attention_scratch_bytes(shape, rows, 1)));
    paged_attention({in.queries.data(), RangeInputs::row_floats(), shape, rows,
                     {in.keys.data(), in.values.data(), DType::kFloat32}, out.data(), kQueryHeads * kDim},
                    scratch.data(), pool);
    double worst = 0;
    for (int row = 0; row < kKeys; row += row < 40 ? 1 : 7) {
      for (int head = 0; head < kQueryHeads; ++head) {
        double expected[kDim], unit[kDim];
        attend_in_float64(in, row, head, scale, expected, unit);
        for (int i = 0; i < kDim; ++i) {
          const double off = std::fabs(out[(row * kQueryHeads + head) * kDim + i] - expected[i]) / unit[i];
          worst = std::max(worst, std::isnan(off) ? INFINITY : off);
        }
      }
    }
    EXPECT_LT(worst, kRangeTolerance) << "rule " << static_cast<int>(rule);
  }
}

}  // namespace
}  // namespace helios
