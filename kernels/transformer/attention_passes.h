// How attention's queries are cut into passes over the cache: those of one slot and one KV head go through its blocks
// together. Thread: one walk each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/transformer/attention.h"

namespace helios {

inline constexpr int64_t kMaxQueries = 32;  // of one pass, and of passes side by side

/// One head of one row, going through its blocks.
struct Query {
  const float* q = nullptr;
  float* out = nullptr;
  int32_t first = 0, position = 0;  // visible keys [first, position]
};

/// Queries of one slot and one KV head, which go through the same blocks.
struct Pass {
  Query queries[kMaxQueries];
  int64_t count = 0;
  int32_t slot = -1;
  int64_t kv_head = 0;
  int32_t first_block = 0, last_block = 0;

  void add(const Query& query) {
    const int32_t first = query.first / kKvBlockSize, last = query.position / kKvBlockSize;
    first_block = count == 0 ? first : std::min(first_block, first);
    last_block = count == 0 ? last : std::max(last_block, last);
    queries[count++] = query;
  }
};

/// One thread's passes. Rows are cut into pieces. Where threads divide the KV heads, each has the same neighbouring
/// heads of every piece, which lie side by side in a block; else (piece, head) pairs are dealt to threads in turn.
class PassWalk {
 public:
  /// Pieces of at most `max_rows` rows and kMaxSlots slots.
  PassWalk(const AttentionArgs& args, int64_t max_rows, int64_t thread, int64_t threads)
      : args_(args), max_rows_(max_rows), thread_(thread), threads_(threads), num_rows_(*args.rows.num_rows) {
    next_piece();
  }

  /// False when there are no more. Dead rows are in none: they get their zeros here.
  bool next(Pass& pass) {
    pass.count = 0;
    for (; begin_ < num_rows_; next_piece()) {
      for (; pass.kv_head = head_, head_ < args_.shape.kv_heads; ++head_, row_ = begin_, q_head_ = 0) {
        if (is_mine(head_)) fill(pass);
        if (pass.count > 0) return true;
      }
    }
    return false;
  }

 private:
  static constexpr int kMaxSlots = 4;

  bool is_mine(int64_t head) const {
    const int64_t heads = args_.shape.kv_heads;
    if (heads % threads_ == 0) return head / (heads / threads_) == thread_;
    return (num_pieces_ * heads + head) % threads_ == thread_;
  }

  void next_piece() {
    begin_ = end_, row_ = end_, head_ = 0, q_head_ = 0;
    ++num_pieces_;
    for (int slots = 0; end_ < num_rows_ && end_ - begin_ < max_rows_; ++end_) {
      if (end_ == begin_ || args_.rows.slots[end_] != args_.rows.slots[end_ - 1]) ++slots;
      if (slots > kMaxSlots) return;
    }
  }

  /// From where the pass before it ended, as many queries of the item as go together.
  void fill(Pass& pass) {
    const AttentionShape& shape = args_.shape;
    for (; row_ < end_; ++row_, q_head_ = 0) {
      const int32_t position = args_.rows.positions[row_];
      if (position >= 0 && pass.count > 0 && pass.slot != args_.rows.slots[row_]) return;
      for (; q_head_ < shape.q_heads; ++q_head_) {
        if (shape.kv_of_q[q_head_] != pass.kv_head) continue;
        float* out = args_.out + row_ * args_.out_stride + q_head_ * shape.head_dim;
        if (position < 0) {
          std::memset(out, 0, static_cast<size_t>(shape.head_dim) * sizeof(float));
          continue;
        }
        if (pass.count == kMaxQueries) return;
        pass.slot = args_.rows.slots[row_];
        const int32_t first = shape.window > 0 ? std::max(position - shape.window + 1, 0) : 0;
        pass.add({args_.qkv + row_ * args_.qkv_stride + q_head_ * shape.head_dim, out, first, position});
      }
    }
  }

  const AttentionArgs& args_;
  const int64_t max_rows_, thread_, threads_, num_rows_;
  int64_t num_pieces_ = 0;
  int64_t begin_ = 0, end_ = 0;              // the piece
  int64_t head_ = 0, row_ = 0, q_head_ = 0;  // where the next pass begins
};

/// What of block `index` a query sees: positions [begin, end) within the block; empty when begin >= end.
struct Visible {
  int32_t begin = 0, end = 0;
  Visible() = default;
  Visible(const Query& query, int32_t index)
      : begin(std::max(query.first - index * kKvBlockSize, 0)),
        end(std::min(query.position + 1 - index * kKvBlockSize, kKvBlockSize)) {}
  bool empty() const { return begin >= end; }
  bool operator==(const Visible&) const = default;
};

}  // namespace helios
