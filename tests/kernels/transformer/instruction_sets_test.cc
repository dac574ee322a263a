// X1 across machines: every instruction set that this processor has and the kernels were compiled for gives the same
// bits, the baseline without fused multiply-adds excepted, which rounds each product and is only near.
#include <hwy/targets.h>

#include <algorithm>
#include <map>

#include "kernels/base/aligned_buffer.h"
#include "kernels/transformer/attention.h"
#include "kernels/transformer/layers.h"
#include "kernels/transformer/matmul.h"
#include "tests/kernels/transformer/kernel_test_data.h"

namespace helios {
namespace {

using testing::count_of;
using testing::random_floats;

/// Dispatches to one target only.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

bool fuses(int64_t target) { return (target & (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_SSE4)) == 0; }

/// Every third row is as it was, every third of sums that are partly subnormal, every third subnormal itself.
std::vector<float> rounded_and_tiny(std::vector<float> x, int64_t k) {
  constexpr float kScales[] = {1.0f, 0x1p-124f, 0x1p-129f};
  for (size_t i = 0; i < x.size(); ++i) x[i] = round_to_bf16(x[i] * kScales[static_cast<int64_t>(i) / k % 3]);
  return x;
}

/// `scale_columns` of 8-bit weights. `inputs`: what x is rounded to.
std::vector<float> products(DType dtype, int64_t scale_columns, DType inputs, int64_t m, ThreadPool& pool) {
  const int64_t n = 70, k = 150;
  const std::vector<float> weights = random_floats(n * k, 1), bias = random_floats(n, 3);
  std::vector<float> x = random_floats(m * k, 2);
  if (inputs == DType::kBFloat16) x = rounded_and_tiny(std::move(x), k);
  WeightRows rows{weights.data(), DType::kFloat32, n, k};
  std::vector<uint8_t> codes;
  const std::vector<float> scales(static_cast<size_t>(n * 5), 0.02f);
  if (is_eight_bit(dtype)) {
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<uint8_t>(i * 89 % 127 + i % 2 * 128));
    rows = {codes.data(), dtype, n, k, scales.data(), 5, scale_columns};
  }
  const std::vector<int64_t> segments = {0, 37, 75, 112, 150};
  testing::HostStore store(pool);
  const PackedMatrix w = PackedMatrix::pack(std::span(&rows, 1), 0, k, segments, dtype, store);  // for this target
  AlignedBuffer scratch(static_cast<size_t>(matmul_scratch_bytes(w, m, pool.num_threads())));
  std::vector<float> out(static_cast<size_t>(m * n));
  const float* const added = inputs == DType::kFloat32 ? bias.data() : nullptr;  // nothing to hide small sums behind
  matmul({x.data(), k, &w, added, out.data(), n, count_of(m), 0, m, inputs}, scratch.data(), pool);
  return out;
}

/// Every code of F16 is worth its value, in both halves of a pair of k; the other is zero.
void expect_f16_is_exact(int64_t m, ThreadPool& pool) {
  const int64_t n = 2 * 65536, k = 2;
  std::vector<uint16_t> codes(static_cast<size_t>(n * k), 0);
  for (int64_t r = 0; r < n; ++r) codes[static_cast<size_t>(r * k + r / 65536)] = static_cast<uint16_t>(r * 257);
  const WeightRows rows{codes.data(), DType::kFloat16, n, k};
  const std::vector<int64_t> segments = {0, k};
  testing::HostStore store(pool);
  const PackedMatrix w = PackedMatrix::pack(std::span(&rows, 1), 0, k, segments, DType::kFloat16, store);
  AlignedBuffer scratch(static_cast<size_t>(matmul_scratch_bytes(w, m, pool.num_threads())));
  const std::vector<float> ones(static_cast<size_t>(m * k), 1.0f);
  std::vector<float> out(static_cast<size_t>(m * n));
  matmul({ones.data(), k, &w, nullptr, out.data(), n, count_of(m), 0, m}, scratch.data(), pool);
  for (int64_t i = 0; i < m * n; ++i) {
    const float value = f16_to_float(static_cast<uint16_t>(i % n * 257)), got = out[static_cast<size_t>(i)];
    ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << i % n * 257 << " of " << m << ": " << got;
  }
}

std::vector<float> row_operations(ThreadPool& pool) {
  const int64_t rows = 3, hidden = 133;
  const std::vector<float> x = random_floats(rows * 2 * hidden, 4, 3.0f), weight = random_floats(hidden, 5);
  std::vector<float> out(static_cast<size_t>(rows * hidden)), gated(out), sum(out);
  rms_norm({x.data(), hidden, nullptr, weight.data(), 1e-6f, count_of(rows), rows, hidden, out.data(), hidden}, pool);
  gated_mlp({x.data(), count_of(rows), rows, hidden, gated.data()}, pool);
  add_partials({x.data(), 2, count_of(rows), rows, hidden, weight.data(), sum.data()}, pool);
  out.insert(out.end(), gated.begin(), gated.end());
  out.insert(out.end(), sum.begin(), sum.end());
  return out;
}

/// Everything that rounding has to tell apart, rounded.
std::vector<float> roundings(DType round, ThreadPool& pool) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7fc00000u; bits += 0xff1u) values.push_back(std::bit_cast<float>(bits));
  const std::vector<int32_t> token = {0};
  std::vector<float> out(values.size());
  embed({values.data(), DType::kFloat32, static_cast<int64_t>(values.size()), token.data(), count_of(1), 1, out.data(),
         round},
        pool);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(round_to_dtype(round, values[i]))) << values[i];
  }
  return out;
}

std::vector<float> attention(ThreadPool& pool) {
  const int dim = 20, rows = 50;
  const int64_t width = 4 * dim;  // two query heads, one KV head
  std::vector<float> qkv = random_floats(rows * width, 6), norm = random_floats(2 * dim, 7);
  std::vector<float> keys(2 * dim * kKvBlockSize), values(keys), out(rows * 2 * dim);
  const std::vector<float> cosines(rows * dim / 2, 0.8f), sines(rows * dim / 2, 0.6f);
  std::vector<int32_t> positions(rows);
  for (int i = 0; i < rows; ++i) positions[static_cast<size_t>(i)] = i;
  const std::vector<int32_t> slots(rows, 0), table = {1, 0}, kv_of_q = {0, 0};
  const AttentionShape shape{2, 1, dim, kv_of_q.data(), 0.22f, 0};
  const AttentionRows step{positions.data(), slots.data(), table.data(), 2, count_of(rows), rows};
  RopeAndCacheArgs rope{qkv.data(), width, shape, step, norm.data(), norm.data() + dim, 1e-6f};
  rope.rope = {cosines.data(), sines.data()};
  rope.cache = {keys.data(), values.data()};
  rope_and_cache(rope, pool);
  AlignedBuffer scratch(static_cast<size_t>(attention_scratch_bytes(shape, step, pool.num_threads())));
  paged_attention({qkv.data(), width, shape, step, rope.cache, out.data(), 2 * dim}, scratch.data(), pool);
  out.insert(out.end(), qkv.begin(), qkv.end());
  return out;
}

std::vector<float> everything() {
  ThreadPool pool(2);
  std::vector<float> all;
  const auto add = [&](const std::vector<float>& part) { all.insert(all.end(), part.begin(), part.end()); };
  for (const auto& [dtype, scale_columns] : {std::pair{DType::kFloat32, 0},
                                             {DType::kBFloat16, 0},
                                             {DType::kFloat16, 0},
                                             {DType::kInt8, 150},
                                             {DType::kFloat8E4M3, 150},
                                             {DType::kFloat8E4M3, 32}}) {
    for (const int64_t m : {1, 2, 7, 60}) add(products(dtype, scale_columns, DType::kFloat32, m, pool));
  }
  for (const auto& [dtype, scale_columns] : {std::pair{DType::kBFloat16, 0},
                                             {DType::kInt8, 150},
                                             {DType::kInt8, 33},
                                             {DType::kFloat8E4M3, 150},
                                             {DType::kFloat8E4M3, 32}}) {
    for (const int64_t m : {1, 3, 7, 12, 60}) add(products(dtype, scale_columns, DType::kBFloat16, m, pool));
  }
  for (const int64_t m : {1, 7, 60}) expect_f16_is_exact(m, pool);
  add(row_operations(pool));
  for (const DType round : {DType::kBFloat16, DType::kFloat16}) {
    for (const float value : roundings(round, pool)) all.push_back(std::isfinite(value) ? value : 0.0f);
  }
  add(attention(pool));
  return all;
}

TEST(InstructionSets, X1_GiveTheSameBitsWhereTheyFuseAndAreNearWhereNot) {
  std::vector<float> fused, unfused;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    const std::vector<float> got = everything();
    std::vector<float>& expected = fuses(target) ? fused : unfused;
    if (expected.empty()) expected = got;
    EXPECT_EQ(testing::bits_of(got.data(), static_cast<int64_t>(got.size())),
              testing::bits_of(expected.data(), static_cast<int64_t>(expected.size())));
  }
  if (fused.empty() || unfused.empty()) return;  // one kind only: nothing to be near to
  ASSERT_EQ(fused.size(), unfused.size());
  for (size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(fused[i], unfused[i], 2e-5 + 2e-6 * std::fabs(fused[i])) << i;
}

}  // namespace
}  // namespace helios
