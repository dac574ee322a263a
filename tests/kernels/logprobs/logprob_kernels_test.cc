// The reduction's launches one by one against FP64. Their composition is tested in tests/worker/replay.
//
// Tolerances. Mass of a tile: 3e-6 relative (2048 FP32 additions in 16 lanes, exp within 1.5e-7). Normaliser: half an
// ulp of its own rounding plus 3e-6.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/logprobs/best_keys.h"
#include "kernels/logprobs/reference.h"
#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_stats.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"
#include "tests/support/logit_rows.h"

namespace helios {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGuard = 12345.0f;

// Launches 1 to 3 over one row on one rank.
struct OneRow {
  explicit OneRow(std::vector<float> logits, int threads = 1)
      : row(std::move(logits)),
        shard(make_shard_tiles(VocabLayout(static_cast<int64_t>(row.size())), Rank(0), 1)),
        pool(threads),
        states(shard.num_tiles() + 1, {kGuard, kGuard}),
        lane_max((shard.num_tiles() + 1) * kTileLanes, kGuard),
        keys((shard.num_tiles() + 1) * kKeptSortKeys, 77),
        counts(shard.num_tiles() + 1, 77) {
    tile_stats({.logits = row.data(),
                .stride = static_cast<int64_t>(row.size()),
                .positions = &position,
                .num_positions = 1,
                .shard = &shard,
                .states = states.data(),
                .lane_max = lane_max.data()},
               pool);
    row_normalizer({.states = states.data(),
                    .lane_max = lane_max.data(),
                    .num_positions = 1,
                    .shard = &shard,
                    .normalizers = normalizers,
                    .cuts = cuts},
                   pool);
  }

  void find_candidates() {
    tile_candidates({.logits = row.data(),
                     .stride = static_cast<int64_t>(row.size()),
                     .positions = &position,
                     .num_positions = 1,
                     .shard = &shard,
                     .states = states.data(),
                     .normalizers = normalizers,
                     .cuts = cuts,
                     .keys = keys.data(),
                     .counts = counts.data()},
                    pool);
  }

  std::vector<SortKey> best() const {
    BestKeys best(kKeptSortKeys);
    for (int t = 0; t < shard.num_tiles(); ++t) {
      for (int i = 0; i < counts[t]; ++i) best.insert(keys[t * kKeptSortKeys + i]);
    }
    return {best.keys().begin(), best.keys().end()};
  }

  void expect_guards_untouched() const {
    EXPECT_EQ(states.back(), (LseState{kGuard, kGuard}));
    for (size_t i = lane_max.size() - kTileLanes; i < lane_max.size(); ++i) EXPECT_EQ(lane_max[i], kGuard);
    for (size_t i = keys.size() - kKeptSortKeys; i < keys.size(); ++i) EXPECT_EQ(keys[i], 77u);
    EXPECT_EQ(counts.back(), 77);
    EXPECT_EQ(normalizers[1], kGuard);
    EXPECT_EQ(cuts[1], kGuard);
  }

  std::vector<float> row;
  ShardTiles shard;
  ThreadPool pool;
  LogprobPosition position;
  std::vector<LseState> states;
  std::vector<float> lane_max;
  float normalizers[2] = {kGuard, kGuard};
  float cuts[2] = {kGuard, kGuard};
  std::vector<SortKey> keys;
  std::vector<int32_t> counts;
};

double ulp(double value) {
  const float magnitude = std::fabs(static_cast<float>(value));
  return std::nextafter(magnitude, kInf) - magnitude;
}

TEST(LseState, ExponentialIsExactAtZeroAndCloseElsewhere) {
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive(-kInf), 0.0f);
  EXPECT_EQ(exp_nonpositive(-88.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_nonpositive(kNan)));
  for (float x = 0.0f; x > -87.0f; x -= 0.00317f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exp_nonpositive(x) / exact, 1.0, 2e-7 - 2.8e-9 * x) << x;  // ln2 is rounded once
  }
}

TEST(LseState, MergeHasAnIdentityAndKeepsNan) {
  const LseState state{3.5f, 17.25f};
  EXPECT_EQ(merge(state, {}), state);
  EXPECT_EQ(merge({}, state), state);
  EXPECT_EQ(merge({}, {}), LseState{});
  EXPECT_TRUE(std::isnan(merge(state, {-kInf, kNan}).mass));
  EXPECT_TRUE(std::isnan(merge({kInf, 1.0f}, state).mass) || std::isinf(merge({kInf, 1.0f}, state).max));
  EXPECT_EQ(log_sum_exp({}), -kInf);
  EXPECT_TRUE(std::isnan(log_sum_exp({-kInf, kNan})));
}

TEST(SortKey, OrdersByValueThenSmallerId) {  // R6, R21
  const float values[] = {-kInf, -3.0e38f, -1.0f, -1e-45f, 0.0f, 1e-45f, 1.0f, 3.0e38f, kInf};
  for (size_t i = 1; i < std::size(values); ++i) EXPECT_LT(make_key(values[i - 1], 0), make_key(values[i], 2000000000));
  EXPECT_GT(make_key(-1.5f, 7), make_key(-1.5f, 8));
  EXPECT_EQ(make_key(-0.0f, 3), make_key(0.0f, 3));
  EXPECT_NE(make_key(-kInf, 2147483647), kNoKey);
  for (const float value : values) EXPECT_EQ(key_value(make_key(value, 5)), value);
  EXPECT_EQ(key_id(make_key(1.0f, 262143)), 262143);
}

TEST(BestKeys, KeepsTheLargestSorted) {
  testing::Random random(5);
  std::vector<SortKey> all;
  BestKeys best(20), none(0);
  for (int i = 0; i < 500; ++i) {
    all.push_back(random.bits());
    best.insert(all.back());
    none.insert(all.back());
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + 20, best.keys().begin(), best.keys().end()));
  EXPECT_TRUE(none.keys().empty());
}

TEST(VocabTiles, CoverEveryIdOnceAndNeverCrossASegment) {
  for (const int64_t vocab : {1, 15, 16, 17, 20, 129, 515, 4099, 32000, 151936, 262144}) {
    const VocabLayout layout(vocab);
    for (const int world : {1, 2, 4, 8}) {
      int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const ShardTiles shard = make_shard_tiles(layout, Rank(rank), world);
        ASSERT_EQ(shard.num_segments(), 8 / world);
        for (const VocabTile& tile : shard.tiles) {
          ASSERT_EQ(shard.first_id + tile.begin, next);
          ASSERT_EQ(tile.begin % kTileLanes, 0);
          ASSERT_TRUE(tile.width >= 1 && tile.width <= kTileWidth);
          ASSERT_EQ(next / layout.segment_width(), (next + tile.width - 1) / layout.segment_width());
          next += tile.width;
        }
      }
      ASSERT_EQ(next, vocab);
    }
  }
}

TEST(TileStats, MatchFloat64AtEveryWidth) {
  for (const int64_t vocab : {1, 2, 15, 16, 17, 31, 300, 515, 5000, 40001, 151936}) {
    OneRow run(testing::model_like_row(vocab, 11 + vocab));
    for (int t = 0; t < run.shard.num_tiles(); ++t) {
      const VocabTile& tile = run.shard.tiles[t];
      const auto exact = reference::tile_stats({run.row.data() + tile.begin, static_cast<size_t>(tile.width)});
      ASSERT_EQ(run.states[t].max, static_cast<float>(exact.max));
      ASSERT_NEAR(run.states[t].mass / exact.mass, 1.0, 3e-6) << vocab << " tile " << t;
      const float* lanes = run.lane_max.data() + t * kTileLanes;
      for (int lane = 0; lane < kTileLanes; ++lane) {
        float max = -kInf;
        for (int i = lane; i < tile.width; i += kTileLanes) max = std::max(max, run.row[tile.begin + i]);
        ASSERT_EQ(lanes[lane], max);
      }
    }
    const double exact = reference::row_normalizer(run.row);
    ASSERT_NEAR(run.normalizers[0], exact, 0.5 * ulp(exact) + 3e-6) << vocab;
    run.find_candidates();
    run.expect_guards_untouched();
  }
}

TEST(TileStats, OneTokenHasLogprobZeroExactly) {
  OneRow run({-7.25f});
  EXPECT_EQ(run.normalizers[0], -7.25f);
}

TEST(TileStats, LargeLogitsDoNotOverflow) {
  std::vector<float> row(5000, -1e30f);
  row[4321] = 1e30f;
  row[17] = 1e30f;
  OneRow run(row);
  EXPECT_EQ(run.normalizers[0], 1e30f);
}

TEST(TileStats, ANanOrInfinityMakesTheNormalizerNanWhereverItStands) {
  for (const float bad : {kNan, -kNan, kInf}) {
    for (const int at : {0, 15, 16, 2047, 2048, 4999}) {
      std::vector<float> row = testing::model_like_row(5000, 3);
      row[at] = bad;
      OneRow run(row);
      EXPECT_TRUE(std::isnan(run.normalizers[0])) << bad << " at " << at;
      run.find_candidates();
      EXPECT_TRUE(run.best().empty());
    }
  }
  OneRow all_nan(std::vector<float>(100, kNan));
  EXPECT_TRUE(std::isnan(all_nan.normalizers[0]));
}

TEST(TileStats, AllMinusInfinityIsMinusInfinityNotNan) {
  OneRow run(std::vector<float>(600, -kInf));
  EXPECT_EQ(run.normalizers[0], -kInf);
  run.find_candidates();
  EXPECT_TRUE(run.best().empty());  // no distribution, nothing to rank
}

TEST(TileStats, ThreadsDoNotChangeTheBits) {  // X1
  const auto row = testing::model_like_row(50000, 21);
  OneRow one(row), three(row, 3);
  EXPECT_EQ(one.states, three.states);
  EXPECT_EQ(one.normalizers[0], three.normalizers[0]);
}

TEST(ShardStats, SubtreesGiveTheBitsOfTheWholeRow) {  // X1, R22
  for (const int64_t vocab : {20, 515, 4099, 151936}) {
    const auto row = testing::model_like_row(vocab, 31);
    const OneRow whole(row);
    const VocabLayout layout(vocab);
    ThreadPool pool(1);
    for (const int world : {2, 4, 8}) {
      std::vector<int32_t> gathered(world * kShardExchangeWords + 1, 99);
      for (int rank = 0; rank < world; ++rank) {
        const ShardTiles shard = make_shard_tiles(layout, Rank(rank), world);
        const auto logits = testing::shard_rows({row}, layout, Rank(rank), world);
        std::vector<LseState> states(shard.num_tiles());
        std::vector<float> lane_max(shard.num_tiles() * kTileLanes);
        LogprobPosition position;
        float cut = 0.0f;
        tile_stats({.logits = logits.data(),
                    .stride = layout.shard_stride(world),
                    .positions = &position,
                    .num_positions = 1,
                    .shard = &shard,
                    .states = states.data(),
                    .lane_max = lane_max.data()},
                   pool);
        shard_stats({.states = states.data(),
                     .lane_max = lane_max.data(),
                     .num_positions = 1,
                     .shard = &shard,
                     .payloads = gathered.data() + rank * kShardExchangeWords,
                     .cuts = &cut},
                    pool);
      }
      float normalizers[2] = {0.0f, kGuard};
      shard_normalizer(
          {.gathered = gathered.data(), .num_positions = 1, .world_size = world, .normalizers = normalizers}, pool);
      EXPECT_EQ(float_bits(normalizers[0]), float_bits(whole.normalizers[0])) << vocab << " at " << world;
      EXPECT_EQ(normalizers[1], kGuard);
      EXPECT_EQ(gathered.back(), 99);
    }
  }
}

TEST(TileCandidates, AreTheBest32OfTheRow) {  // R21
  for (const int64_t vocab : {1, 19, 33, 515, 4099, 40001, 151936}) {
    OneRow run(testing::model_like_row(vocab, 41 + vocab));
    run.find_candidates();
    EXPECT_EQ(run.best(), reference::best_keys(run.row, 0, run.normalizers[0], kKeptSortKeys)) << vocab;
    run.expect_guards_untouched();
  }
}

TEST(TileCandidates, MostTilesAreNotRead) {
  OneRow run(testing::model_like_row(151936, 43));
  run.find_candidates();
  const auto skipped = std::count(run.counts.begin(), run.counts.end() - 1, kTileNotRead);
  EXPECT_GT(skipped, run.shard.num_tiles() / 2);
}

TEST(TileCandidates, TiesGoToTheSmallerIds) {  // R6, R21
  for (const int64_t vocab : {40, 2048, 40001}) {
    OneRow equal(std::vector<float>(vocab, 1.5f));
    equal.find_candidates();
    const auto best = equal.best();
    ASSERT_EQ(best.size(), 32u);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(key_id(best[i]), i);

    // Zeros of both signs tie; the ids decide.
    std::vector<float> zeros(vocab, -3.0f);
    for (int i = 0; i < 40; ++i) zeros[vocab - 40 + i] = i % 2 ? 0.0f : -0.0f;
    OneRow signed_zero(zeros);
    signed_zero.find_candidates();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(key_id(signed_zero.best()[i]), vocab - 40 + i);
  }
}

TEST(TileCandidates, TiesMadeByTheSubtractionCountAsTies) {  // R21
  // Logits a ulp apart whose distance the subtraction of a large normaliser rounds away: the smaller id must win
  // although its logit is smaller, also across tiles and at the cut-off.
  std::vector<float> row(40000, -200.0f);
  float value = 1.0f;
  for (int i = 0; i < 60; ++i) {
    row[i * 613] = value;
    value = std::nextafter(value, 2.0f);
  }
  row[39999] = 1000.0f;
  OneRow run(row);
  run.find_candidates();
  ASSERT_EQ(reported_logprob(row[0], run.normalizers[0]), reported_logprob(row[59 * 613], run.normalizers[0]));
  const auto best = run.best();
  ASSERT_EQ(best.size(), 32u);
  EXPECT_EQ(key_id(best[0]), 39999);
  for (int i = 1; i < 32; ++i) EXPECT_EQ(key_id(best[i]), (i - 1) * 613);
}

TEST(TileCandidates, RisingAndFallingRowsAndManyTies) {
  testing::Random random(9);
  for (const int kind : {0, 1, 2, 3}) {
    std::vector<float> row(20011);
    for (size_t i = 0; i < row.size(); ++i) {
      const float ramp = static_cast<float>(i) * 0.001f;
      row[i] = kind == 0 ? ramp : kind == 1 ? -ramp : static_cast<float>(random.below(kind == 2 ? 3 : 40));
    }
    OneRow run(row);
    run.find_candidates();
    EXPECT_EQ(run.best(), reference::best_keys(row, 0, run.normalizers[0], kKeptSortKeys)) << kind;
  }
}

TEST(TileCandidates, MinusInfinityIsRankedLastNotDropped) {
  std::vector<float> row(50, -kInf);
  row[30] = 2.0f;
  row[3] = 1.0f;
  OneRow run(row);
  run.find_candidates();
  const auto best = run.best();
  ASSERT_EQ(best.size(), 32u);
  EXPECT_EQ(key_id(best[0]), 30);
  EXPECT_EQ(key_id(best[1]), 3);
  EXPECT_EQ(key_id(best[2]), 0);
  EXPECT_EQ(key_value(best[2]), -kInf);
}

}  // namespace
}  // namespace helios
