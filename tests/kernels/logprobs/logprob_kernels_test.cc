// The reduction's launches against FP64 and, bit for bit, against their documented FP32 order: one body for every
// device, at one shard and at several. Their composition with records and frames is tested in tests/worker/replay.
//
// Tolerances. Mass of a tile: 3e-6 relative (2048 FP32 additions in 16 lanes, exp within 1.5e-7). Normaliser: half an
// ulp of its own rounding plus 3e-6. Keys, ids and skipped tiles: exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/logprobs/best_keys.h"
#include "kernels/logprobs/reference.h"
#include "tests/kernels/logprobs/reduction_run.h"
#include "tests/support/float_values.h"
#if defined(HELIOS_EMULATED_DEVICE)
#include "kernels/base/simt.h"
#endif

namespace helios {
namespace {

using testing::Asked;
using testing::ReductionRun;

using testing::kInf;
using testing::kNan;
constexpr int kWorlds[] = {1, 2, 4};

double ulp(double value) {
  const float magnitude = std::fabs(static_cast<float>(value));
  return std::nextafter(magnitude, kInf) - magnitude;
}

// A CPU without fused multiply-add rounds the polynomial otherwise (tile_stats.h).
bool has_documented_bits() {
#if defined(__x86_64__)
  return testing::kEmulatedDevice || __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

// tile_stats.h word for word.
LseState ordered_tile(const float* logits, int width) {
  std::array<float, kTileLanes> sums{};
  float max = -kInf;
  for (int i = 0; i < width; ++i) max = logits[i] > max ? logits[i] : max;
  const float shift = max == -kInf ? 0.0f : max;
  for (int i = 0; i < width; ++i) sums[i % kTileLanes] += exp_nonpositive(logits[i] - shift);
  for (int half = kTileLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return {max, sums[0]};
}

// row_normalizer.h word for word.
LseState ordered_fold(const std::vector<LseState>& tiles, int first, int end) {
  float max = -kInf, mass = 0.0f;
  for (int t = first; t < end; ++t) max = tiles[t].max > max ? tiles[t].max : max;
  const float shift = max == -kInf ? 0.0f : max;
  for (int t = first; t < end; ++t) mass += tiles[t].mass * exp_nonpositive(tiles[t].max - shift);
  return {max, mass};
}

float ordered_normalizer(const std::vector<float>& row) {
  const ShardTiles shard = make_shard_tiles(VocabLayout(static_cast<int64_t>(row.size())), Rank(0), 1);
  std::vector<LseState> tiles;
  for (const VocabTile& tile : shard.tiles) tiles.push_back(ordered_tile(row.data() + tile.begin, tile.width));
  std::array<LseState, kCanonicalSegments> s;
  for (int i = 0; i < 8; ++i) s[i] = ordered_fold(tiles, shard.segment_first_tile[i], shard.segment_first_tile[i + 1]);
  return log_sum_exp(merge(merge(merge(s[0], s[1]), merge(s[2], s[3])), merge(merge(s[4], s[5]), merge(s[6], s[7]))));
}

std::vector<int64_t> vocabularies() {
  return testing::cases_for_device<int64_t>({515, 1, 17, 4099, 33, 2, 15, 16, 19, 31, 300, 5000, 40001, 151936}, 5);
}

TEST(TileStats, MatchFloat64AndTheDocumentedOrderAtEveryWidth) {
  for (const int64_t vocab : vocabularies()) {
    for (const int64_t extra : {0, 3}) {  // rows that start on a vector's boundary, and rows that do not
      for (const int world : kWorlds) {
        const ReductionRun run({testing::model_like_row(vocab, 7), testing::model_like_row(vocab, 11 + vocab)},
                               {{.row = 1}, {.row = 0}}, {.world = world, .extra_stride = extra});
        for (int r = 0; r < world; ++r) {
          const ReductionRun::Shard& s = run.shard(r);
          for (int item = 0; item < 2 * s.tables.num_tiles(); ++item) {
            const VocabTile& tile = s.tables.tiles[item % s.tables.num_tiles()];
            const float* logits = s.logits.data() + (item < s.tables.num_tiles() ? s.stride : 0) + tile.begin;
            const auto exact = reference::tile_stats({logits, static_cast<size_t>(tile.width)});
            ASSERT_EQ(s.states[item].max, static_cast<float>(exact.max));
            ASSERT_NEAR(s.states[item].mass / exact.mass, 1.0, 3e-6) << vocab << " tile " << item;
            if (has_documented_bits()) {
              ASSERT_EQ(float_bits(s.states[item].mass), float_bits(ordered_tile(logits, tile.width).mass));
            }
            for (int lane = 0; lane < kTileLanes; ++lane) {
              float max = -kInf;
              for (int i = lane; i < tile.width; i += kTileLanes) max = std::max(max, logits[i]);
              ASSERT_EQ(s.lane_max[item * kTileLanes + lane], max);
            }
          }
        }
        run.expect_guards();
      }
    }
  }
}

TEST(RowNormalizer, HasTheSameBitsAtEveryDegree) {  // X1, R1, R21, R22
  for (const int64_t vocab : vocabularies()) {
    const auto row = testing::model_like_row(vocab, 31 + vocab), other = testing::model_like_row(vocab, 5);
    const double exact = reference::row_normalizer(row);
    for (const int world : {1, 2, 4, 8}) {
      const ReductionRun run({other, row}, {{.row = 1}, {.row = 0}, {.row = 1}}, {.world = world});
      ASSERT_NEAR(run.normalizer(), exact, 0.5 * ulp(exact) + 3e-6) << vocab;
      if (has_documented_bits()) {
        EXPECT_EQ(float_bits(run.normalizer(0)), float_bits(ordered_normalizer(row))) << vocab << " at " << world;
        EXPECT_EQ(float_bits(run.normalizer(1)), float_bits(ordered_normalizer(other))) << vocab << " at " << world;
      }
      EXPECT_EQ(float_bits(run.normalizer(2)), float_bits(run.normalizer(0)));
      for (int r = 1; r < world; ++r) EXPECT_EQ(run.shard(r).normalizers, run.shard(0).normalizers);
    }
  }
}

TEST(RowNormalizer, CutIsThe32ndLargestLaneMaximum) {
  for (const int64_t vocab : {40, 515, 8195}) {  // fewer lanes than 32 in a shard, and more
    for (const int world : kWorlds) {
      const ReductionRun run({testing::model_like_row(vocab, 3)}, {{}, {.selected = {7}}}, {.world = world});
      for (int r = 0; r < world; ++r) {
        const ReductionRun::Shard& s = run.shard(r);
        EXPECT_EQ(s.cuts[1], -kInf) << "selected ids ask for no best ones";
        std::vector<float> maxima(s.lane_max.begin(), s.lane_max.begin() + s.tables.num_tiles() * kTileLanes);
        std::sort(maxima.begin(), maxima.end(), std::greater<>());
        EXPECT_EQ(s.cuts[0], maxima.size() < kKeptSortKeys ? -kInf : maxima[kKeptSortKeys - 1])
            << vocab << " " << world;
      }
    }
  }
}

TEST(ShardStats, ThePayloadIsTheSubtreeAndZeros) {  // R22
  for (const int64_t vocab : {515, 50001}) {        // up to four tiles a segment: their order shows in the mass
    const ReductionRun run({testing::model_like_row(vocab, 3)}, {{}}, {.world = 4});
    for (int r = 0; r < 4; ++r) {
      const ReductionRun::Shard& s = run.shard(r);
      const int32_t* payload = run.first_exchange().data() + r * run.max_positions() * kShardExchangeWords;
      const std::vector<int32_t>& first = s.tables.segment_first_tile;
      const LseState subtree =
          merge(ordered_fold(s.states, first[0], first[1]), ordered_fold(s.states, first[1], first[2]));
      EXPECT_EQ(bits_float(payload[shard_stats_word::kMax]), subtree.max);
      EXPECT_NEAR(bits_float(payload[shard_stats_word::kMass]) / subtree.mass, 1.0, 1e-6);
      if (has_documented_bits()) {
        EXPECT_EQ(payload[shard_stats_word::kMass], float_bits(subtree.mass)) << vocab << " rank " << r;
      }
      for (int word = 2; word < kShardExchangeWords; ++word) ASSERT_EQ(payload[word], 0);
    }
  }
}

TEST(TileStats, OneTokenHasLogprobZeroExactly) {
  for (const int world : kWorlds) {  // all shards but one are empty
    const ReductionRun run({{-7.25f}}, {{}}, {.world = world});
    EXPECT_EQ(run.normalizer(), -7.25f);
    EXPECT_EQ(run.packed()[kChosenBits], 0);
    run.expect_guards();
  }
}

TEST(TileStats, LargeLogitsDoNotOverflow) {
  std::vector<float> row(5000, -1e30f);
  row[4321] = 1e30f;
  row[17] = 1e30f;
  for (const int world : kWorlds) EXPECT_EQ(ReductionRun({row}, {{}}, {.world = world}).normalizer(), 1e30f);
}

TEST(TileStats, ANanOrInfinityMakesTheNormalizerNanWhereverItStands) {
  for (const float bad : {kNan, -kNan, kInf}) {
    for (const int at : testing::cases_for_device<int>({2047, 4999, 0, 15, 16, 2048}, 2)) {
      for (const int world : kWorlds) {
        std::vector<float> row = testing::model_like_row(5000, 3);
        row[at] = bad;
        const ReductionRun run({row}, {{.chosen = 3}, {.chosen = 3, .selected = {at, 4}}}, {.world = world});
        EXPECT_TRUE(std::isnan(run.normalizer())) << bad << " at " << at;
        for (int r = 0; r < world; ++r) EXPECT_TRUE(run.tile_keys(r).empty());
        EXPECT_TRUE(std::isnan(bits_float(run.packed()[kChosenBits])));
        for (int i = 0; i < 20; ++i) EXPECT_EQ(run.packed()[kFirstAlternative + 2 * i], -1);
        EXPECT_TRUE(std::isnan(bits_float(run.packed(1)[kFirstAlternative + 1])));
        run.expect_guards();
      }
    }
  }
  EXPECT_TRUE(std::isnan(ReductionRun({std::vector<float>(100, kNan)}, {{}}).normalizer()));
}

TEST(TileStats, AllMinusInfinityIsMinusInfinityNotNan) {
  for (const int world : kWorlds) {
    const ReductionRun run({std::vector<float>(600, -kInf)}, {{}}, {.world = world});
    EXPECT_EQ(run.normalizer(), -kInf);
    for (int r = 0; r < world; ++r) EXPECT_TRUE(run.tile_keys(r).empty());  // no distribution, nothing to rank
    EXPECT_TRUE(std::isnan(bits_float(run.packed()[kChosenBits])));
  }
}

TEST(TileStats, ThreadsDoNotChangeTheBits) {  // X1
  const auto row = testing::model_like_row(testing::kEmulatedDevice ? 5000 : 50000, 21);
  const ReductionRun one({row}, {{}}), three({row}, {{}}, {.threads = 3});
  EXPECT_EQ(one.shard().states, three.shard().states);
  EXPECT_EQ(one.normalizer(), three.normalizer());
}

TEST(TileCandidates, AreTheBest32OfEveryShard) {  // R21, R22
  for (const int64_t vocab : vocabularies()) {
    const auto row = testing::model_like_row(vocab, 41 + vocab);
    for (const int world : kWorlds) {
      const ReductionRun run({row}, {{}}, {.world = world});
      for (int r = 0; r < world; ++r) {
        const ShardTiles& tables = run.shard(r).tables;
        const std::span<const float> part(row.data() + tables.first_id, static_cast<size_t>(tables.width));
        const auto best = reference::best_keys(part, tables.first_id, run.normalizer(), kKeptSortKeys);
        auto kept = run.tile_keys(r);
        kept.resize(std::min<size_t>(kept.size(), kKeptSortKeys));
        EXPECT_EQ(kept, best) << vocab << " rank " << r << " of " << world;
      }
      run.expect_guards();
    }
  }
}

TEST(TileCandidates, MostTilesAreNotReadAndWhatIsReadIsCounted) {
  const int64_t vocab = testing::kEmulatedDevice ? 65536 : 151936;
  const ReductionRun run({testing::model_like_row(vocab, 43)}, {{}, {.selected = {1, 2}}});
  const int tiles = run.shard().tables.num_tiles();
  int64_t read = 0;
  int skipped = 0;
  for (int t = 0; t < tiles; ++t) {
    skipped += run.shard().counts[t] == kTileNotRead;
    if (run.shard().counts[t] != kTileNotRead) read += run.shard().tables.tiles[t].width;
  }
  EXPECT_GT(skipped, tiles / 4);
  for (int t = tiles; t < 2 * tiles; ++t)
    EXPECT_EQ(run.shard().counts[t], kTileNotRead);  // selected ids: no natural ones
  EXPECT_EQ(run.shard().counters.logprob_logits_read, read);
}

TEST(TileCandidates, TiesGoToTheSmallerIds) {  // R6, R21
  for (const int64_t vocab : testing::cases_for_device<int64_t>({40, 2048, 40001}, 2)) {
    for (const int world : kWorlds) {
      const ReductionRun equal({std::vector<float>(vocab, 1.5f)}, {{}}, {.world = world});
      for (int i = 0; i < 20; ++i) EXPECT_EQ(equal.packed()[kFirstAlternative + 2 * i], i);
      // Zeros of both signs tie; the ids decide.
      std::vector<float> zeros(vocab, -3.0f);
      for (int i = 0; i < 40; ++i) zeros[vocab - 40 + i] = i % 2 ? 0.0f : -0.0f;
      const ReductionRun signed_zero({zeros}, {{}}, {.world = world});
      for (int i = 0; i < 20; ++i) EXPECT_EQ(signed_zero.packed()[kFirstAlternative + 2 * i], vocab - 40 + i);
    }
  }
}

TEST(TileCandidates, TiesMadeByTheSubtractionCountAsTies) {  // R21
  // Logits a ulp apart whose distance the subtraction of a large normaliser rounds away: the smaller id must win
  // although its logit is smaller, also across tiles and at the cut-off.
  const int step = testing::kEmulatedDevice ? 61 : 613;
  std::vector<float> row(60 * step + 1, -200.0f);
  float value = 1.0f;
  for (int i = 0; i < 60; ++i) {
    row[i * step] = value;
    value = std::nextafter(value, 2.0f);
  }
  row.back() = 1000.0f;
  for (const int world : kWorlds) {
    const ReductionRun run({row}, {{}}, {.world = world});
    ASSERT_EQ(reported_logprob(row[0], run.normalizer()), reported_logprob(row[59 * step], run.normalizer()));
    EXPECT_EQ(run.packed()[kFirstAlternative], 60 * step);
    for (int i = 1; i < 20; ++i) EXPECT_EQ(run.packed()[kFirstAlternative + 2 * i], (i - 1) * step) << world;
  }
}

TEST(TileCandidates, RisingAndFallingRowsAndManyTies) {
  testing::Random random(9);
  for (const int kind : {0, 1, 2, 3}) {
    std::vector<float> row(testing::kEmulatedDevice ? 5011 : 20011);
    for (size_t i = 0; i < row.size(); ++i) {
      const float ramp = static_cast<float>(i) * 0.001f;
      row[i] = kind == 0 ? ramp : kind == 1 ? -ramp : static_cast<float>(random.below(kind == 2 ? 3 : 40));
    }
    const ReductionRun run({row}, {{}});
    auto kept = run.tile_keys();
    kept.resize(kKeptSortKeys);
    EXPECT_EQ(kept, reference::best_keys(row, 0, run.normalizer(), kKeptSortKeys)) << kind;
  }
}

TEST(TileCandidates, MinusInfinityIsRankedLastNotDropped) {
  std::vector<float> row(50, -kInf);
  row[30] = 2.0f;
  row[3] = 1.0f;
  for (const int world : kWorlds) {
    const ReductionRun run({row}, {{.chosen = 7}}, {.world = world});
    const int expected[] = {30, 3, 0, 1, 2, 4};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(run.packed()[kFirstAlternative + 2 * i], expected[i]) << world;
    EXPECT_EQ(bits_float(run.packed()[kFirstAlternative + 5]), -kInf);
    EXPECT_EQ(bits_float(run.packed()[kChosenBits]), -kInf);
  }
}

/// A packed position straight from the definition, with the normaliser that was used.
std::vector<int32_t> expected_packed(const std::vector<float>& row, const Asked& asked, float normalizer, int k) {
  std::vector<int32_t> words(kPackedWords, testing::kGuardWord);
  const auto store = [&](int pair, TokenId id) {
    words[2 * pair] = id;
    words[2 * pair + 1] =
        float_bits(id >= 0 && id < static_cast<TokenId>(row.size()) ? reported_logprob(row[id], normalizer)
                                                                    : std::numeric_limits<float>::quiet_NaN());
  };
  store(0, asked.chosen);
  if (asked.selected.empty()) {
    const auto best = reference::best_keys(row, 0, normalizer, static_cast<size_t>(k));
    for (int i = 0; i < k; ++i) store(1 + i, i < static_cast<int>(best.size()) ? key_id(best[i]) : -1);
  }
  for (size_t i = 0; i < asked.selected.size(); ++i) store(1 + static_cast<int>(i), asked.selected[i]);
  return words;
}

TEST(EmitLogprobs, WriteThePositionsThatWereAskedForAndNothingElse) {  // R6, R7, R8, R11, R21, R22
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 7, 1, 20, 21, 4099, 32000}, 2)) {
    std::vector<std::vector<float>> rows;
    for (int r = 0; r < 4; ++r) rows.push_back(testing::model_like_row(vocab, 100 * vocab + r));
    std::vector<int32_t> many;
    for (int i = 0; i < kMaxSelectedIds; ++i) many.push_back(static_cast<int32_t>((i * 7919LL + 13) % vocab));
    const TokenId last = static_cast<TokenId>(vocab - 1);
    const std::vector<Asked> asked = {{.row = 3, .chosen = last},
                                      {.row = 0, .chosen = 0, .selected = many},
                                      {.row = 2, .chosen = last / 2, .selected = {last}},
                                      {.row = 1, .chosen = -1},
                                      {.row = 1, .chosen = last + 1, .selected = {last, last + 1, -1, 2147483647}}};
    for (const int world : {1, 2, 4, 8}) {
      for (const int k : {0, 1, 5, 20}) {
        const ReductionRun run(rows, asked, {.world = world, .alternatives = k, .extra_stride = k});
        for (size_t p = 0; p < asked.size(); ++p) {
          ASSERT_EQ(run.packed_position(static_cast<int>(p)),
                    expected_packed(rows[asked[p].row], asked[p], run.normalizer(static_cast<int>(p)), k))
              << "V " << vocab << ", position " << p << ", world " << world << ", K " << k;
        }
        run.expect_guards();
      }
    }
  }
}

TEST(EmitLogprobs, ValuesMatchFloat64) {  // R1
  const auto row = testing::model_like_row(4099, 17);
  const ReductionRun run({row}, {{.chosen = 4098}});
  const auto id_at = [&](int pair) { return run.packed()[2 * pair]; };
  std::vector<TokenId> ids;
  for (int i = 0; i <= 20; ++i) ids.push_back(id_at(i));
  const auto exact = reference::logprobs(row, ids);
  for (int i = 0; i <= 20; ++i) EXPECT_NEAR(bits_float(run.packed()[2 * i + 1]), exact[i], 1e-5);
}

TEST(ShardCandidates, ThePayloadHoldsTheShardsKeysOrItsOwnLogitsAndZeros) {  // R22
  const auto row = testing::model_like_row(515, 3);
  const std::vector<int32_t> ids = {514, 0, 140};
  const ReductionRun run({row}, {{.chosen = 200}, {.chosen = 200, .selected = ids}}, {.world = 4});
  for (int r = 0; r < 4; ++r) {
    const ShardTiles& tables = run.shard(r).tables;
    const auto owned_bits = [&](int id) {
      return id >= tables.first_id && id < tables.first_id + tables.width ? float_bits(row[id]) : 0;
    };
    std::vector<int32_t> natural(kShardExchangeWords), selected(kShardExchangeWords);
    natural[shard_candidates_word::kChosenLogit] = selected[shard_candidates_word::kChosenLogit] = owned_bits(200);
    const auto best = run.tile_keys(r);
    const int count = std::min<int>(kKeptSortKeys, static_cast<int>(best.size()));
    natural[shard_candidates_word::kNumKeys] = count;
    for (int i = 0; i < count; ++i) {
      natural[shard_candidates_word::kBody + 2 * i] = static_cast<int32_t>(best[i] >> 32);
      natural[shard_candidates_word::kBody + 2 * i + 1] = static_cast<int32_t>(best[i]);
    }
    for (size_t i = 0; i < ids.size(); ++i) selected[shard_candidates_word::kBody + i] = owned_bits(ids[i]);
    EXPECT_EQ(std::vector<int32_t>(run.payload(r, 0), run.payload(r, 0) + kShardExchangeWords), natural) << r;
    EXPECT_EQ(std::vector<int32_t>(run.payload(r, 1), run.payload(r, 1) + kShardExchangeWords), selected) << r;
  }
}

TEST(Reduction, NoPositionsReadAndWriteNothing) {  // R24
  for (const int world : {1, 2}) {
    const ReductionRun run({testing::model_like_row(515, 3)}, {}, {.world = world});
    run.expect_guards();
    for (int r = 0; r < world; ++r) EXPECT_EQ(run.shard(r).counters.logprob_logits_read, 0);
  }
}

#if defined(HELIOS_EMULATED_DEVICE)
TEST(Reduction, TheOrderInWhichThreadsRunDoesNotMatter) {  // a barrier that is missing shows here
  const std::vector<std::vector<float>> rows = {testing::model_like_row(4099, 3), std::vector<float>(4099, 1.0f)};
  const std::vector<Asked> asked = {{.row = 0}, {.row = 1}, {.row = 0, .selected = {4000, 1}}};
  for (const int world : {1, 2}) {
    const ReductionRun forward(rows, asked, {.world = world});
    for (const simt::Order order : {simt::Order::reverse, simt::Order::shuffle}) {
      simt::options.order = order;
      const ReductionRun other(rows, asked, {.world = world});
      simt::options.order = simt::Order::forward;
      for (int p = 0; p < 3; ++p) EXPECT_EQ(other.packed_position(p), forward.packed_position(p));
      for (int r = 0; r < world; ++r) {
        EXPECT_EQ(other.shard(r).states, forward.shard(r).states);
        EXPECT_EQ(other.shard(r).cuts, forward.shard(r).cuts);
        EXPECT_EQ(other.tile_keys(r), forward.tile_keys(r));
      }
    }
  }
}
#endif

}  // namespace
}  // namespace helios
