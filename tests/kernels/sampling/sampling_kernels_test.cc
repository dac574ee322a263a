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

TEST(Philox, EveryTokenHasItsOwnWord) {
  std::vector<uint32_t> words;
  for (TokenId id = 0; id < 100000; ++id) words.push_back(token_noise(12345, 7, id));
  double mean = 0.0;
  for (const uint32_t word : words) mean += word * 0x1p-32 / static_cast<double>(words.size());
  EXPECT_NEAR(mean, 0.5, 5 * 0.289 / std::sqrt(100000.0));
  std::sort(words.begin(), words.end());
  // Distinct counters give distinct 128-bit blocks; 32-bit words collide about 1.2 times in 100,000.
  const auto distinct = std::unique(words.begin(), words.end()) - words.begin();
  EXPECT_GT(distinct, 99985);
  EXPECT_NE(token_noise(1, 2, 3), token_noise(2, 2, 3));
  EXPECT_NE(token_noise(1, 2, 3), token_noise(1, 3, 3));
  EXPECT_NE(token_noise(1ull << 32, 2, 3), token_noise(0, 2, 3));
}

TEST(Philox, GumbelStaysWithinItsBounds) {
  EXPECT_LT(gumbel(0), 22.9);
  EXPECT_GT(gumbel(~0u), -3.2);
  EXPECT_TRUE(std::isfinite(gumbel(~0u)));
  for (uint32_t bits = 1; bits != 0; bits <<= 1) EXPECT_GT(gumbel(bits - 1), gumbel(bits));
}

struct OneRow {
  explicit OneRow(std::vector<float> values, SamplingRow parameters = {})
      : logits(std::move(values)),
        shard(make_shard_tiles(VocabLayout(static_cast<int64_t>(logits.size())), Rank(0), 1)),
        pool(2),
        row(parameters),
        scans(shard.num_tiles()),
        lane_max(shard.num_tiles() * kTileLanes) {
    const int64_t stride = static_cast<int64_t>(logits.size());
    row_scan({.logits = logits.data(),
              .stride = stride,
              .rows = &row,
              .num_rows = 1,
              .shard = &shard,
              .scans = scans.data(),
              .lane_max = lane_max.data()},
             pool);
    row_summary({.logits = logits.data(),
                 .stride = stride,
                 .rows = &row,
                 .num_rows = 1,
                 .shard = &shard,
                 .scans = scans.data(),
                 .lane_max = lane_max.data()},
                pool);
  }

  std::vector<uint64_t> bins(const ThresholdSearch& search) {
    std::vector<uint64_t> thread_bins(2 * kSearchBins), bins(kSearchBins);
    search_bins({.logits = logits.data(),
                 .stride = static_cast<int64_t>(logits.size()),
                 .rows = &row,
                 .scans = scans.data(),
                 .shard = &shard,
                 .searches = &search,
                 .num_searches = 1,
                 .thread_bins = thread_bins.data(),
                 .bins = bins.data()},
                pool);
    return bins;
  }

  float search(ThresholdSearch search, int* rounds = nullptr) {
    search.low = ordered_bits(row.floor);
    search.high = ordered_bits(row.max);
    for (int round = 1;; ++round) {
      if (rounds) *rounds = round;
      if (search.descend(bins(search).data())) return from_ordered_bits(search.low);
    }
  }

  std::vector<float> logits;
  ShardTiles shard;
  ThreadPool pool;
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
  const auto logits = testing::model_like_row(20011, 3);
  auto sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  OneRow run(logits);
  for (const int k : {1, 2, 20, 255, 256, 1000, 20010, 20011}) {
    int rounds = 0;
    EXPECT_EQ(run.search({.target = static_cast<uint64_t>(k)}, &rounds), sorted[k - 1]) << k;
    EXPECT_LE(rounds, 4);
  }
  EXPECT_EQ(run.search({.target = 20012}), run.row.floor);  // more than there are: everything stays
}

TEST(ThresholdSearch, MassIsThatOfFloat64) {
  for (const float temperature : {0.3f, 1.0f, 2.5f}) {
    SamplingRow parameters;
    parameters.temperature = temperature;
    const auto logits = testing::model_like_row(20011, 13);
    OneRow run(logits, parameters);
    const int32_t index = 0;
    const float near = run.row.max - 5.0f;
    std::vector<SurvivorMass> tile_masses(run.shard.num_tiles());
    SurvivorMass mass;
    survivor_mass({.logits = logits.data(),
                   .stride = 20011,
                   .rows = &run.row,
                   .scans = run.scans.data(),
                   .shard = &run.shard,
                   .indices = &index,
                   .nears = &near,
                   .num_rows = 1,
                   .tile_masses = tile_masses.data(),
                   .masses = &mass},
                  run.pool);
    double total = 0.0, upper = 0.0;
    for (const float logit : logits) {
      const double weight = std::exp((static_cast<double>(logit) - run.row.max) / temperature);
      total += weight;
      if (logit >= near) upper += weight;
    }
    EXPECT_NEAR(static_cast<double>(mass.total) * 0x1p-40 / total, 1.0, 1e-6);
    EXPECT_NEAR(static_cast<double>(mass.near) * 0x1p-40 / upper, 1.0, 1e-6);
    // The bins of a round hold the same integers.
    ThresholdSearch search{.by_mass = true, .low = ordered_bits(near), .high = ordered_bits(run.row.max)};
    uint64_t binned = 0;
    for (const uint64_t bin : run.bins(search)) binned += bin;
    EXPECT_EQ(binned, mass.near);
  }
}

TEST(GumbelDraw, SkipsNothingThatWins) {  // the bound on noise is only a matter of speed
  testing::Random random(3);
  for (int trial = 0; trial < 150; ++trial) {
    const int64_t vocab = 1 + random.below(6000);
    SamplingRow parameters;
    const float temperatures[] = {1e-4f, 0.1f, 0.7f, 1.0f, 3.0f, 1000.0f};
    parameters.temperature = temperatures[trial % 6];
    parameters.seed = random.bits();
    parameters.position = trial;
    std::vector<float> logits =
        trial % 4 == 0 ? std::vector<float>(vocab, 2.0f) : testing::model_like_row(vocab, trial);
    if (trial % 4 == 3) {
      for (float& logit : logits) logit *= 0.01f;  // nearly uniform
    }
    OneRow run(logits, parameters);
    std::vector<SampledToken> tile_best(run.shard.num_tiles());
    SampledToken best;
    gumbel_draw({.logits = logits.data(),
                 .stride = vocab,
                 .rows = &run.row,
                 .num_rows = 1,
                 .shard = &run.shard,
                 .scans = run.scans.data(),
                 .tile_best = tile_best.data(),
                 .best = &best},
                run.pool);
    const reference::SamplingDefinition definition{.temperature = parameters.temperature};
    // FP64 of a float temperature: the same numbers, so the same token.
    ASSERT_EQ(best.id, reference::sampled_token(logits, definition, parameters.seed, parameters.position)) << trial;
  }
}

}  // namespace
}  // namespace helios
