// The values that the kernels of every device share: exponential, partial logsumexp, sort keys, tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/logprobs/best_keys.h"
#include "kernels/logprobs/lse_state.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "tests/support/float_values.h"
#include "tests/support/logit_rows.h"

namespace helios {
namespace {

using testing::kInf;
using testing::kNan;

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
  EXPECT_EQ(best.at(19), all[19]);
  EXPECT_EQ(best.at(20), kNoKey);
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

}  // namespace
}  // namespace helios
