// Rotation, cache writes and paged attention, vectorised over positions (scores) and head_dim (values).
//
// Up to kMaxQueries queries of one KV head go through its blocks together, so a block is read once for all of them;
// each query has its own accumulators and its own running maximum, and meets its blocks in ascending order (X1).
// Positions that a query does not see are never multiplied: what lies there (another request's remains, a later row's
// NaN) cannot reach it. Passes of few queries go through their blocks side by side, which changes no order. Mapping:
// passes over (rows, KV head), shared between threads by PassWalk. Sums over positions run in 16 virtual lanes, so AVX2
// and AVX-512 give the same bits; a baseline without fused multiply-add does not. A BF16 cache is widened in registers,
// so it gives the bits of an FP32 cache that holds the same values, for half the bytes.
#include "kernels/transformer/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/transformer/attention_passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer/attention_cpu.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/transformer/attention_products-inl.h"
#include "kernels/transformer/row_ops-inl.h"
// After the row operations: this header has its own per-target guard.
#include <hwy/contrib/math/math-inl.h>

#ifndef HELIOS_ATTENTION_ITEMS
#define HELIOS_ATTENTION_ITEMS
namespace helios {
namespace {

constexpr int64_t kMaxPasses = 16;  // of a group

constexpr int64_t padded_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// A thread's scratch, for the queries of a group of passes.
struct GroupBuffers {
  float* values;  // [kMaxQueries, padded_dim]
  float* scores;  // [kMaxQueries, kKvBlockSize]
  float* max;     // [kMaxQueries]
  float* mass;    // [kMaxQueries]
};

int64_t group_floats(int64_t head_dim) { return kMaxQueries * (padded_dim(head_dim) + kKvBlockSize + 2); }

GroupBuffers buffers_of(void* scratch, int64_t head_dim, int64_t thread) {
  float* base = static_cast<float*>(scratch) + thread * group_floats(head_dim);
  float* scores = base + kMaxQueries * padded_dim(head_dim);
  float* max = scores + kMaxQueries * kKvBlockSize;
  return {base, scores, max, max + kMaxQueries};
}

/// Queries [at, at + count) of a group, which see the same part of the same block.
struct Run {
  int64_t at = 0;
  int count = 0;
  Visible visible;
  int64_t place = 0;  // elements before the block's keys, or values, of the KV head
};

/// Runs of as many queries, of different passes, whose blocks are read side by side.
struct Bunch {
  int size = 0;  // 1, 2 or 4
  Run runs[4];
};

}  // namespace
}  // namespace helios
#endif  // HELIOS_ATTENTION_ITEMS

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {

// Queries that share a load of a block, and passes whose blocks are read side by side: a block alone is over before the
// hardware fetches it well ahead (25% of the time at 80 positions).
#if HWY_TARGET == HWY_AVX3
constexpr int kMaxTogether = 4;
constexpr int kBeside = 4;
#elif HWY_TARGET == HWY_NEON
constexpr int kMaxTogether = 4;
constexpr int kBeside = 1;
#else
constexpr int kMaxTogether = 2;
constexpr int kBeside = 1;
#endif

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

HWY_INLINE void StoreElement(float* to, float value) { *to = value; }
HWY_INLINE void StoreElement(uint16_t* to, float value) { *to = float_to_bf16(value); }

/// A key and a value head to position `offset` of a block; `base`: elements before the block's of that head.
template <class T>
void CacheHead(const RopeAndCacheArgs& args, int64_t base, int64_t offset, const float* k, const float* v) {
  const int64_t dim = args.shape.head_dim;
  T* keys = static_cast<T*>(args.cache.keys) + base + offset;
  T* values = static_cast<T*>(args.cache.values) + base + offset * dim;
  for (int64_t i = 0; i < dim; ++i) StoreElement(keys + i * kKvBlockSize, k[i]);
  for (int64_t i = 0; i < dim; ++i) StoreElement(values + i, v[i]);
}

/// One KV head of a row, and its even share of the query heads.
void RopeAndCacheHead(const RopeAndCacheArgs& args, int64_t row, int64_t kv_head) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim, position = args.rows.positions[row];
  const float* cos = args.rope.cos + position * (dim / 2);
  const float* sin = args.rope.sin + position * (dim / 2);
  float* q = args.qkv + row * args.qkv_stride;
  float* k = q + (shape.q_heads + kv_head) * dim;
  float* v = k + shape.kv_heads * dim;
  const int64_t q_end = (kv_head + 1) * shape.q_heads / shape.kv_heads;
  for (int64_t h = kv_head * shape.q_heads / shape.kv_heads; h < q_end; ++h) {
    NormAndRotate(q + h * dim, dim, args.q_norm, args.norm_eps, cos, sin, args.round_to);
  }
  NormAndRotate(k, dim, args.k_norm, args.norm_eps, cos, sin, args.round_to);
  if (args.round_to == DType::kFloat16) {
    ForEach(dim, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      const auto key = hn::LoadU(d, k + i);
      const auto infinite = hn::Eq(hn::Abs(key), hn::Set(d, HUGE_VALF));
      hn::StoreU(hn::IfThenElse(infinite, hn::Sub(key, key), key), d, k + i);
    });
  }
  if (args.round_to != DType::kFloat32) {
    ForEach(dim, [&](auto d, int64_t i)
                     HELIOS_INLINE_LAMBDA { hn::StoreU(RoundTo(d, hn::LoadU(d, v + i), args.round_to), d, v + i); });
  }
  const int64_t table = static_cast<int64_t>(args.rows.slots[row]) * args.rows.max_blocks;
  const int64_t block = args.rows.block_tables[table + position / kKvBlockSize], offset = position % kKvBlockSize;
  const int64_t base = (block * shape.kv_heads + kv_head) * dim * kKvBlockSize;
  if (args.cache.dtype == DType::kBFloat16) return CacheHead<uint16_t>(args, base, offset, k, v);
  CacheHead<float>(args, base, offset, k, v);
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

/// Passes that go through their blocks side by side.
template <class T>
class PassGroup {
 public:
  PassGroup(const AttentionArgs& args, const GroupBuffers& buffers) : args_(args), buffers_(buffers) {}

  /// Whether a pass fits in beside the others.
  bool takes(const Pass& pass) const { return num_passes_ < kMaxPasses && num_queries_ + pass.count <= kMaxQueries; }
  void add(const Pass& pass) {
    passes_[num_passes_++] = {pass.slot, pass.kv_head, pass.first_block, pass.last_block, num_queries_, pass.count};
    std::copy_n(pass.queries, pass.count, queries_ + num_queries_);
    num_queries_ += pass.count;
  }

  /// Softmax-weighted values of all queries; then the group is empty.
  void Finish() {
    const int64_t dim = args_.shape.head_dim, stride = padded_dim(dim);
    std::fill_n(buffers_.max, num_queries_, -HUGE_VALF);
    std::fill_n(buffers_.mass, num_queries_, 0.0f);
    std::memset(buffers_.values, 0, static_cast<size_t>(num_queries_ * stride) * sizeof(float));
    for (int32_t step = 0; FindRuns(step); ++step) FoldRuns(step);
    for (int64_t j = 0; j < num_queries_; ++j) {
      const float* sums = buffers_.values + j * stride;
      float* out = queries_[j].out;
      ForEach(dim, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
        const auto value = hn::Div(hn::LoadU(d, sums + i), hn::Set(d, buffers_.mass[j]));
        hn::StoreU(RoundTo(d, value, args_.round_to), d, out + i);
      });
    }
    num_passes_ = num_queries_ = 0;
  }

 private:
  struct Member {
    int32_t slot;
    int64_t kv_head;
    int32_t first_block, last_block;
    int64_t first_query, num_queries;
    int64_t first_run = 0, num_runs = 0;  // of the block that it is at
  };

  const T* keys() const { return static_cast<const T*>(args_.cache.keys); }
  const T* values() const { return static_cast<const T*>(args_.cache.values); }
  int64_t block_elements() const { return args_.shape.head_dim * kKvBlockSize; }
  int64_t PlaceOf(const Member& pass, int32_t index) const {
    const int64_t block = args_.rows.block_tables[int64_t{pass.slot} * args_.rows.max_blocks + index];
    return (block * args_.shape.kv_heads + pass.kv_head) * block_elements();
  }

  /// The runs of each pass's block number `step`; false when no pass has one.
  bool FindRuns(int32_t step) {
    bool any = false;
    int64_t num_runs = 0;
    for (int64_t p = 0; p < num_passes_; ++p) {
      Member& pass = passes_[p];
      pass.first_run = num_runs, pass.num_runs = 0;
      const int32_t index = pass.first_block + step;
      if (index > pass.last_block) continue;
      any = true;
      const int64_t place = PlaceOf(pass, index), end = pass.first_query + pass.num_queries;
      FetchPageStarts(values() + place, block_elements());
      for (int64_t at = pass.first_query; at < end;) {
        const Visible visible(queries_[at], index);
        int same = 1;
        while (at + same < end && same < kMaxTogether && Visible(queries_[at + same], index) == visible) ++same;
        if (same == 3) same = 2;
        if (!visible.empty()) runs_[num_runs + pass.num_runs++] = {at, same, visible, place};
        at += same;
      }
      num_runs += pass.num_runs;
    }
    return any;
  }

  /// The passes' first runs, then their second, ..., in bunches of as many queries each.
  void BunchRuns() {
    num_bunches_ = 0;
    for (int64_t ordinal = 0, left = 1; left > 0; ++ordinal) {
      left = 0;
      Bunch bunch;
      for (int64_t p = 0; p < num_passes_; ++p) {
        if (ordinal >= passes_[p].num_runs) continue;
        const Run& run = runs_[passes_[p].first_run + ordinal];
        const bool full = bunch.size == kBeside || bunch.size * run.count == 2 * kBeside;
        if (bunch.size > 0 && (run.count != bunch.runs[0].count || full)) Add(bunch);
        bunch.runs[bunch.size++] = run;
        left += ordinal + 1 < passes_[p].num_runs;
      }
      Add(bunch);
    }
  }
  /// Three are two and one.
  void Add(Bunch& bunch) {
    if (bunch.size == 3) {
      bunches_[num_bunches_++] = {2, {bunch.runs[0], bunch.runs[1]}};
      bunch = {1, {bunch.runs[2]}};
    }
    if (bunch.size > 0) bunches_[num_bunches_++] = bunch;
    bunch.size = 0;
  }

  void FoldRuns(int32_t step) {
    BunchRuns();
    for (int b = 0; b < num_bunches_; ++b) {
      const Bunch& bunch = bunches_[b];
      ForBunch(bunch, [&](auto size, auto count) HWY_ATTR { Scores<size(), count()>(bunch.runs); });
    }
    for (int b = 0; b < num_bunches_; ++b) {
      for (int r = 0; r < bunches_[b].size; ++r) FoldScoresOf(bunches_[b].runs[r]);
    }
    for (int64_t p = 0; p < num_passes_; ++p) {
      const int32_t next = passes_[p].first_block + step + 1;
      if (next <= passes_[p].last_block) FetchPageStarts(keys() + PlaceOf(passes_[p], next), block_elements());
    }
    for (int b = 0; b < num_bunches_; ++b) {
      const Bunch& bunch = bunches_[b];
      ForBunch(bunch, [&](auto size, auto count) HWY_ATTR { Values<size(), count()>(bunch.runs); });
    }
  }

  /// Calls `function` with constants: how many passes, and how many queries of each.
  template <class Function>
  HWY_INLINE void ForBunch(const Bunch& bunch, const Function& function) {
    const auto call = [&](auto count) HWY_ATTR {
      if constexpr (kBeside >= 4 && count() <= 2) {
        if (bunch.size == 4) return function(std::integral_constant<int, 4>(), count);
      }
      if constexpr (kBeside >= 2) {
        if (bunch.size == 2) return function(std::integral_constant<int, 2>(), count);
      }
      function(std::integral_constant<int, 1>(), count);
    };
    if (bunch.runs[0].count == 1) return call(std::integral_constant<int, 1>());
    if (bunch.runs[0].count == 2) return call(std::integral_constant<int, 2>());
    if constexpr (kMaxTogether >= 4) call(std::integral_constant<int, 4>());
  }

  template <int kPasses, int kQueries>
  void Scores(const Run* runs) {
    const float* q[kPasses][kQueries];
    float* scores[kPasses][kQueries];
    const T* blocks[kPasses];
    int32_t seen = 0;
    for (int p = 0; p < kPasses; ++p) {
      blocks[p] = keys() + runs[p].place;
      seen = std::max(seen, runs[p].visible.end);
      for (int j = 0; j < kQueries; ++j) {
        q[p][j] = queries_[runs[p].at + j].q;
        scores[p][j] = buffers_.scores + (runs[p].at + j) * kKvBlockSize;
      }
    }
    // Not the keys behind the last that is seen: half of a block's may be other lines of memory.
    const int64_t dim = args_.shape.head_dim, columns = seen <= kKvBlockSize / 2 ? kKvBlockSize / 2 : kKvBlockSize;
    if constexpr (kPasses == 1) {
      Product<kQueries, true>(q[0], blocks[0], kKvBlockSize, 0, dim, nullptr, scores[0], columns);
    } else {
      constexpr int kAll = kKvBlockSize / kLanes;
      if (columns == kKvBlockSize) return ScoresTogether<kPasses, kQueries, kAll>(q, blocks, dim, scores);
      ScoresTogether<kPasses, kQueries, kAll / 2>(q, blocks, dim, scores);
    }
  }

  void FoldScoresOf(const Run& run) {
    for (int64_t j = run.at; j < run.at + run.count; ++j) {
      keep_[j] = FoldScores(buffers_.scores + j * kKvBlockSize, run.visible, args_.shape.scale, buffers_.max[j],
                            buffers_.mass[j]);
    }
  }

  template <int kPasses, int kQueries>
  void Values(const Run* runs) {
    const int64_t dim = args_.shape.head_dim;
    const float* weights[kPasses][kQueries];
    float* sums[kPasses][kQueries];
    const T* blocks[kPasses];
    for (int p = 0; p < kPasses; ++p) {
      blocks[p] = values() + runs[p].place;
      for (int j = 0; j < kQueries; ++j) {
        weights[p][j] = buffers_.scores + (runs[p].at + j) * kKvBlockSize;
        sums[p][j] = buffers_.values + (runs[p].at + j) * padded_dim(dim);
      }
    }
    const auto add = [&](int p, bool first, int64_t from, int64_t to) HWY_ATTR {
      if (first)
        return Product<kQueries, false>(weights[p], blocks[p], dim, from, to, keep_ + runs[p].at, sums[p], dim);
      constexpr float kOnes[] = {1.0f, 1.0f, 1.0f, 1.0f};
      Product<kQueries, false>(weights[p], blocks[p], dim, from, to, kOnes, sums[p], dim);
    };
    if constexpr (kPasses == 1) return add(0, true, runs[0].visible.begin, runs[0].visible.end);
    // Together where all see the positions, after what only some see of those before, and before those behind.
    int64_t begin = 0, end = kKvBlockSize;
    for (int p = 0; p < kPasses; ++p) {
      begin = std::max<int64_t>(begin, runs[p].visible.begin), end = std::min<int64_t>(end, runs[p].visible.end);
    }
    end = std::max(begin, end);
    for (int p = 0; p < kPasses; ++p) {
      add(p, true, runs[p].visible.begin, std::min<int64_t>(begin, runs[p].visible.end));
    }
    if (dim % (kVecs * kLanes) != 0) end = begin;
    ValuesTogether<kPasses, kQueries>(weights, blocks, begin, end, sums, dim);
    for (int p = 0; p < kPasses; ++p) {
      const int64_t from = std::max<int64_t>(end, runs[p].visible.begin);
      add(p, false, std::min<int64_t>(from, runs[p].visible.end), runs[p].visible.end);
    }
  }

  const AttentionArgs& args_;
  const GroupBuffers& buffers_;
  Member passes_[kMaxPasses];
  Run runs_[kMaxQueries];  // of all passes' blocks of this step
  Query queries_[kMaxQueries];
  Bunch bunches_[kMaxQueries];
  float keep_[kMaxQueries];
  int64_t num_passes_ = 0, num_queries_ = 0;
  int num_bunches_ = 0;
};

template <class T>
void RunPasses(const AttentionArgs& args, PassWalk& walk, const GroupBuffers& buffers) {
  PassGroup<T> group(args, buffers);
  Pass pass;
  while (walk.next(pass)) {
    if (!group.takes(pass)) group.Finish();
    group.add(pass);
  }
  group.Finish();
}

}  // namespace

/// KV heads [begin, end) of all rows' in a line.
void RopeAndCacheHeads(const RopeAndCacheArgs& args, int64_t begin, int64_t end) {
  for (int64_t head = begin; head < end; ++head) {
    const int64_t row = head / args.shape.kv_heads;
    if (args.rows.positions[row] >= 0) RopeAndCacheHead(args, row, head % args.shape.kv_heads);
  }
}

/// This thread's passes, of pieces of at most `max_rows` rows.
void AttentionThread(const AttentionArgs& args, void* scratch, int64_t max_rows, int64_t thread, int64_t threads) {
  const GroupBuffers buffers = buffers_of(scratch, args.shape.head_dim, thread);
  PassWalk walk(args, max_rows, thread, threads);
  if (args.cache.dtype == DType::kBFloat16) return RunPasses<uint16_t>(args, walk, buffers);
  RunPasses<float>(args, walk, buffers);
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {

HWY_EXPORT(RopeAndCacheHeads);
HWY_EXPORT(AttentionThread);

void rope_and_cache(const RopeAndCacheArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  constexpr int64_t kElementsWorthAFork = 2048;  // written to lines of memory that nobody has fetched
  const AttentionShape& shape = args.shape;
  if (shape.kv_heads == 0) return;
  const int64_t head = (shape.q_heads / shape.kv_heads + 2) * shape.head_dim;
  const int64_t grain = std::max<int64_t>(1, kElementsWorthAFork / std::max<int64_t>(head, 1));
  pool.parallel_for(*args.rows.num_rows * shape.kv_heads, grain, [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeAndCacheHeads)(args, begin, end);
  });
}

int64_t attention_scratch_bytes(const AttentionShape& shape, const AttentionRows&, int num_threads) {
  return num_threads * group_floats(shape.head_dim) * static_cast<int64_t>(sizeof(float));
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
    int64_t max_rows;
  } const step{args, scratch, std::clamp<int64_t>(rows / wanted_pieces, 1, std::max<int64_t>(1, kMaxQueries / group))};
  pool.run([&step](int thread, int threads) {
    HWY_DYNAMIC_DISPATCH(AttentionThread)(step.args, step.scratch, step.max_rows, thread, threads);
  });
}

}  // namespace helios
#endif  // HWY_ONCE
