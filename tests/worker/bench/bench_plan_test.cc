// Costs worked out by hand, and shares that follow from them.
#include "worker/bench/bench_plan.h"

#include <gtest/gtest.h>

#include "worker/bench/bench_report.h"

namespace helios {
namespace {

ModelConfig small() {
  ModelConfig c;
  c.hidden = 8;
  c.inner = 16;
  c.vocab_size = 100;
  c.num_layers = 3;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.max_positions = 1000;
  return c;
}

TEST(BenchPlan, HoldsWhatFitsTheContext) {
  EXPECT_EQ(bench_plan(small(), BenchContents::kPlain).size(), 5u);
  EXPECT_EQ(bench_plan(small()).size(), 11u);  // two prompts, three batches without and with logprobs, and sampled
  ModelConfig c = small();
  c.max_positions = 200;
  EXPECT_EQ(bench_plan(c).size(), 10u);
  c.max_positions = 79;
  EXPECT_TRUE(bench_plan(c).empty());
  int pairs = 0, sampled = 0;
  for (const BenchWork& work : bench_plan(small())) {
    if (work.logprobs == 20) ++pairs;
    if (work.sampled) ++sampled;
    if (!work.prefill) {
      EXPECT_EQ(work.tokens, work.batch * kBenchSteps);
    }
  }
  EXPECT_EQ(pairs, 3);
  EXPECT_EQ(sampled, 3);
}

TEST(BenchPlan, EveryScoredPrefillFollowsTheOrdinaryOne) {
  ModelConfig c = small();
  c.max_positions = 2048;
  const std::vector<BenchWork> plan = bench_plan(c, BenchContents::kScored);
  ASSERT_EQ(plan.size(), 6u);
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_TRUE(plan[i].prefill);
    EXPECT_EQ(plan[i].scored, i % 2 == 1);
    EXPECT_EQ(plan[i].tokens, i < 2 ? 128 : i < 4 ? 512 : 2048);
  }
  const BenchCost ordinary = bench_cost(plan[4], c, 1, 5000, 4), scored = bench_cost(plan[5], c, 1, 5000, 4);
  EXPECT_EQ(scored.flops - ordinary.flops, 2 * 2047.0 * 800) << "the head, once more for each prompt token but one";
  EXPECT_EQ(ordinary.bytes, 4 * 5000 + 2048 * 2 * 3 * 2 * 4 * 2 * 4.0) << "four chunks read the weights";
  EXPECT_EQ(bench_plan(small(), BenchContents::kScored).size(), 4u);
}

// X2 is a ratio of two figures: they are of the same work, and lie side by side so that the machine's mood strikes
// both.
TEST(BenchPlan, X2_EveryDecodeIsFollowedByTheSameWithLogprobs) {
  const std::vector<BenchWork> plan = bench_plan(small());
  int plain = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].prefill || plan[i].sampled || plan[i].logprobs > 0) continue;
    ++plain;
    ASSERT_LT(i + 1, plan.size());
    EXPECT_EQ(plan[i + 1].logprobs, 20);
    EXPECT_EQ(plan[i + 1].batch, plan[i].batch);
    EXPECT_EQ(plan[i + 1].tokens, plan[i].tokens);
    EXPECT_FALSE(plan[i + 1].sampled);
  }
  EXPECT_EQ(plain, 3);
}

TEST(BenchPlan, CostsAreThoseOfTheArithmetic) {
  // A layer: q 8x16, k and v 8x8 each, o 16x8, three of 8x16: 768 parameters. Cache: 3 layers, 2 heads, 4 wide, two, 4
  // B.
  const double layers = 3 * 768, head = 800, position = 3 * 2 * 4 * 2 * 4;
  const BenchCost prefill = bench_cost({.prefill = true, .tokens = 10}, small(), 1, 5000, 4);
  EXPECT_EQ(prefill.bytes, 5000 + 10 * 2 * position);
  EXPECT_EQ(prefill.flops, 2 * (10 * layers + head) + 55 * 4 * 3 * 4 * 4);  // 1 + 2 + ... + 10 keys

  const BenchCost decode = bench_cost({.tokens = 2 * kBenchSteps, .batch = 2}, small(), 1, 5000, 4);
  double keys = 0;
  for (int step = 0; step < kBenchSteps; ++step) keys += 2 * (kBenchContext + step + 1);
  EXPECT_EQ(decode.bytes, kBenchSteps * 5000.0 + (keys + 2 * kBenchSteps) * position);
  EXPECT_EQ(decode.flops, 2 * 2 * kBenchSteps * (layers + head) + keys * 4 * 3 * 4 * 4);
}

TEST(BenchPlan, ReplicatedHeadsAreReadByEveryRank) {
  const BenchWork work{.prefill = true, .tokens = 1};
  const double one = bench_cost(work, small(), 1, 0, 4).bytes;
  EXPECT_EQ(bench_cost(work, small(), 2, 0, 4).bytes, one);
  EXPECT_EQ(bench_cost(work, small(), 4, 0, 4).bytes, 2 * one);
  EXPECT_EQ(bench_cost(work, small(), 1, 0, 2).bytes, one / 2) << "in BF16";
}

TEST(BenchReport, FiguresAreMediansAndShares) {
  const BenchFigure f =
      bench_figure({.tokens = 100, .batch = 4}, {.bytes = 2e9, .flops = 8e9},
                   {.read_gb_per_s = 10, .fma_gflop_per_s = 100}, {9.0, 0.5, 0.4}, {.all = 700, .sampler = 50});
  EXPECT_DOUBLE_EQ(f.tokens_per_s, 200);
  EXPECT_DOUBLE_EQ(f.bytes_per_token, 2e7);
  EXPECT_DOUBLE_EQ(f.share_of_bandwidth, 0.4);
  EXPECT_DOUBLE_EQ(f.share_of_fma, 0.16);
  EXPECT_DOUBLE_EQ(f.words_per_token, 7);
  EXPECT_DOUBLE_EQ(f.sampler_words_per_token, 0.5);
}

}  // namespace
}  // namespace helios
