// Philox and the sampling launches one by one against FP64, on the CPU and on the emulated GPU alike. Their composition
// is tested in tests/worker/replay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/lse_state.h"
#include "kernels/logprobs/sort_key.h"
#include "kernels/sampling/collect_rows.h"
#include "kernels/sampling/gumbel_draw.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/threshold_search.h"
#include "kernels/sampling/token_counts.h"
#include "kernels/sampling/token_offers.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/logit_rows.h"
#include "tests/support/sampling_tables.h"

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
                        .own = bins.data(),
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
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 1, 15, 17, 5000, 40001}, 5)) {
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
  const int vocab = testing::kEmulatedDevice ? 2011 : 20011;
  for (const float spread : {1.0f, 1e-3f, 50.0f, 1e20f, 1e-28f, 1e36f}) {
    auto logits = testing::model_like_row(vocab, 3);
    for (float& logit : logits) logit *= spread;
    auto sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    OneRow run(logits);
    for (const int k : {1, 2, 20, 255, 256, 1000, vocab - 1, vocab}) {
      int rounds = 0;
      EXPECT_EQ(run.kth_largest(k, &rounds), sorted[k - 1]) << k << " of spread " << spread;
      EXPECT_LE(rounds, kLinearRounds + kRadixRounds);
    }
    EXPECT_EQ(run.kth_largest(vocab + 1), run.row.floor);  // more than there are: everything stays
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
    const auto logits = testing::model_like_row(testing::kEmulatedDevice ? 2011 : 20011, 13);
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
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t vocab = 1 + random.below(trial < 60 ? 6000 : 1500);
    SamplingRow parameters;
    const float temperatures[] = {1e-4f, 0.1f, 0.7f, 1.0f, 3.0f, 1000.0f};
    parameters.temperature = trial < 60 ? temperatures[trial % 6] : 3.0f;  // where blocks come close to one another
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

// Both devices find the same FP32 weights, so the same integers; a count's bins are counts.
TEST(ThresholdSearch, BinsHoldEveryIdOnce) {
  const auto logits = testing::model_like_row(3001, 21);
  OneRow run(logits);
  for (const bool by_mass : {false, true}) {
    ThresholdSearch search = by_mass ? ThresholdSearch::by_share(0, run.row.floor, run.row.max, 0.5f, 1.0f)
                                     : ThresholdSearch::by_count(0, run.row.floor, run.row.max, 5);
    std::vector<uint64_t> bins(2 * kSearchBins, 0);
    std::fill(bins.begin() + kSearchBins, bins.end(), 0xdead);  // of a search that is not active: left alone
    const int32_t active = 0, num_active = 1;
    search_bins({.rows = &run.row,
                 .scans = run.scans.data(),
                 .shard = run.view,
                 .searches = &search,
                 .active = &active,
                 .num_active = &num_active,
                 .max_rows = 2,
                 .bins = bins.data()},
                run.pool);
    const LinearBins linear(search.high, search.window);
    std::vector<uint64_t> expected(kSearchBins);
    for (const float logit : logits) {
      expected[linear.of(logit)] += by_mass ? mass_of(exp_nonpositive(logit - run.row.max)) : 1;
    }
    expected.insert(expected.end(), kSearchBins, 0xdead);
    EXPECT_EQ(bins, expected) << by_mass;
  }
}

TEST(CollectRows, NumbersScratchAndFilteredRowsInOrder) {
  constexpr int kRows = 70, kMost = 72;  // more than two warps
  testing::SamplingTables tables(kMost, 100, {0, 100});
  std::vector<int32_t> slots, positions;
  std::vector<int> scratch, filter;
  int scratched = 0, filtered = 0;
  for (int r = 0; r < kRows; ++r) {
    const int slot = kRows - r;
    reference::TransformDefinition transform;
    if (r % 5 == 1) transform.logit_bias = {{3, 1.0f}};
    if (r % 5 == 2) transform.forbidden_ids = {4};
    if (r % 7 == 3) transform.presence_penalty = 0.5;
    if (r % 9 == 4) transform.allowed_ids = {1, 2};
    SlotSampling sampling{.temperature = 1.0f, .seed = static_cast<uint64_t>(slot)};
    if (r % 3 == 1) sampling.top_k = 5;
    if (r % 4 == 2) sampling.top_p = 0.5f;
    if (r % 11 == 5) sampling.min_p = 0.5f;
    if (r % 6 == 1) sampling.temperature = 0.0f;  // filters do not count then
    tables.set(slot, sampling, transform);
    const bool absent = r % 13 == 7;
    const bool transformed = !absent && (r % 5 == 1 || r % 5 == 2 || r % 7 == 3 || r % 9 == 4);
    const bool filters = !absent && r % 6 != 1 && (r % 3 == 1 || r % 4 == 2 || r % 11 == 5);
    slots.push_back(absent ? -1 : slot);
    positions.push_back(1000 + r);
    scratch.push_back(transformed ? scratched++ : -1);
    filter.push_back(filters ? filtered++ : -1);
  }
  std::vector<SamplingRow> rows(kMost);
  rows[kRows].slot = 4711;  // guard
  std::vector<int32_t> places(kMost, -5);
  const std::vector<float> logits(kMost * 7), room(kMost * 7);
  int32_t num_filtered = -1;
  const int32_t num_rows = kRows;
  StepCounters counters;
  ThreadPool pool(1);
  collect_rows({.logits = logits.data(),
                .stride = 7,
                .scratch = room.data(),
                .num_rows = &num_rows,
                .max_rows = kMost,
                .row_slots = slots.data(),
                .row_positions = positions.data(),
                .tables = tables.view(),
                .vocab_size = 100,
                .rows = rows.data(),
                .filtered = places.data(),
                .num_filtered = &num_filtered,
                .counters = &counters},
               pool);
  EXPECT_EQ(num_filtered, filtered);
  EXPECT_EQ(counters.sampler_rows_filtered, scratched);
  EXPECT_EQ(rows[kRows].slot, 4711);
  EXPECT_EQ(places[filtered], -5);
  for (int r = 0; r < kRows; ++r) {
    EXPECT_EQ(rows[r].slot, slots[r]);
    EXPECT_EQ(rows[r].scratch, scratch[r]) << r;
    EXPECT_EQ(rows[r].filter, filter[r]) << r;
    if (filter[r] >= 0) {
      EXPECT_EQ(places[filter[r]], r);
    }
    if (slots[r] < 0) continue;
    EXPECT_EQ(rows[r].logits, scratch[r] >= 0 ? room.data() + 7 * scratch[r] : logits.data() + 7 * r);
    EXPECT_EQ(rows[r].noise.position, positions[r]);
    EXPECT_EQ(rows[r].noise.seed, static_cast<uint64_t>(slots[r]));
  }
}

TEST(CollectRows, ParametersBecomeWhatKernelsCanUse) {
  const auto made = [](SlotSampling s) { return make_sampling_row(s, 3, 9, 100); };
  EXPECT_TRUE(made({.temperature = 9e-6f}).greedy);
  EXPECT_TRUE(made({.temperature = std::numeric_limits<float>::quiet_NaN()}).greedy);
  EXPECT_FALSE(made({.temperature = 1e-5f}).greedy);
  EXPECT_EQ(made({.temperature = 1e30f}).temperature, 1e10f);
  EXPECT_EQ(made({.top_k = 100}).top_k, 0);
  EXPECT_EQ(made({.top_k = 99}).top_k, 99);
  EXPECT_EQ(made({.top_k = -4}).top_k, 0);
  EXPECT_EQ(made({.min_p = 7.0f}).min_p, 1.0f);
  EXPECT_EQ(made({.top_p = -1.0f}).top_p, 0.0f);
}

// Every rank's part of scratch against the definition, with guards between rows; raw logits and the scratch of rows
// that are not transformed stay as they are (R2, R18).
void expect_transformed(int64_t vocab, int world, Rank rank) {
  const VocabLayout layout(vocab);
  const ShardTiles shard = make_shard_tiles(layout, rank, world);
  const Range ids = layout.shard(rank, world);
  const int64_t stride = layout.shard_stride(world) + 3;  // guards behind a row
  const auto whole = testing::model_like_row(vocab, vocab + 1);
  const auto kinds = testing::transform_kinds(whole, vocab + 2);
  const int num_rows = static_cast<int>(kinds.size()) + 2;  // a plain row, and none

  constexpr float kGuard = -12345.0f;
  std::vector<float> logits(num_rows * stride, kGuard), scratch(num_rows * stride, kGuard);
  testing::SamplingTables tables(num_rows, vocab, ids);
  std::vector<SamplingRow> rows(num_rows);
  for (int r = 0; r < num_rows; ++r) {
    std::copy(whole.begin() + ids.begin, whole.begin() + ids.end, logits.begin() + r * stride);
    if (r < static_cast<int>(kinds.size())) tables.set(r, {}, kinds[r]);
    rows[r].slot = r == num_rows - 1 ? -1 : r;
    rows[r].scratch = r < static_cast<int>(kinds.size()) ? static_cast<int>(kinds.size()) - r : -1;
    rows[r].logits = rows[r].scratch >= 0 ? scratch.data() + rows[r].scratch * stride : logits.data() + r * stride;
  }
  const auto raw = logits;
  std::vector<TileScan> scans(num_rows * shard.num_tiles() + 1, {kGuard, 77});
  std::vector<float> lane_max(scans.size() * kTileLanes, kGuard);
  const int32_t count = num_rows;
  ThreadPool pool(2);
  scan_rows({.logits = logits.data(),
             .stride = stride,
             .scratch = scratch.data(),
             .num_rows = &count,
             .max_rows = num_rows,
             .rows = rows.data(),
             .tables = tables.view(),
             .shard = {shard.tiles.data(), shard.num_tiles(), shard.first_id, shard.width},
             .scans = scans.data(),
             .lane_max = lane_max.data()},
            pool);
  EXPECT_EQ(logits, raw);
  EXPECT_EQ(scans.back().has_nan, 77);
  for (int r = 0; r < num_rows; ++r) {
    if (rows[r].slot < 0) continue;
    std::vector<double> expected = reference::widened(whole);
    if (rows[r].scratch >= 0) expected = reference::transformed_logits(whole, kinds[r]);
    for (int64_t id = ids.begin; id < ids.end; ++id) {
      const float found = rows[r].logits[id - ids.begin];
      if (std::isinf(expected[id])) {
        ASSERT_EQ(found, -kInf) << "row " << r << ", id " << id;
      } else {
        // Three FP32 roundings, of numbers up to a few dozens.
        ASSERT_NEAR(found, expected[id], 1e-5) << "row " << r << ", id " << id;
      }
    }
    for (int t = 0; t < shard.num_tiles(); ++t) {
      const VocabTile& tile = shard.tiles[t];
      const float* columns = rows[r].logits + tile.begin;
      const TileScan& scan = scans[r * shard.num_tiles() + t];
      EXPECT_EQ(scan.max, *std::max_element(columns, columns + tile.width));
      EXPECT_EQ(scan.has_nan, 0);
      for (int lane = 0; lane < kTileLanes; ++lane) {
        float most = -kInf;
        for (int i = lane; i < tile.width; i += kTileLanes) most = std::max(most, columns[i]);
        EXPECT_EQ(lane_max[(r * shard.num_tiles() + t) * kTileLanes + lane], most);
      }
    }
  }
  for (int r = 0; r < num_rows; ++r) {
    const bool used = r >= 1 && r <= static_cast<int>(kinds.size());  // scratch rows given above
    for (int64_t c = used ? ids.size() : 0; c < stride; ++c) ASSERT_EQ(scratch[r * stride + c], kGuard) << r;
  }
}

TEST(ScanRows, TransformsAsDefined) {
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 17, 5000, 40001}, 3)) {
    for (const int world : {1, 2, 4}) {
      for (int rank = 0; rank < world; ++rank) {
        SCOPED_TRACE(::testing::Message() << "V " << vocab << ", rank " << rank << " of " << world);
        expect_transformed(vocab, world, Rank(rank));
      }
    }
  }
}

TEST(TokenTransforms, PenaltiesOnSpecialValues) {
  const SlotSampling sampling{.repetition_penalty = 2.0f, .frequency_penalty = 0.5f, .presence_penalty = 0.25f};
  EXPECT_EQ(penalized(3.0f, sampling, 0), 1.5f);
  EXPECT_EQ(penalized(-3.0f, sampling, 0), -6.0f);
  EXPECT_EQ(penalized(3.0f, sampling, 2), 1.5f - 1.0f - 0.25f);
  EXPECT_EQ(penalized(-kInf, sampling, 3), -kInf);
  EXPECT_TRUE(std::isnan(penalized(std::numeric_limits<float>::quiet_NaN(), sampling, 1)));
}

struct CountRun {
  static constexpr int kSlots = 5, kWidth = 40, kFirst = 100, kMost = 6;
  std::vector<SlotSampling> sampling = std::vector<SlotSampling>(kSlots);
  std::vector<int32_t> counts = std::vector<int32_t>(kSlots * kWidth, 9);
  ThreadPool pool{1};
};

TEST(TokenCounts, BeginWithWhatWasGeneratedBefore) {
  CountRun run;
  for (const int slot : {1, 2, 4}) {
    run.sampling[slot] = {.presence_penalty = 1.0f, .num_generated = slot + 1, .counts_due = slot != 4};
  }
  std::vector<TokenId> generated(CountRun::kSlots * 10, 101);
  const std::vector<TokenId> of_two = {139, 100, 99, 140, 100};  // three of them here; the last is not counted yet
  std::copy(of_two.begin(), of_two.end(), generated.begin() + 20);
  begin_token_counts({.sampling = run.sampling.data(),
                      .capacity = CountRun::kSlots,
                      .generated = generated.data(),
                      .generated_stride = 10,
                      .token_counts = run.counts.data(),
                      .counts_stride = CountRun::kWidth,
                      .first_id = CountRun::kFirst,
                      .width = CountRun::kWidth},
                     run.pool);
  std::vector<int32_t> expected(CountRun::kSlots * CountRun::kWidth, 9);
  std::fill_n(expected.begin() + CountRun::kWidth, 2 * CountRun::kWidth, 0);
  expected[CountRun::kWidth + 1] = 2;
  expected[2 * CountRun::kWidth + 39] = 1;
  expected[2 * CountRun::kWidth] = 1;
  EXPECT_EQ(run.counts, expected);
  for (const SlotSampling& s : run.sampling) EXPECT_EQ(s.counts_due, 0);
}

TEST(TokenCounts, FollowTheRecordsThatTheCommitWrote) {
  constexpr int kTokens = 4, kWords = record_words(kTokens);
  CountRun run;
  std::fill(run.counts.begin(), run.counts.end(), 0);
  for (SlotSampling& s : run.sampling) s.frequency_penalty = 1.0f;
  run.sampling[4] = {};  // no penalties
  std::vector<int64_t> records(2 * CountRun::kSlots * kWords, 0);
  const auto write = [&](int half, int slot, int64_t epoch, std::vector<int64_t> tokens) {
    int64_t* record = records.data() + (half * CountRun::kSlots + slot) * kWords;
    record[record_word::kSlot] = slot;
    record[record_word::kEpoch] = epoch;
    record[record_word::kEmitted] = static_cast<int64_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), record + record_word::kTokens);
  };
  write(0, 0, 1, {101});
  write(1, 0, 1, {102, 102, 99, 140});  // two of them in this shard
  write(0, 1, 7, {103});                // another tenant's
  write(0, 2, 3, {});                   // nothing emitted
  write(1, 3, 3, {104});
  write(0, 3, 3, {105});
  write(0, 4, 3, {106});
  const std::vector<int32_t> slots = {0, 1, 2, 3, 4, 0}, halves = {1, 0, 0, 0, 0, 0};
  const std::vector<uint32_t> epochs = {1, 6, 3, 3, 3, 1};
  const int32_t num_rows = 5;  // the sixth is not this step's
  count_tokens({.sampling = run.sampling.data(),
                .num_rows = &num_rows,
                .max_rows = CountRun::kMost,
                .row_slots = slots.data(),
                .row_epochs = epochs.data(),
                .row_halves = halves.data(),
                .records = records.data(),
                .capacity = CountRun::kSlots,
                .token_capacity = kTokens,
                .token_counts = run.counts.data(),
                .counts_stride = CountRun::kWidth,
                .first_id = CountRun::kFirst,
                .width = CountRun::kWidth},
               run.pool);
  std::vector<int32_t> expected(CountRun::kSlots * CountRun::kWidth, 0);
  expected[2] = 2;
  expected[3 * CountRun::kWidth + 5] = 1;
  EXPECT_EQ(run.counts, expected);
}

}  // namespace
}  // namespace helios
