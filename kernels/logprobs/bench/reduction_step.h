// One step's buffers and launches for the benchmark: one rank, or the ranks of a group in turn on one thread.
//
// The exchanges are copies here: what a transport adds is measured where transports are. Words are counted as copied.
#pragma once

#include <cstring>
#include <vector>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/emit_logprobs.h"
#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_candidates.h"
#include "kernels/logprobs/shard_stats.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios::bench {

/// What every lane reports.
struct Report {
  const char* name;
  int alternatives;
  int num_ids;
};

/// Buffers of one rank's launches. `logits`: the whole rows [lanes, vocab], of which it reads its shard.
struct RankBuffers {
  RankBuffers(const VocabLayout& layout, int rank, int world, int32_t lanes, const float* rows)
      : tables(make_shard_tiles(layout, Rank(rank), world)),
        logits(rows + tables.first_id),
        states(static_cast<size_t>(lanes) * tables.num_tiles()),
        lane_max(states.size() * kTileLanes),
        normalizers(lanes),
        cuts(lanes),
        keys(states.size() * kKeptSortKeys),
        counts(states.size(), kTileNotRead) {}

  ShardTiles tables;
  const float* logits;
  std::vector<LseState> states;
  std::vector<float> lane_max, normalizers, cuts;
  std::vector<SortKey> keys;
  std::vector<int32_t> counts;
};

class ReductionStep {
 public:
  ReductionStep(int64_t vocab, int32_t lanes, int world, const Report& report, const float* logits, ThreadPool& pool)
      : layout_(vocab),
        lanes_(lanes),
        world_(world),
        report_(report),
        pool_(pool),
        positions_(lanes),
        gathered_(static_cast<size_t>(world) * lanes * kShardExchangeWords),
        payloads_(gathered_.size()),
        packed_(static_cast<size_t>(lanes) * kPackedWords) {
    for (int rank = 0; rank < world; ++rank) ranks_.emplace_back(layout_, rank, world, lanes, logits);
    for (int i = 0; i < report.num_ids; ++i) ids_.push_back(static_cast<int32_t>(i * 7919LL % vocab));
    for (int lane = 0; lane < lanes; ++lane) {
      positions_[lane] = {.row = lane,
                          .chosen = static_cast<TokenId>(lane),
                          .num_selected = report.num_ids,
                          .selected = ids_.data(),
                          .packed = packed_.data() + static_cast<int64_t>(lane) * kPackedWords};
    }
  }

  /// All ranks' launches.
  void reduce() {
    for (RankBuffers& rank : ranks_) {
      tile_stats({.logits = rank.logits,
                  .stride = layout_.vocab_size(),
                  .positions = positions_.data(),
                  .num_positions = &lanes_,
                  .max_positions = lanes_,
                  .shard = rank.tables.view(),
                  .states = rank.states.data(),
                  .lane_max = rank.lane_max.data()},
                 pool_);
    }
    if (world_ == 1) {
      finish_alone(ranks_[0]);
    } else {
      finish_sharded();
    }
  }

  /// Logits read and packed words written, per position.
  double bytes_moved() const {
    int64_t words = static_cast<int64_t>(lanes_) * (layout_.vocab_size() + 1 + report_.num_ids);
    for (const RankBuffers& rank : ranks_) {
      for (size_t item = 0; item < rank.counts.size(); ++item) {
        if (rank.counts[item] != kTileNotRead) words += rank.tables.tiles[item % rank.tables.num_tiles()].width;
      }
    }
    words += static_cast<int64_t>(lanes_) * packed_words(report_.num_ids ? report_.num_ids : report_.alternatives);
    return 4.0 * static_cast<double>(words) / lanes_;
  }
  /// 32-bit words that a rank sent for a position, in the last step.
  double words_exchanged() const { return static_cast<double>(words_sent_) / lanes_ / world_; }
  const int32_t* packed(int lane) const { return packed_.data() + static_cast<int64_t>(lane) * kPackedWords; }

 private:
  void find_candidates(RankBuffers& rank) {
    if (report_.alternatives == 0) return;
    tile_candidates({.logits = rank.logits,
                     .stride = layout_.vocab_size(),
                     .positions = positions_.data(),
                     .num_positions = &lanes_,
                     .max_positions = lanes_,
                     .shard = rank.tables.view(),
                     .states = rank.states.data(),
                     .normalizers = rank.normalizers.data(),
                     .cuts = rank.cuts.data(),
                     .keys = rank.keys.data(),
                     .counts = rank.counts.data()},
                    pool_);
  }

  void finish_alone(RankBuffers& rank) {
    row_normalizer({.states = rank.states.data(),
                    .lane_max = rank.lane_max.data(),
                    .positions = positions_.data(),
                    .num_positions = &lanes_,
                    .max_positions = lanes_,
                    .shard = rank.tables.view(),
                    .normalizers = rank.normalizers.data(),
                    .cuts = rank.cuts.data()},
                   pool_);
    find_candidates(rank);
    emit_logprobs({.logits = rank.logits,
                   .stride = layout_.vocab_size(),
                   .positions = positions_.data(),
                   .num_positions = &lanes_,
                   .max_positions = lanes_,
                   .alternatives = report_.alternatives,
                   .shard = rank.tables.view(),
                   .normalizers = rank.normalizers.data(),
                   .keys = rank.keys.data(),
                   .counts = rank.counts.data()},
                  pool_);
  }

  void finish_sharded() {
    words_sent_ = 0;
    for (int r = 0; r < world_; ++r) {
      shard_stats({.states = ranks_[r].states.data(),
                   .lane_max = ranks_[r].lane_max.data(),
                   .positions = positions_.data(),
                   .num_positions = &lanes_,
                   .max_positions = lanes_,
                   .shard = ranks_[r].tables.view(),
                   .payloads = payload(r),
                   .cuts = ranks_[r].cuts.data()},
                  pool_);
    }
    exchange();
    for (RankBuffers& rank : ranks_) {
      shard_normalizer({.gathered = gathered_.data(),
                        .num_positions = &lanes_,
                        .max_positions = lanes_,
                        .world_size = world_,
                        .normalizers = rank.normalizers.data()},
                       pool_);
      find_candidates(rank);
    }
    for (int r = 0; r < world_; ++r) {
      shard_candidates({.logits = ranks_[r].logits,
                        .stride = layout_.vocab_size(),
                        .positions = positions_.data(),
                        .num_positions = &lanes_,
                        .max_positions = lanes_,
                        .shard = ranks_[r].tables.view(),
                        .keys = ranks_[r].keys.data(),
                        .counts = ranks_[r].counts.data(),
                        .payloads = payload(r)},
                       pool_);
    }
    exchange();
    for (RankBuffers& rank : ranks_) {
      emit_shard_logprobs({.positions = positions_.data(),
                           .num_positions = &lanes_,
                           .max_positions = lanes_,
                           .alternatives = report_.alternatives,
                           .vocab_size = layout_.vocab_size(),
                           .shard_stride = layout_.shard_stride(world_),
                           .world_size = world_,
                           .normalizers = rank.normalizers.data(),
                           .gathered = gathered_.data()},
                          pool_);
    }
  }

  int32_t* payload(int rank) { return payloads_.data() + static_cast<int64_t>(rank) * lanes_ * kShardExchangeWords; }
  void exchange() {
    std::memcpy(gathered_.data(), payloads_.data(), payloads_.size() * sizeof(int32_t));
    words_sent_ += static_cast<int64_t>(payloads_.size());  // every rank's own
  }

  const VocabLayout layout_;
  const int32_t lanes_;
  const int world_;
  const Report report_;
  ThreadPool& pool_;
  std::vector<RankBuffers> ranks_;
  std::vector<int32_t> ids_;
  std::vector<LogprobPosition> positions_;
  std::vector<int32_t> gathered_, payloads_, packed_;
  int64_t words_sent_ = 0;
};

}  // namespace helios::bench
