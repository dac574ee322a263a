// Philox and the sampling launches one by one against FP64. Their composition is tested in tests/worker/replay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/logprobs/sort_key.h"
#include "kernels/sampling/gumbel_draw.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/threshold_search.h"
#include "kernels/sampling/token_offers.h"
#include "tests/support/logit_rows.h"

namespace helios {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Known answers of the Random123 distribution.
static_assert(philox4x32({0, 0, 0, 0}, 0) == PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
static_assert(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull) ==
              PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
static_assert(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822ull) ==
              PhiloxWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});

TEST(Philox, EveryTokenHasItsOwnUniform) {
  std::vector<double> uniforms;
  for (TokenId id = 0; id < 100000; ++id) uniforms.push_back(token_uniform({12345, 7}, id));
  std::sort(uniforms.begin(), uniforms.end());
  // Kolmogorov-Smirnov: below 1.95 / sqrt(n) in all but one of a thousand seeds.
  double distance = 0.0;
  const double n = static_cast<double>(uniforms.size());
  for (size_t i = 0; i < uniforms.size(); ++i) {
    distance =
        std::max({distance, uniforms[i] - static_cast<double>(i) / n, (static_cast<double>(i) + 1) / n - uniforms[i]});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(n));
  EXPECT_GT(std::unique(uniforms.begin(), uniforms.end()) - uniforms.begin(), 99985);
  EXPECT_NE(token_uniform({1, 2}, 3), token_uniform({2, 2}, 3));
  EXPECT_NE(token_uniform({1, 2}, 3), token_uniform({1, 3}, 3));
  EXPECT_NE(token_uniform({1ull << 32, 2}, 3), token_uniform({0, 2}, 3));
}

TEST(Philox, ABlocksUniformsAreIndependent) {  // the smallest first, then the others: no trace of the construction
  // Pairs in one block, over many positions: uniform on the square, 8 x 8 cells.
  const int draws = 32000;
  std::vector<int> cells(64);
  std::vector<int> least_at(kNoiseBlock);
  for (int position = 0; position < draws; ++position) {
    const NoiseKey key{99, position};
    ++cells[static_cast<int>(token_uniform(key, 70) * 8) * 8 + static_cast<int>(token_uniform(key, 101) * 8)];
    if (position < 6400) {
      TokenId least = 64;
      for (TokenId id = 65; id < 128; ++id) {
        if (token_uniform(key, id) < token_uniform(key, least)) least = id;
      }
      ++least_at[least - 64];
    }
  }
  const auto chi_square = [](const std::vector<int>& counts, double expected) {
    double sum = 0.0;
    for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
    return sum;
  };
  EXPECT_LT(chi_square(cells, draws / 64.0), 63 + 4 * std::sqrt(2.0 * 63));
  EXPECT_LT(chi_square(least_at, 100.0), 63 + 4 * std::sqrt(2.0 * 63));
}

TEST(Philox, GumbelStaysWithinItsBounds) {
  EXPECT_LT(gumbel(block_least(0)), kMaxGumbel);
  EXPECT_GT(gumbel(block_least(0)), kMaxGumbel - 0.01);
  EXPECT_TRUE(std::isfinite(gumbel(above_least(block_least(~0u), ~0u))));
  for (double uniform = 1e-12; uniform < 1.0; uniform *= 1.5) EXPECT_LE(gumbel(uniform), -std::log(uniform));
}

// One row through the launches that all rows go through, on one rank.
struct OneRow {
  explicit OneRow(std::vector<float> values, SamplingRow parameters = {})
      : logits(std::move(values)),
        shard(make_shard_tiles(VocabLayout(static_cast<int64_t>(logits.size())), Rank(0), 1)),
        view{shard.tiles.data(), shard.num_tiles(), shard.first_id, shard.width},
        pool(2),
        row(parameters),
        scans(shard.num_tiles()),
        lane_max(shard.num_tiles() * kTileLanes) {
    row.slot = 0;
    row.logits = logits.data();
    scan_rows({.logits = logits.data(),
               .stride = static_cast<int64_t>(logits.size()),
               .num_rows = &one,
               .max_rows = 1,
               .rows = &row,
               .shard = view,
               .scans = scans.data(),
               .lane_max = lane_max.data()},
              pool);
    summarize_rows({.num_rows = &one,
                    .max_rows = 1,
                    .rows = &row,
                    .shard = view,
                    .scans = scans.data(),
                    .lane_max = lane_max.data()},
                   pool);
  }

  float search(ThresholdSearch search, int* rounds = nullptr) {
    std::vector<uint64_t> bins(kSearchBins);
    int32_t active = 0, num_active = 1, finished_blocks = 0;
    StepCounters counters;
    SamplingRow found = row;  // the search's end is the row's floor; no other search follows
    found.floor = -std::numeric_limits<float>::infinity();
    found.top_p = 1.0f;
    for (int round = 1; num_active > 0; ++round) {
      if (rounds) *rounds = round;
      search_bins({.rows = &row,
                   .scans = scans.data(),
                   .shard = view,
                   .searches = &search,
                   .active = &active,
                   .num_active = &num_active,
                   .max_rows = 1,
                   .bins = bins.data()},
                  pool);
      descend_searches({.rows = &found,
                        .searches = &search,
                        .active = &active,
                        .num_active = &num_active,
                        .max_rows = 1,
                        .bins = bins.data(),
                        .finished_blocks = &finished_blocks,
                        .counters = &counters},
                       pool);
    }
    return found.floor;
  }
  float kth_largest(int k, int* rounds = nullptr) {
    return search(ThresholdSearch::by_count(0, row.floor, row.max, static_cast<uint64_t>(k)), rounds);
  }

  std::vector<float> logits;
  ShardTiles shard;
  TilesView view;
  ThreadPool pool;
  int32_t one = 1;
  SamplingRow row;
  std::vector<TileScan> scans;
  std::vector<float> lane_max;
};

TEST(RowScan, FindsTheMaximumItsSmallestIdAndNan) {
  for (const int64_t vocab : {1, 15, 17, 515, 5000, 40001}) {
    auto logits = testing::model_like_row(vocab, vocab);
    const auto at = std::max_element(logits.begin(), logits.end()) - logits.begin();
    OneRow run(logits);
    EXPECT_EQ(run.row.max, logits[at]);
    EXPECT_EQ(run.row.arg_max, at);
    EXPECT_FALSE(run.row.broken);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
      auto broken = logits;
      broken[vocab - 1] = bad;
      EXPECT_TRUE(OneRow(broken).row.broken);
      broken = logits;
      broken[0] = bad;
      EXPECT_TRUE(OneRow(broken).row.broken);
    }
    logits[vocab - 1] = -kInf;  // probability zero is no fault
    EXPECT_FALSE(OneRow(logits).row.broken);
  }
  std::vector<float> zeros(5000, -1.0f);
  zeros[4321] = 0.0f;
  zeros[2222] = -0.0f;  // ties with +0
  EXPECT_EQ(OneRow(zeros).row.arg_max, 2222);
}

TEST(RowScan, CountBoundNeverExceedsTheKthLargest) {
  for (const int k : {1, 5, 50, 300, 5000}) {
    SamplingRow parameters;
    parameters.top_k = k;
    const auto logits = testing::model_like_row(40001, 5);
    OneRow run(logits, parameters);
    auto sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    EXPECT_LE(run.row.count_bound, sorted[k - 1]);
    if (k <= 50) {
      EXPECT_GE(run.row.count_bound, sorted[2 * k + 10]);  // close enough to be of use
    }
  }
}

TEST(ThresholdSearch, FindsTheKthLargestLogit) {
  for (const float spread : {1.0f, 1e-3f, 50.0f, 1e20f, 1e-28f, 1e36f}) {
    auto logits = testing::model_like_row(20011, 3);
    for (float& logit : logits) logit *= spread;
    auto sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    OneRow run(logits);
    for (const int k : {1, 2, 20, 255, 256, 1000, 20010, 20011}) {
      int rounds = 0;
      EXPECT_EQ(run.kth_largest(k, &rounds), sorted[k - 1]) << k << " of spread " << spread;
      EXPECT_LE(rounds, kLinearRounds + kRadixRounds);
    }
    EXPECT_EQ(run.kth_largest(20012), run.row.floor);  // more than there are: everything stays
  }
}

TEST(ThresholdSearch, EqualAndSignedZeroLogits) {
  OneRow equal(std::vector<float>(700, -2.5f));
  EXPECT_EQ(equal.kth_largest(1), -2.5f);
  EXPECT_EQ(equal.kth_largest(700), -2.5f);
  std::vector<float> zeros(700, -1.0f);
  for (int i = 0; i < 10; ++i) zeros[i * 70] = i % 2 ? 0.0f : -0.0f;
  OneRow signed_zero(zeros);
  EXPECT_EQ(signed_zero.kth_largest(10), 0.0f);
  EXPECT_EQ(signed_zero.kth_largest(11), -1.0f);
}

TEST(ThresholdSearch, FindsTheShareOfMass) {
  for (const float temperature : {0.05f, 0.3f, 1.0f, 2.5f, 40.0f}) {
    const auto logits = testing::model_like_row(20011, 13);
    SamplingRow parameters;
    parameters.temperature = temperature;
    OneRow run(logits, parameters);
    auto sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    std::vector<double> mass_from_top;
    double total = 0.0;
    for (const float logit : sorted) {
      total += std::exp((static_cast<double>(logit) - run.row.max) / temperature);
      mass_from_top.push_back(total);
    }
    for (const float share : {0.0f, 0.05f, 0.5f, 0.9f, 0.99f, 0.9999f}) {
      const float found = run.search(ThresholdSearch::by_share(0, run.row.floor, run.row.max, share, temperature));
      // FP32 weights: the crossing is exact but for shares within 1e-6 of it.
      const size_t kept = std::count_if(sorted.begin(), sorted.end(), [&](float logit) { return logit >= found; });
      ASSERT_GE(kept, 1u);
      EXPECT_GE(mass_from_top[kept - 1], (share - 1e-6) * total) << share << " at " << temperature;
      if (kept > 1) {
        EXPECT_LE(mass_from_top[kept - 2], (share + 1e-6) * total) << share << " at " << temperature;
      }
    }
  }
}

TEST(GumbelDraw, SkipsNothingThatWins) {  // the bound on noise is only a matter of speed
  testing::Random random(3);
  for (int trial = 0; trial < 90; ++trial) {
    const int64_t vocab = 1 + random.below(6000);
    SamplingRow parameters;
    const float temperatures[] = {1e-4f, 0.1f, 0.7f, 1.0f, 3.0f, 1000.0f};
    parameters.temperature = temperatures[trial % 6];
    parameters.noise = {random.bits(), trial};
    std::vector<float> logits =
        trial % 4 == 0 ? std::vector<float>(vocab, 2.0f) : testing::model_like_row(vocab, trial);
    if (trial % 4 == 3) {
      for (float& logit : logits) logit *= 0.01f;  // nearly uniform
    }
    OneRow run(logits, parameters);
    std::vector<SampledToken> tile_best(run.shard.num_tiles());
    gumbel_draw({.rows = &run.row,
                 .num_rows = &run.one,
                 .max_rows = 1,
                 .shard = run.view,
                 .scans = run.scans.data(),
                 .tile_best = tile_best.data()},
                run.pool);
    OfferMessage best;
    offer_tokens({.rows = &run.row,
                  .num_rows = &run.one,
                  .max_rows = 1,
                  .tile_best = tile_best.data(),
                  .num_tiles = run.shard.num_tiles(),
                  .offers = &best},
                 run.pool);
    const reference::SamplingDefinition definition{.temperature = parameters.temperature};
    // FP64 of a float temperature: the same numbers, so the same token.
    ASSERT_EQ(best.id, reference::sampled_token(logits, definition, parameters.noise.seed, parameters.noise.position))
        << trial;
  }
}

}  // namespace
}  // namespace helios
