// Prompt rows against FP64 and, bit for bit, against the generation reduction of the same row: one body for every
// device, at one shard and at several.
//
// Tolerances: a value within half an ulp of the normaliser plus 3e-6 of the definition, as the reduction's own. Ids,
// ranks and order: exact, judged by the FP32 values reported.
#include <gtest/gtest.h>

#include <cmath>

#include "common/contract/submission.h"
#include "kernels/logprobs/prompt_rank.h"
#include "kernels/logprobs/prompt_rows.h"
#include "kernels/logprobs/reference.h"
#include "tests/kernels/logprobs/reduction_run.h"
#include "tests/support/float_values.h"

namespace helios {
namespace {

using testing::kGuardWord;
using testing::ReductionRun;

using testing::kInf;
using testing::kNan;
constexpr int kWorldSizes[] = {1, 2, 4};

/// One scored graph over vectors as device memory: every block's launches on every shard, payloads gathered by copying.
class PromptRun {
 public:
  PromptRun(const std::vector<std::vector<float>>& rows, std::vector<TokenId> targets, int world, int32_t frame = 1,
            std::vector<int32_t> row_tokens = {})
      : world_(world),
        layout_(static_cast<int64_t>(rows[0].size())),
        num_rows_(static_cast<int32_t>(rows.size())),
        max_rows_(num_rows_ + 3),
        frame_rows_(max_rows_ + 2),
        frame_(frame),
        targets_(std::move(targets)),
        row_tokens_(std::move(row_tokens)),
        words_(static_cast<size_t>(2 * frame_rows_ * kPromptScoreWords), kGuardWord),
        blocks_((max_rows_ + kPromptBlockRows - 1) / kPromptBlockRows) {
    if (row_tokens_.empty()) {
      for (int32_t r = 0; r < num_rows_; ++r) row_tokens_.push_back(r);
    }
    for (int rank = 0; rank < world; ++rank) shards_.emplace_back(*this, rank);
    for (int64_t block = 0; block < blocks_; ++block) run_block(rows, block);
  }

  const int32_t* row(int64_t token) const { return words_.data() + (frame_ * frame_rows_ + token) * kPromptScoreWords; }
  int64_t max_rows() const { return max_rows_; }
  const StepCounters& counters() const { return shards_[0].counters; }

  /// The other frame and what lies past the graph's capacity (R40).
  void expect_guards() const {
    for (int64_t token = 0; token < frame_rows_; ++token) {
      for (int word = 0; word < kPromptScoreWords; ++word) {
        ASSERT_EQ(words_[static_cast<size_t>(((1 - frame_) * frame_rows_ + token) * kPromptScoreWords + word)],
                  kGuardWord);
        if (token < max_rows_) continue;
        ASSERT_EQ(row(token)[word], kGuardWord);
      }
    }
  }

 private:
  struct Shard {
    Shard(PromptRun& run, int rank)
        : tables(make_shard_tiles(run.layout_, Rank(rank), run.world_)),
          positions(static_cast<size_t>(run.max_rows_)),
          num_positions(static_cast<size_t>(run.blocks_)),
          states(static_cast<size_t>(kPromptBlockRows * tables.num_tiles())),
          lane_max(states.size() * kTileLanes),
          normalizers(kPromptBlockRows),
          cuts(kPromptBlockRows),
          actual(kPromptBlockRows),
          keys(states.size() * kKeptSortKeys),
          counts(states.size()),
          greater(states.size() + 1, kGuardWord) {
      begin_prompt_rows({.num_rows = &run.num_rows_,
                         .max_rows = run.max_rows_,
                         .row_targets = run.targets_.data(),
                         .row_tokens = run.row_tokens_.data(),
                         .vocab_size = run.layout_.vocab_size(),
                         .frame = &run.frame_,
                         .frame_rows = run.frame_rows_,
                         .rows = run.words_.data(),
                         .positions = positions.data(),
                         .num_positions = num_positions.data(),
                         .counters = &counters,
                         .words_a_position = run.world_ > 1 ? 2 * kPromptExchangeWords : 0},
                        run.pool_);
    }
    ShardTiles tables;
    std::vector<LogprobPosition> positions;
    std::vector<int32_t> num_positions;
    std::vector<LseState> states;
    std::vector<float> lane_max, normalizers, cuts, actual;
    std::vector<SortKey> keys;
    std::vector<int32_t> counts, greater;
    std::vector<float> logits;  // of the block
    StepCounters counters;
  };

  void run_block(const std::vector<std::vector<float>>& rows, int64_t block) {
    const int64_t first = block * kPromptBlockRows, stride = layout_.shard_stride(world_);
    std::vector<int32_t> gathered(static_cast<size_t>(world_ * kPromptBlockRows * kPromptExchangeWords), kGuardWord);
    const auto own = [&](int r) { return gathered.data() + int64_t{r} * kPromptBlockRows * kPromptExchangeWords; };
    const auto live = std::vector(rows.begin() + std::min<int64_t>(first, num_rows_),
                                  rows.begin() + std::min<int64_t>(first + kPromptBlockRows, num_rows_));
    const auto each = [&](auto launch) {
      for (int r = 0; r < world_; ++r) launch(r, shards_[static_cast<size_t>(r)]);
    };
    each([&](int r, Shard& s) {
      s.logits = testing::shard_rows(live, layout_, Rank(r), world_);
      tile_stats({.logits = s.logits.data(),
                  .stride = stride,
                  .positions = s.positions.data() + first,
                  .num_positions = &s.num_positions[block],
                  .max_positions = kPromptBlockRows,
                  .shard = s.tables.view(),
                  .states = s.states.data(),
                  .lane_max = s.lane_max.data()},
                 pool_);
      prompt_stats({.logits = s.logits.data(),
                    .stride = stride,
                    .positions = s.positions.data() + first,
                    .num_positions = &s.num_positions[block],
                    .max_positions = kPromptBlockRows,
                    .shard = s.tables.view(),
                    .states = s.states.data(),
                    .lane_max = s.lane_max.data(),
                    .payloads = own(r),
                    .cuts = s.cuts.data()},
                   pool_);
    });
    expect_payloads(gathered, block, prompt_stats_word::kActualLogit + 1);
    each([&](int, Shard& s) {
      prompt_values({.positions = s.positions.data() + first,
                     .num_positions = &s.num_positions[block],
                     .max_positions = kPromptBlockRows,
                     .gathered = gathered.data(),
                     .shard_stride = stride,
                     .world_size = world_,
                     .normalizers = s.normalizers.data(),
                     .actual = s.actual.data()},
                    pool_);
      tile_candidates({.logits = s.logits.data(),
                       .stride = stride,
                       .positions = s.positions.data() + first,
                       .num_positions = &s.num_positions[block],
                       .max_positions = kPromptBlockRows,
                       .shard = s.tables.view(),
                       .states = s.states.data(),
                       .normalizers = s.normalizers.data(),
                       .cuts = s.cuts.data(),
                       .keys = s.keys.data(),
                       .counts = s.counts.data()},
                      pool_);
      prompt_rank({.logits = s.logits.data(),
                   .stride = stride,
                   .positions = s.positions.data() + first,
                   .num_positions = &s.num_positions[block],
                   .max_positions = kPromptBlockRows,
                   .shard = s.tables.view(),
                   .states = s.states.data(),
                   .normalizers = s.normalizers.data(),
                   .actual = s.actual.data(),
                   .greater = s.greater.data()},
                  pool_);
      EXPECT_EQ(s.greater.back(), kGuardWord);
    });
    each([&](int r, Shard& s) {
      prompt_candidates({.num_positions = &s.num_positions[block],
                         .max_positions = kPromptBlockRows,
                         .shard = s.tables.view(),
                         .keys = s.keys.data(),
                         .counts = s.counts.data(),
                         .greater = s.greater.data(),
                         .payloads = own(r)},
                        pool_);
    });
    expect_payloads(gathered, block, prompt_candidates_word::kKeys + 2 * kMaxNaturalAlternatives);
    Shard& s = shards_[0];
    emit_prompt_rows({.positions = s.positions.data() + first,
                      .num_positions = &s.num_positions[block],
                      .max_positions = kPromptBlockRows,
                      .actual = s.actual.data(),
                      .gathered = gathered.data(),
                      .world_size = world_},
                     pool_);
  }

  /// Words behind those in use are zero, payloads of rows that do not exist are not touched (R41).
  void expect_payloads(const std::vector<int32_t>& gathered, int64_t block, int used) const {
    for (int64_t p = 0; p < world_ * kPromptBlockRows; ++p) {
      const bool live = p % kPromptBlockRows < shards_[0].num_positions[static_cast<size_t>(block)];
      for (int word = live ? used : 0; word < kPromptExchangeWords; ++word)
        ASSERT_EQ(gathered[static_cast<size_t>(p * kPromptExchangeWords + word)], live ? 0 : kGuardWord);
    }
  }

  const int world_;
  const VocabLayout layout_;
  int32_t num_rows_;
  const int64_t max_rows_, frame_rows_;
  int32_t frame_;
  std::vector<TokenId> targets_;
  std::vector<int32_t> row_tokens_;
  std::vector<int32_t> words_;
  const int64_t blocks_;
  ThreadPool pool_{1};
  std::vector<Shard> shards_;
};

void expect_invalid(const int32_t* row) {
  EXPECT_EQ(row[prompt_score_word::kActualId], -1);
  EXPECT_TRUE(std::isnan(bits_float(row[prompt_score_word::kActualBits])));
  EXPECT_EQ(row[prompt_score_word::kActualRank], 0);
  for (int i = 0; i < kMaxNaturalAlternatives; ++i) {
    EXPECT_EQ(row[prompt_score_word::kFirstAlternative + 2 * i], -1);
    EXPECT_TRUE(std::isnan(bits_float(row[prompt_score_word::kFirstAlternative + 2 * i + 1])));
  }
}

/// The row of `actual` at `logits`: the generation reduction's bits and keys, the definition's value and rank.
void expect_scored(const int32_t* row, const std::vector<float>& logits, TokenId actual) {
  const ReductionRun generated({logits}, {{.row = 0, .chosen = actual, .selected = {}}});
  EXPECT_EQ(row[prompt_score_word::kActualId], actual);
  EXPECT_EQ(row[prompt_score_word::kActualBits], generated.packed()[kChosenBits]) << "X1";
  for (int w = 0; w < 2 * kMaxNaturalAlternatives; ++w)
    ASSERT_EQ(row[prompt_score_word::kFirstAlternative + w], generated.packed()[kFirstAlternative + w]) << w;
  EXPECT_EQ(row[prompt_score_word::kActualRank], reference::prompt_rank(logits, generated.normalizer(), actual));
  const double expected = reference::logprobs(logits, std::vector{actual})[0];
  if (std::isfinite(expected)) {
    EXPECT_NEAR(bits_float(row[prompt_score_word::kActualBits]), expected,
                3e-6 + 1e-6 * std::abs(expected) + 6e-8 * std::abs(generated.normalizer()));
  }
}

// R38, R40, R41, X1: every row of several blocks; rows without a target; odd vocabularies, empty shards.
TEST(PromptRows, R40_R41_X1_EveryRowHasTheGenerationReductionsBitsItsRankAndItsPlace) {
  struct Case {
    int64_t vocab;
    int rows;
  };
  const auto cases = testing::kEmulatedDevice ? std::vector<Case>{{301, 67}, {2500, 3}, {1, 2}}
                                              : std::vector<Case>{{301, 130}, {2500, 67}, {50001, 5}, {17, 3}, {1, 2}};
  for (const Case& c : cases) {
    std::vector<std::vector<float>> rows;
    std::vector<TokenId> targets;
    std::vector<int32_t> tokens;
    testing::Random random(static_cast<uint64_t>(c.vocab));
    for (int r = 0; r < c.rows; ++r) {
      rows.push_back(testing::model_like_row(c.vocab, static_cast<uint64_t>(100 + r)));
      const auto best = std::max_element(rows.back().begin(), rows.back().end()) - rows.back().begin();
      targets.push_back(static_cast<TokenId>(r % 4 == 0 ? best : random.below(c.vocab)));
      tokens.push_back(r + (r >= c.rows / 2 ? 2 : 0));  // a lane without rows stood between
    }
    targets[0] = kNoTarget;
    targets.back() = static_cast<TokenId>(c.vocab);  // no such id
    for (const int world : kWorldSizes) {
      const PromptRun run(rows, targets, world, world % 2, tokens);
      for (int r = 1; r + 1 < c.rows; ++r) {
        // The reduction beside it is emulated too: some rows, among them the first of the second block.
        if (testing::kEmulatedDevice && r % 9 != 1) continue;
        expect_scored(run.row(tokens[static_cast<size_t>(r)]), rows[static_cast<size_t>(r)],
                      targets[static_cast<size_t>(r)]);
      }
      expect_invalid(run.row(tokens[0]));
      expect_invalid(run.row(tokens.back()));
      if (c.rows > 3) expect_invalid(run.row(c.rows / 2));
      for (int64_t token = tokens.back() + 1; token < run.max_rows(); ++token) expect_invalid(run.row(token));
      run.expect_guards();
      EXPECT_EQ(run.counters().prompt_rows, c.rows - 2);
      EXPECT_EQ(run.counters().prompt_words, world > 1 ? c.rows * 128 : 0);
    }
  }
}

// R6, R41: equal values share a rank and order by id; those that the subtraction makes equal too; -0 and +0 tie.
TEST(PromptRows, R6_R41_RanksCountStrictlyGreaterReportedValues) {
  std::vector<float> tied(700, -3.0f), subtracted(700, 1e4f), zeros(700, -40.0f);
  for (const int at : {5, 6, 400, 699}) tied[static_cast<size_t>(at)] = 2.0f;
  tied[30] = 3.0f;
  subtracted[123] = std::nextafter(1e4f, kInf);  // larger by less than the reported values tell apart, or not
  zeros[3] = 0.0f, zeros[650] = -0.0f;
  const std::vector<std::vector<float>> rows{tied, tied, tied, subtracted, subtracted, zeros, zeros};
  const std::vector<TokenId> targets{400, 30, 0, 123, 9, 650, 3};
  for (const int world : kWorldSizes) {
    const PromptRun run(rows, targets, world);
    for (size_t r = 0; r < rows.size(); ++r) expect_scored(run.row(static_cast<int64_t>(r)), rows[r], targets[r]);
    EXPECT_EQ(run.row(0)[prompt_score_word::kActualRank], 2);
    EXPECT_EQ(run.row(1)[prompt_score_word::kActualRank], 1);
    EXPECT_EQ(run.row(2)[prompt_score_word::kActualRank], 6);
    EXPECT_EQ(run.row(5)[prompt_score_word::kActualRank], 1);
    EXPECT_EQ(run.row(6)[prompt_score_word::kActualRank], 1);
    EXPECT_EQ(run.row(0)[prompt_score_word::kFirstAlternative + 2], 5) << "among equals the smaller id";
  }
}

// R40: -inf is a value like another; a row that is no distribution reports none, and the rows beside it do not notice.
TEST(PromptRows, R40_RowsWithoutADistributionKeepTheirIdAlone) {
  const std::vector<float> plain = testing::model_like_row(600, 9);
  std::vector<float> few(600, -kInf), nan = plain, infinite = plain;
  few[10] = 1.0f, few[20] = 2.0f;
  nan[599] = kNan;
  infinite[0] = kInf;
  const std::vector<std::vector<float>> rows{plain, few, few, nan, infinite, std::vector<float>(600, -kInf), plain};
  const std::vector<TokenId> targets{7, 10, 11, 3, 0, 5, 8};
  for (const int world : kWorldSizes) {
    const PromptRun run(rows, targets, world);
    for (const size_t r : {0, 1, 2, 6}) expect_scored(run.row(static_cast<int64_t>(r)), rows[r], targets[r]);
    EXPECT_EQ(bits_float(run.row(2)[prompt_score_word::kActualBits]), -kInf);
    EXPECT_EQ(run.row(2)[prompt_score_word::kActualRank], 3);
    for (const int64_t r : {3, 4, 5}) {
      std::vector<int32_t> words(run.row(r), run.row(r) + kPromptScoreWords);
      EXPECT_EQ(words[prompt_score_word::kActualId], targets[static_cast<size_t>(r)]);
      words[prompt_score_word::kActualId] = -1;
      expect_invalid(words.data());
    }
  }
}

}  // namespace
}  // namespace helios
