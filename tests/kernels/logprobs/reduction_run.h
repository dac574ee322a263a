// The whole reduction over vectors as device memory: every launch on every shard, payloads gathered by copying.
//
// One object is one step at one tensor-parallel degree. Every output has room for more positions than the step has, and
// guard words there and behind: expect_guards() finds whoever writes past the step's own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/logprobs/emit_logprobs.h"
#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_candidates.h"
#include "kernels/logprobs/shard_stats.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/logit_rows.h"

namespace helios::testing {

inline constexpr float kGuardFloat = 12345.0f;
inline constexpr int32_t kGuardWord = 0x5a5a5a5a;
inline constexpr SortKey kGuardKey = 0x7777777777777777u;

/// What a position asks for.
struct Asked {
  int64_t row = 0;
  TokenId chosen = 0;
  std::vector<int32_t> selected;
};

struct ReductionOptions {
  int world = 1;
  int alternatives = 20;
  int threads = 1;
  int64_t extra_stride = 0;  // odd: rows that no vector load may assume aligned
};

class ReductionRun {
 public:
  /// `rows`: whole vocabulary. Runs every launch.
  ReductionRun(const std::vector<std::vector<float>>& rows, const std::vector<Asked>& asked,
               const ReductionOptions& options = {})
      : options_(options),
        layout_(static_cast<int64_t>(rows[0].size())),
        num_positions_(static_cast<int32_t>(asked.size())),
        max_positions_(num_positions_ + 2),
        asked_(asked),
        pool_(options.threads),
        gathered_((options.world * max_positions_ + 1) * kShardExchangeWords, kGuardWord),
        packed_(max_positions_ * kPackedWords, kGuardWord) {
    for (int rank = 0; rank < options.world; ++rank) shards_.emplace_back(*this, rows, rank);
    run();
  }

  struct Shard {
    Shard(const ReductionRun& run, const std::vector<std::vector<float>>& rows, int rank)
        : tables(make_shard_tiles(run.layout_, Rank(rank), run.options_.world)),
          stride(run.layout_.shard_stride(run.options_.world) + run.options_.extra_stride),
          logits(rows.size() * stride, std::numeric_limits<float>::quiet_NaN()),
          positions(run.max_positions_),
          states((run.max_positions_ + 1) * tables.num_tiles(), {kGuardFloat, kGuardFloat}),
          lane_max(states.size() * kTileLanes, kGuardFloat),
          normalizers(run.max_positions_, kGuardFloat),
          cuts(run.max_positions_, kGuardFloat),
          keys(states.size() * kKeptSortKeys, kGuardKey),
          counts(states.size(), kGuardWord) {
      for (size_t r = 0; r < rows.size(); ++r) {  // padding stays NaN: reading it shows
        std::copy_n(rows[r].begin() + tables.first_id, tables.width, logits.begin() + r * stride);
      }
    }

    ShardTiles tables;
    int64_t stride;
    std::vector<float> logits;
    std::vector<LogprobPosition> positions;
    std::vector<LseState> states;
    std::vector<float> lane_max, normalizers, cuts;
    std::vector<SortKey> keys;
    std::vector<int32_t> counts;
    StepCounters counters;
  };

  const Shard& shard(int rank = 0) const { return shards_[rank]; }
  float normalizer(int p = 0) const { return shards_[0].normalizers[p]; }
  const int32_t* payload(int rank, int p) const {
    return gathered_.data() + (rank * max_positions_ + p) * kShardExchangeWords;
  }
  /// After the first exchange, before the second.
  const std::vector<int32_t>& first_exchange() const { return first_exchange_; }
  const int32_t* packed(int p = 0) const { return packed_.data() + p * kPackedWords; }
  std::vector<int32_t> packed_position(int p) const { return {packed(p), packed(p) + kPackedWords}; }
  int64_t max_positions() const { return max_positions_; }

  /// Keys that the tiles of one shard kept, best first.
  std::vector<SortKey> tile_keys(int rank = 0, int p = 0) const {
    const Shard& s = shards_[rank];
    std::vector<SortKey> all;
    for (int t = p * s.tables.num_tiles(); t < (p + 1) * s.tables.num_tiles(); ++t) {
      for (int i = 0; i < s.counts[t]; ++i) all.push_back(s.keys[t * kKeptSortKeys + i]);
    }
    std::sort(all.begin(), all.end(), std::greater<>());
    return all;
  }

  void expect_guards() const {
    for (const Shard& s : shards_) {
      const size_t tiles = static_cast<size_t>(num_positions_) * s.tables.num_tiles();
      for (size_t t = tiles; t < s.states.size(); ++t) EXPECT_EQ(s.states[t], (LseState{kGuardFloat, kGuardFloat}));
      for (size_t i = tiles * kTileLanes; i < s.lane_max.size(); ++i) EXPECT_EQ(s.lane_max[i], kGuardFloat);
      for (size_t t = tiles; t < s.counts.size(); ++t) EXPECT_EQ(s.counts[t], kGuardWord);
      for (size_t t = 0; t < s.counts.size(); ++t) {
        const int kept = t < tiles ? std::max(s.counts[t], 0) : 0;
        for (int i = kept; i < kKeptSortKeys; ++i) EXPECT_EQ(s.keys[t * kKeptSortKeys + i], kGuardKey);
      }
      for (int64_t p = num_positions_; p < max_positions_; ++p) {
        EXPECT_EQ(s.normalizers[p], kGuardFloat);
        EXPECT_EQ(s.cuts[p], kGuardFloat);
      }
    }
    for (int r = 0; r < options_.world; ++r) expect_untouched(payload(r, num_positions_), 2 * kShardExchangeWords);
    expect_untouched(gathered_.data() + gathered_.size() - kShardExchangeWords, kShardExchangeWords);
    for (int64_t p = 0; p < max_positions_; ++p) {
      const bool live = p < num_positions_;
      const int pairs = !live                        ? 0
                        : asked_[p].selected.empty() ? options_.alternatives
                                                     : static_cast<int>(asked_[p].selected.size());
      const int written = live ? packed_words(pairs) : 0;
      expect_untouched(packed(static_cast<int>(p)) + written, kPackedWords - written);
    }
  }

 private:
  static void expect_untouched(const int32_t* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(words[i], kGuardWord) << "word " << i;
  }

  void run() {
    for (Shard& s : shards_) {
      for (int p = 0; p < num_positions_; ++p) {
        s.positions[p] = {.row = asked_[p].row,
                          .chosen = asked_[p].chosen,
                          .num_selected = static_cast<int32_t>(asked_[p].selected.size()),
                          .selected = asked_[p].selected.data(),
                          .packed = packed_.data() + p * kPackedWords};
      }
      tile_stats({.logits = s.logits.data(),
                  .stride = s.stride,
                  .positions = s.positions.data(),
                  .num_positions = &num_positions_,
                  .max_positions = max_positions_,
                  .shard = s.tables.view(),
                  .states = s.states.data(),
                  .lane_max = s.lane_max.data()},
                 pool_);
    }
    if (options_.world == 1) {
      finish_alone(shards_[0]);
    } else {
      finish_sharded();
    }
  }

  void find_candidates(Shard& s) {
    tile_candidates({.logits = s.logits.data(),
                     .stride = s.stride,
                     .positions = s.positions.data(),
                     .num_positions = &num_positions_,
                     .max_positions = max_positions_,
                     .shard = s.tables.view(),
                     .states = s.states.data(),
                     .normalizers = s.normalizers.data(),
                     .cuts = s.cuts.data(),
                     .keys = s.keys.data(),
                     .counts = s.counts.data()},
                    pool_);
  }

  void finish_alone(Shard& s) {
    row_normalizer({.states = s.states.data(),
                    .lane_max = s.lane_max.data(),
                    .positions = s.positions.data(),
                    .num_positions = &num_positions_,
                    .max_positions = max_positions_,
                    .shard = s.tables.view(),
                    .normalizers = s.normalizers.data(),
                    .cuts = s.cuts.data()},
                   pool_);
    find_candidates(s);
    emit_logprobs({.logits = s.logits.data(),
                   .stride = s.stride,
                   .positions = s.positions.data(),
                   .num_positions = &num_positions_,
                   .max_positions = max_positions_,
                   .alternatives = options_.alternatives,
                   .shard = s.tables.view(),
                   .normalizers = s.normalizers.data(),
                   .keys = s.keys.data(),
                   .counts = s.counts.data(),
                   .counters = &s.counters},
                  pool_);
  }

  void finish_sharded() {
    const auto own = [&](size_t rank) { return gathered_.data() + rank * max_positions_ * kShardExchangeWords; };
    for (size_t r = 0; r < shards_.size(); ++r) {
      shard_stats({.states = shards_[r].states.data(),
                   .lane_max = shards_[r].lane_max.data(),
                   .positions = shards_[r].positions.data(),
                   .num_positions = &num_positions_,
                   .max_positions = max_positions_,
                   .shard = shards_[r].tables.view(),
                   .payloads = own(r),
                   .cuts = shards_[r].cuts.data()},
                  pool_);
    }
    first_exchange_ = gathered_;
    for (Shard& s : shards_) {
      shard_normalizer({.gathered = gathered_.data(),
                        .num_positions = &num_positions_,
                        .max_positions = max_positions_,
                        .world_size = options_.world,
                        .normalizers = s.normalizers.data()},
                       pool_);
      find_candidates(s);
    }
    for (size_t r = 0; r < shards_.size(); ++r) {
      shard_candidates({.logits = shards_[r].logits.data(),
                        .stride = shards_[r].stride,
                        .positions = shards_[r].positions.data(),
                        .num_positions = &num_positions_,
                        .max_positions = max_positions_,
                        .shard = shards_[r].tables.view(),
                        .keys = shards_[r].keys.data(),
                        .counts = shards_[r].counts.data(),
                        .payloads = own(r),
                        .counters = &shards_[r].counters},
                       pool_);
    }
    emit_shard_logprobs({.positions = shards_[0].positions.data(),
                         .num_positions = &num_positions_,
                         .max_positions = max_positions_,
                         .alternatives = options_.alternatives,
                         .vocab_size = layout_.vocab_size(),
                         .shard_stride = layout_.shard_stride(options_.world),
                         .world_size = options_.world,
                         .normalizers = shards_[0].normalizers.data(),
                         .gathered = gathered_.data()},
                        pool_);
  }

  const ReductionOptions options_;
  const VocabLayout layout_;
  const int32_t num_positions_;
  const int64_t max_positions_;
  const std::vector<Asked> asked_;
  ThreadPool pool_;
  std::vector<Shard> shards_;
  std::vector<int32_t> gathered_, first_exchange_, packed_;
};

}  // namespace helios::testing
