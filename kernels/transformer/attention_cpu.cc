// Rotation, cache writes and paged attention, vectorised over positions (scores) and head_dim (values).
//
// Up to kQueries queries of one KV head go through its blocks together, so a block is read once for all of them; each
// query has its own accumulators and its own running maximum, and meets its blocks in ascending order (X1). Positions
// that a query does not see are never multiplied: what lies there (another request's remains, a later row's NaN) cannot
// reach it. Mapping: items of (rows, KV head), dealt to threads in turn. Sums over positions run in 16 virtual lanes,
// so AVX2 and AVX-512 give the same bits; a baseline without fused multiply-add does not. A BF16 cache is widened in
// registers, so it gives the bits of an FP32 cache that holds the same values, for half the bytes.
#include "kernels/transformer/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer/attention_cpu.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/transformer/row_ops-inl.h"
// After the row operations: this header has its own per-target guard.
#include <hwy/contrib/math/math-inl.h>

#ifndef HELIOS_ATTENTION_ITEMS
#define HELIOS_ATTENTION_ITEMS
namespace helios {
namespace {

constexpr int64_t kMaxQueries = 32;  // of one pass over the blocks

constexpr int64_t padded_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// One head of one row, going through its blocks.
struct Query {
  const float* q = nullptr;
  float* out = nullptr;
  int32_t first = 0, position = 0;  // visible keys [first, position]
};

/// A thread's scratch.
struct PassBuffers {
  float* values;  // [kMaxQueries, padded_dim]
  float* scores;  // [kMaxQueries, kKvBlockSize]
  float* max;     // [kMaxQueries]
  float* mass;    // [kMaxQueries]
};

int64_t pass_floats(int64_t head_dim) { return kMaxQueries * (padded_dim(head_dim) + kKvBlockSize + 2); }

PassBuffers buffers_of(void* scratch, int64_t head_dim, int64_t thread) {
  float* base = static_cast<float*>(scratch) + thread * pass_floats(head_dim);
  float* scores = base + kMaxQueries * padded_dim(head_dim);
  float* max = scores + kMaxQueries * kKvBlockSize;
  return {base, scores, max, max + kMaxQueries};
}

/// What of block `index` a query sees: positions [begin, end) within the block; empty when begin >= end.
struct Visible {
  int32_t begin, end;
  Visible(const Query& query, int32_t index)
      : begin(std::max(query.first - index * kKvBlockSize, 0)),
        end(std::min(query.position + 1 - index * kKvBlockSize, kKvBlockSize)) {}
  bool operator==(const Visible&) const = default;
};

}  // namespace
}  // namespace helios
#endif  // HELIOS_ATTENTION_ITEMS

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {

// Queries that share a load of the block: accumulators of kVecs vectors each.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kMaxTogether = 4;
#else
constexpr int kMaxTogether = 2;
#endif
constexpr int kVecs = 4;

/// One head in place: RMS norm (if weighted), rotation of i with i + half, rounding.
void NormAndRotate(float* HWY_RESTRICT x, int64_t head_dim, const float* norm, float eps, const float* HWY_RESTRICT cos,
                   const float* HWY_RESTRICT sin, DType round_to) {
  if (norm) NormRow(x, norm, eps, head_dim, x, DType::kFloat32);
  const int64_t half = head_dim / 2;
  ForEach(half, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    const auto first = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto second = hn::MulAdd(a, s, hn::Mul(b, c));
    hn::StoreU(RoundTo(d, first, round_to), d, x + i);
    hn::StoreU(RoundTo(d, second, round_to), d, x + half + i);
  });
}

/// A BF16 value is the upper half of an FP32 one.
template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<uint16_t, D> narrow;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, p))));
}

HWY_INLINE void StoreElement(float* to, float value) { *to = value; }
HWY_INLINE void StoreElement(uint16_t* to, float value) { *to = float_to_bf16(value); }

/// Key and value heads of a row to position `offset` of a block.
template <class T>
void CacheRow(const RopeAndCacheArgs& args, int64_t block, int64_t offset, const float* k, const float* v) {
  const int64_t dim = args.shape.head_dim;
  for (int64_t h = 0; h < args.shape.kv_heads; ++h) {
    const int64_t base = (block * args.shape.kv_heads + h) * dim * kKvBlockSize;
    T* keys = static_cast<T*>(args.cache.keys) + base + offset;
    T* values = static_cast<T*>(args.cache.values) + base + offset * dim;
    for (int64_t i = 0; i < dim; ++i) StoreElement(keys + i * kKvBlockSize, k[h * dim + i]);
    for (int64_t i = 0; i < dim; ++i) StoreElement(values + i, v[h * dim + i]);
  }
}

void RopeAndCacheRow(const RopeAndCacheArgs& args, int64_t row) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim, position = args.rows.positions[row];
  const float* cos = args.rope.cos + position * (dim / 2);
  const float* sin = args.rope.sin + position * (dim / 2);
  float* q = args.qkv + row * args.qkv_stride;
  float* k = q + shape.q_heads * dim;
  float* v = k + shape.kv_heads * dim;
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    NormAndRotate(q + h * dim, dim, args.q_norm, args.norm_eps, cos, sin, args.round_to);
  }
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    NormAndRotate(k + h * dim, dim, args.k_norm, args.norm_eps, cos, sin, args.round_to);
  }
  if (args.round_to == DType::kFloat16) {
    ForEach(shape.kv_heads * dim, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      const auto key = hn::LoadU(d, k + i);
      const auto infinite = hn::Eq(hn::Abs(key), hn::Set(d, HUGE_VALF));
      hn::StoreU(hn::IfThenElse(infinite, hn::Sub(key, key), key), d, k + i);
    });
  }
  if (args.round_to != DType::kFloat32) {
    ForEach(shape.kv_heads * dim, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      hn::StoreU(RoundTo(d, hn::LoadU(d, v + i), args.round_to), d, v + i);
    });
  }
  const int64_t table = static_cast<int64_t>(args.rows.slots[row]) * args.rows.max_blocks;
  const int64_t block = args.rows.block_tables[table + position / kKvBlockSize], offset = position % kKvBlockSize;
  if (args.cache.dtype == DType::kBFloat16) return CacheRow<uint16_t>(args, block, offset, k, v);
  CacheRow<float>(args, block, offset, k, v);
}

/// A block's keys or values that are needed next, fetched piece by piece while others are multiplied. Blocks lie
/// anywhere, and the hardware would notice each only once it is being read.
class Ahead {
 public:
  /// `count` elements from `from`, in `pieces` steps. Null: nothing.
  template <class T>
  Ahead(const T* from, int64_t count, int64_t pieces)
      : at_(reinterpret_cast<const char*>(from)),
        end_(from ? at_ + count * static_cast<int64_t>(sizeof(T)) : at_),
        lines_((count * static_cast<int64_t>(sizeof(T)) / 64 + pieces - 1) / pieces) {}
  HWY_INLINE void Fetch() {
    for (int64_t line = 0; line < lines_ && at_ < end_; ++line, at_ += 64) hwy::Prefetch(at_);
  }

 private:
  const char* at_;
  const char* end_;
  int64_t lines_;
};

/// c[q][0, n vectors) = c * start[q] + sum over i in [begin, end) of a[q][i] * b[i * b_stride + column]; kZero: from
/// zero.
template <int kQueries, int kCount, bool kZero, class D, class T>
HWY_INLINE void Accumulate(D d, const float* const* a, const T* HWY_RESTRICT b, int64_t b_stride, int64_t begin,
                           int64_t end, const float* start, float* const* c, int64_t column, Ahead& ahead) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::MaxLanes(d));
  V sums[kQueries][kCount];
  const float* left[kQueries];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
    left[q] = a[q];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      sums[q][v] = kZero ? hn::Zero(d) : hn::Mul(hn::LoadU(d, c[q] + column + v * lanes), hn::Set(d, start[q]));
    }
  }
  for (int64_t i = begin; i < end; ++i) {
    ahead.Fetch();
    V right[kCount];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) right[v] = LoadWidened(d, b + i * b_stride + column + v * lanes);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      const V broadcast = hn::Set(d, left[q][i]);
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) sums[q][v] = hn::MulAdd(broadcast, right[v], sums[q][v]);
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) hn::StoreU(sums[q][v], d, c[q] + column + v * lanes);
  }
}

/// Accumulate() over `columns` columns: four vectors at a time, then one, then single elements.
template <int kQueries, bool kZero, class T>
HWY_NOINLINE void Product(const float* const* a, const T* b, int64_t b_stride, int64_t begin, int64_t end,
                          const float* start, float* const* c, int64_t columns, Ahead ahead) {
  const F32 d;
  int64_t column = 0;
  for (; column + kVecs * kLanes <= columns; column += kVecs * kLanes) {
    Accumulate<kQueries, kVecs, kZero>(d, a, b, b_stride, begin, end, start, c, column, ahead);
  }
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes) {
    Accumulate<kQueries, 2, kZero>(d, a, b, b_stride, begin, end, start, c, column, ahead);
  }
  for (; column + kLanes <= columns; column += kLanes) {
    Accumulate<kQueries, 1, kZero>(d, a, b, b_stride, begin, end, start, c, column, ahead);
  }
  for (; column < columns; ++column) {
    Accumulate<kQueries, 1, kZero>(One(), a, b, b_stride, begin, end, start, c, column, ahead);
  }
}

/// e^x for x <= 0; NaN stays NaN (Highway's Exp gives 0).
template <class V>
HWY_INLINE V ExpKeepingNan(V x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(F32(), x), x);
}

/// Scores to weights e^(s - max) of the running softmax; unseen positions get 0. Returns the factor for what was
/// summed before.
float FoldScores(float* HWY_RESTRICT scores, Visible visible, float scale, float& max, float& mass) {
  const F32 d;
  const auto lowest = hn::Set(d, -HUGE_VALF);
  auto best = lowest;
  for (int64_t i = 0; i < kKvBlockSize; i += kLanes) {
    const auto index = hn::Iota(d, static_cast<float>(i));
    const auto seen = hn::And(hn::Ge(index, hn::Set(d, static_cast<float>(visible.begin))),
                              hn::Lt(index, hn::Set(d, static_cast<float>(visible.end))));
    const auto scaled = hn::IfThenElse(seen, hn::Mul(hn::LoadU(d, scores + i), hn::Set(d, scale)), lowest);
    best = hn::Max(best, scaled);
    hn::StoreU(scaled, d, scores + i);
  }
  const float block_max = hn::GetLane(hn::MaxOfLanes(d, best));
  const float new_max = block_max > max ? block_max : max;
  HWY_ALIGN float lanes[kVirtualLanes];
  static_assert(kKvBlockSize == 2 * kVirtualLanes);
  for (int64_t i = 0; i < kVirtualLanes; i += kLanes) {
    const auto low = ExpKeepingNan(hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, new_max)));
    const auto high = ExpKeepingNan(hn::Sub(hn::LoadU(d, scores + kVirtualLanes + i), hn::Set(d, new_max)));
    hn::StoreU(low, d, scores + i);
    hn::StoreU(high, d, scores + kVirtualLanes + i);
    hn::StoreU(hn::Add(low, high), d, lanes + i);
  }
  const float keep = hn::GetLane(ExpKeepingNan(hn::Set(d, max - new_max)));
  mass = mass * keep + FoldLanes(lanes);
  max = new_max;
  return keep;
}

/// One block for queries [at, at + kQueries), all of which see the same part of it. `next`: keys that follow, or null.
template <int kQueries, class T>
HWY_INLINE void FoldBlock(const AttentionShape& shape, const Query* queries, int64_t at, Visible visible, const T* keys,
                          const T* values, const T* next, const PassBuffers& buffers) {
  // Those who come later find all of it in the cache.
  const int64_t ahead = at == 0 ? shape.head_dim * kKvBlockSize : 0;
  const float* q[kQueries];
  const float* weights[kQueries];
  float* scores[kQueries];
  float* sums[kQueries];
  float keep[kQueries];
  for (int j = 0; j < kQueries; ++j) {
    q[j] = queries[at + j].q;
    weights[j] = scores[j] = buffers.scores + (at + j) * kKvBlockSize;
    sums[j] = buffers.values + (at + j) * padded_dim(shape.head_dim);
  }
  Product<kQueries, true>(q, keys, kKvBlockSize, 0, shape.head_dim, nullptr, scores, kKvBlockSize,
                          Ahead(values, ahead, shape.head_dim));
  for (int j = 0; j < kQueries; ++j) {
    keep[j] = FoldScores(scores[j], visible, shape.scale, buffers.max[at + j], buffers.mass[at + j]);
  }
  const int64_t passes = (shape.head_dim + kVecs * kLanes - 1) / (kVecs * kLanes);
  Product<kQueries, false>(weights, values, shape.head_dim, visible.begin, visible.end, keep, sums, shape.head_dim,
                           Ahead(next, ahead, passes * (visible.end - visible.begin)));
}

template <class T>
void FoldBlockForAll(const AttentionShape& shape, const Query* queries, int64_t count, int32_t index, const T* keys,
                     const T* values, const T* next, const PassBuffers& buffers) {
  for (int64_t at = 0; at < count;) {
    const Visible visible(queries[at], index);
    int64_t same = 1;
    while (at + same < count && same < kMaxTogether && Visible(queries[at + same], index) == visible) ++same;
    if (visible.begin >= visible.end) {
      at += same;
    } else if (same >= 4) {
      if constexpr (kMaxTogether >= 4) FoldBlock<4>(shape, queries, at, visible, keys, values, next, buffers);
      at += 4;
    } else if (same >= 2) {
      FoldBlock<2>(shape, queries, at, visible, keys, values, next, buffers);
      at += 2;
    } else {
      FoldBlock<1>(shape, queries, at, visible, keys, values, next, buffers);
      at += 1;
    }
  }
}

/// Softmax-weighted values of `count` queries of one slot and one KV head.
template <class T>
void RunPass(const AttentionArgs& args, const Query* queries, int64_t count, int32_t slot, int64_t kv_head,
             const PassBuffers& buffers) {
  const T* keys = static_cast<const T*>(args.cache.keys);
  const T* values = static_cast<const T*>(args.cache.values);
  const int64_t dim = args.shape.head_dim, stride = padded_dim(dim);
  int32_t first = queries[0].first, last = queries[0].position;
  for (int64_t j = 0; j < count; ++j) {
    first = std::min(first, queries[j].first);
    last = std::max(last, queries[j].position);
    buffers.max[j] = -HUGE_VALF;
    buffers.mass[j] = 0.0f;
    std::memset(buffers.values + j * stride, 0, static_cast<size_t>(dim) * sizeof(float));
  }
  const int32_t* table = args.rows.block_tables + static_cast<int64_t>(slot) * args.rows.max_blocks;
  const auto place = [&](int32_t index) {
    return (static_cast<int64_t>(table[index]) * args.shape.kv_heads + kv_head) * dim * kKvBlockSize;
  };
  for (int32_t index = first / kKvBlockSize; index <= last / kKvBlockSize; ++index) {
    const int64_t base = place(index);
    const T* next = index < last / kKvBlockSize ? keys + place(index + 1) : nullptr;
    FoldBlockForAll(args.shape, queries, count, index, keys + base, values + base, next, buffers);
  }
  for (int64_t j = 0; j < count; ++j) {
    const float* sums = buffers.values + j * stride;
    float* out = queries[j].out;
    ForEach(dim, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      const auto value = hn::Div(hn::LoadU(d, sums + i), hn::Set(d, buffers.mass[j]));
      hn::StoreU(RoundTo(d, value, args.round_to), d, out + i);
    });
  }
}

/// Rows [begin, end) for one KV head: passes over rows of one slot.
void RunItem(const AttentionArgs& args, int64_t begin, int64_t end, int64_t kv_head, const PassBuffers& buffers) {
  const AttentionShape& shape = args.shape;
  Query queries[kMaxQueries];
  int64_t count = 0;
  int32_t slot = -1;
  const auto flush = [&]() HWY_ATTR {
    if (count > 0 && args.cache.dtype == DType::kBFloat16) {
      RunPass<uint16_t>(args, queries, count, slot, kv_head, buffers);
    } else if (count > 0) {
      RunPass<float>(args, queries, count, slot, kv_head, buffers);
    }
    count = 0;
  };
  for (int64_t row = begin; row < end; ++row) {
    const int32_t position = args.rows.positions[row];
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      if (shape.kv_of_q[h] != kv_head) continue;
      float* out = args.out + row * args.out_stride + h * shape.head_dim;
      if (position < 0) {
        std::memset(out, 0, static_cast<size_t>(shape.head_dim) * sizeof(float));
        continue;
      }
      if (count == kMaxQueries || (count > 0 && slot != args.rows.slots[row])) flush();
      slot = args.rows.slots[row];
      const int32_t first = shape.window > 0 ? std::max(position - shape.window + 1, 0) : 0;
      queries[count++] = {args.qkv + row * args.qkv_stride + h * shape.head_dim, out, first, position};
    }
  }
  flush();
}

}  // namespace

void RopeAndCacheRows(const RopeAndCacheArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (args.rows.positions[row] >= 0) RopeAndCacheRow(args, row);
  }
}

/// This thread's share of the items, `rows_an_item` rows each.
void AttentionThread(const AttentionArgs& args, void* scratch, int64_t rows_an_item, int64_t thread, int64_t threads) {
  const PassBuffers buffers = buffers_of(scratch, args.shape.head_dim, thread);
  const int64_t rows = *args.rows.num_rows, pieces = (rows + rows_an_item - 1) / rows_an_item;
  for (int64_t item = thread; item < pieces * args.shape.kv_heads; item += threads) {
    const int64_t begin = item / args.shape.kv_heads * rows_an_item;
    RunItem(args, begin, std::min(begin + rows_an_item, rows), item % args.shape.kv_heads, buffers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {

HWY_EXPORT(RopeAndCacheRows);
HWY_EXPORT(AttentionThread);

void rope_and_cache(const RopeAndCacheArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  constexpr int64_t kElementsWorthAFork = 16384;
  const int64_t row = static_cast<int64_t>(args.shape.q_heads + 2 * args.shape.kv_heads) * args.shape.head_dim;
  const int64_t grain = std::max<int64_t>(1, kElementsWorthAFork / std::max<int64_t>(row, 1));
  pool.parallel_for(*args.rows.num_rows, grain, [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeAndCacheRows)(args, begin, end);
  });
}

int64_t attention_scratch_bytes(const AttentionShape& shape, const AttentionRows&, int num_threads) {
  return num_threads * pass_floats(shape.head_dim) * static_cast<int64_t>(sizeof(float));
}

void paged_attention(const AttentionArgs& args, void* scratch, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const int64_t rows = *args.rows.num_rows;
  if (rows == 0 || args.shape.q_heads == 0 || args.shape.kv_heads == 0) return;
  // Items as large as one pass can take, but four a thread where there are rows enough.
  const int64_t group = std::max(1, args.shape.q_heads / args.shape.kv_heads);
  const int64_t wanted_pieces = (4 * pool.num_threads() + args.shape.kv_heads - 1) / args.shape.kv_heads;
  struct Step {
    const AttentionArgs& args;
    void* scratch;
    int64_t rows_an_item;
  } const step{args, scratch, std::clamp<int64_t>(rows / wanted_pieces, 1, std::max<int64_t>(1, kMaxQueries / group))};
  pool.run([&step](int thread, int threads) {
    HWY_DYNAMIC_DISPATCH(AttentionThread)(step.args, step.scratch, step.rows_an_item, thread, threads);
  });
}

}  // namespace helios
#endif  // HWY_ONCE
