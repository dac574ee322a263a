// Rotation, cache writes and paged attention against float64, and X1: a row's bits depend on its position and cache
// alone, in prefill with any chunking and in decode. Over an FP32 cache and a BF16 one: the definition reads the cache
// that the kernel reads, so what a BF16 cache rounds is not part of a tolerance.
#include "kernels/transformer/attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/aligned_buffer.h"
#include "kernels/transformer/reference.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/float_values.h"

namespace helios {
namespace {

using testing::bits_of;
using testing::count_of;
using testing::GuardedFloats;
using testing::random_floats;

using testing::kNan;

// Tolerances, absolute, for unit-normal q, k and v. A score is a sum of head_dim products (at most 128, scaled to about
// 1), so it is off by a few 2^-24 times its terms; the weights by as much, relatively; outputs are averages of values.
constexpr double kRopeTolerance = 2e-6, kAttentionTolerance = 8e-6;

constexpr DType kCaches[] = {DType::kFloat32, DType::kBFloat16};

struct Geometry {
  int q_heads, kv_heads, head_dim;
  std::vector<int32_t> kv_of_q;
};

Geometry grouped(int q_heads, int kv_heads, int head_dim) {
  Geometry geometry{q_heads, kv_heads, head_dim, {}};
  for (int h = 0; h < q_heads; ++h) geometry.kv_of_q.push_back(h * kv_heads / q_heads);
  return geometry;
}

/// Slots with a paged cache: block tables are a random permutation, the cache is NaN where nothing was written.
class Cache {
 public:
  Cache(const Geometry& geometry, int slots, int max_positions, DType dtype = DType::kFloat32, uint32_t seed = 3)
      : geometry_(geometry), dtype_(dtype), max_blocks_((max_positions + kKvBlockSize - 1) / kKvBlockSize) {
    const int64_t blocks = static_cast<int64_t>(slots) * max_blocks_ + 1;
    table_.resize(static_cast<size_t>(slots) * max_blocks_);
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(seed));
    elements_ = blocks * geometry.kv_heads * geometry.head_dim * kKvBlockSize;
    keys_.assign(static_cast<size_t>(elements_) * dtype_bytes(dtype), 0xff);  // NaN in either type
    values_ = keys_;
    const int half = geometry.head_dim / 2;
    for (int p = 0; p < max_positions; ++p) {
      for (int i = 0; i < half; ++i) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(i) / half);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  int64_t row_floats() const { return (geometry_.q_heads + 2 * geometry_.kv_heads) * int64_t{geometry_.head_dim}; }
  int64_t out_floats() const { return geometry_.q_heads * int64_t{geometry_.head_dim}; }
  KvLayer layer() { return {keys_.data(), values_.data(), dtype_}; }
  std::vector<float> keys() const { return widened(keys_); }
  std::vector<float> values() const { return widened(values_); }
  float stored(float x) const { return dtype_ == DType::kBFloat16 ? round_to_bf16(x) : x; }
  RopeTable rope() const { return {cos_.data(), sin_.data()}; }

  AttentionShape shape(int32_t window = 0) const {
    return {geometry_.q_heads,
            geometry_.kv_heads,
            geometry_.head_dim,
            geometry_.kv_of_q.data(),
            1.0f / std::sqrt(static_cast<float>(geometry_.head_dim)),
            window};
  }
  AttentionRows rows(const std::vector<int32_t>& positions, const std::vector<int32_t>& slots) const {
    const auto count = static_cast<int64_t>(positions.size());
    return {positions.data(), slots.data(), table_.data(), max_blocks_, count_of(count), count};
  }

 private:
  std::vector<float> widened(const std::vector<uint8_t>& bytes) const {
    std::vector<float> out(static_cast<size_t>(elements_));
    for (int64_t i = 0; i < elements_; ++i) out[i] = load_element(bytes.data(), dtype_, i);
    return out;
  }

  Geometry geometry_;
  DType dtype_;
  int max_blocks_;
  int64_t elements_ = 0;
  std::vector<int32_t> table_;
  std::vector<uint8_t> keys_, values_;
  std::vector<float> cos_, sin_;
};

/// One step over the rows: norm, rotate, cache, attend. `qkv` [rows, row_floats] is changed. Dense [rows, out_floats].
std::vector<float> step(Cache& cache, std::vector<float>& qkv, const std::vector<int32_t>& positions,
                        const std::vector<int32_t>& slots, int32_t window, const float* norm, ThreadPool& pool,
                        DType round_to = DType::kFloat32) {
  RopeAndCacheArgs rope{qkv.data(), cache.row_floats(), cache.shape(window), cache.rows(positions, slots)};
  rope.q_norm = norm;
  rope.k_norm = norm ? norm + cache.shape().head_dim : nullptr;
  rope.norm_eps = 1e-6f;
  rope.rope = cache.rope();
  rope.cache = cache.layer();
  rope.round_to = round_to;
  rope_and_cache(rope, pool);

  const int64_t stride = cache.out_floats() + 2, rows = static_cast<int64_t>(positions.size());
  GuardedFloats out(rows * stride);
  const int64_t bytes = attention_scratch_bytes(cache.shape(), cache.rows(positions, slots), pool.num_threads());
  AlignedBuffer scratch(static_cast<size_t>(bytes) + 64);
  std::fill_n(scratch.as<uint8_t>(), bytes + 64, uint8_t{0xff});
  paged_attention({qkv.data(), cache.row_floats(), cache.shape(window), cache.rows(positions, slots), cache.layer(),
                   out.data(), stride, round_to},
                  scratch.data(), pool);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(scratch.as<uint8_t>()[bytes + i], 0xff) << "scratch overrun";
  std::vector<float> dense;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < cache.out_floats(); ++i) dense.push_back(out[r * stride + i]);
    EXPECT_EQ(out[r * stride + cache.out_floats()], -77.0f) << "wrote between rows";
  }
  return dense;
}

std::vector<int32_t> ascending(int32_t begin, int32_t end) {
  std::vector<int32_t> values(end - begin);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

const std::vector<Geometry>& geometries() {
  static const std::vector<Geometry> all = {
      grouped(4, 2, 8), grouped(3, 3, 12), grouped(6, 2, 20), grouped(8, 1, 24), grouped(4, 4, 32), grouped(14, 2, 64),
      grouped(4, 2, 128), grouped(12, 4, 128), grouped(8, 1, 128),
      // uneven groups, as where KV heads are replicated, and one group beyond a pass
      Geometry{5, 2, 16, {0, 1, 1, 0, 1}}, grouped(40, 1, 8)};
  return all;
}

constexpr DType kRounded[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat32, DType::kFloat16};

TEST(RopeAndCache, MeetsFloat64AndWritesKeysTransposed) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const Geometry& geometry : geometries()) {
      for (const bool with_norm : {false, true}) {
        for (const int variant : {0, 1, 2, 3}) {
          const DType round = kRounded[variant];
          Cache cache(geometry, 3, 100, kCaches[variant == 2]);
          const std::vector<float> norm = random_floats(2 * geometry.head_dim, 31);
          const std::vector<int32_t> positions = {0, 33, -1, 99, 31}, slots = {1, 0, 2, 2, 1};
          const int64_t width = cache.row_floats(), stride = width + 5, dim = geometry.head_dim;
          const std::vector<float> input = random_floats(5 * stride, 32);
          std::vector<float> qkv = input;
          RopeAndCacheArgs args{qkv.data(), stride, cache.shape(), cache.rows(positions, slots)};
          if (with_norm) args.q_norm = norm.data(), args.k_norm = norm.data() + dim;
          args.norm_eps = 0.01f;
          args.rope = cache.rope();
          args.cache = cache.layer();
          args.round_to = round;
          std::vector<double> expected(5 * width);
          rope_reference(args, expected.data());
          rope_and_cache(args, pool);
          const std::vector<float> keys = cache.keys(), values = cache.values();
          int64_t written = 0;
          for (int64_t r = 0; r < 5; ++r) {
            for (int64_t i = 0; i < stride; ++i) {
              const float value = qkv[r * stride + i];
              if (positions[r] < 0 || i >= width) {
                ASSERT_EQ(value, input[r * stride + i]);  // dead rows and padding are left alone
                continue;
              }
              const double want = expected[r * width + i];
              const double rounding = round != DType::kFloat32 ? std::fabs(want) * 0x1p-8 : 0;
              ASSERT_NEAR(value, want, kRopeTolerance + rounding) << r << " " << i;
              ASSERT_EQ(value, round_to_dtype(round, value));
            }
            if (positions[r] < 0) continue;
            const int64_t block = args.rows.block_tables[slots[r] * args.rows.max_blocks + positions[r] / kKvBlockSize];
            const int64_t offset = positions[r] % kKvBlockSize;
            const float* k = &qkv[r * stride + geometry.q_heads * dim];
            for (int64_t h = 0; h < geometry.kv_heads; ++h) {
              const int64_t base = (block * geometry.kv_heads + h) * dim * kKvBlockSize;
              for (int64_t i = 0; i < dim; ++i, ++written) {
                ASSERT_EQ(keys[base + i * kKvBlockSize + offset], cache.stored(k[h * dim + i]));
                ASSERT_EQ(values[base + offset * dim + i], cache.stored(k[(geometry.kv_heads + h) * dim + i]));
              }
            }
          }
          const auto is_set = [](float f) { return f == f; };
          EXPECT_EQ(std::count_if(keys.begin(), keys.end(), is_set), written) << "keys written elsewhere";
          EXPECT_EQ(std::count_if(values.begin(), values.end(), is_set), written) << "values written elsewhere";
        }
      }
    }
  }
}

TEST(PagedAttention, MeetsFloat64InMixedBatches) {
  for (const int threads : testing::cases_for_device<int>({1, 2, 3}, 1)) {
    ThreadPool pool(threads);
    for (const Geometry& geometry : testing::cases_for_device(geometries(), 3)) {
      for (const auto& [window, dtype] : {std::pair{0, kCaches[0]}, {1, kCaches[0]}, {7, kCaches[1]}, {40, kCaches[0]},
                                          {0, kCaches[1]}, {40, kCaches[1]}}) {
        Cache cache(geometry, 4, 130, dtype);
        // Slot 0 has 100 positions, slot 2 has 31; then a step that mixes decode, a prefill tail and dead rows.
        std::vector<float> first = random_floats(131 * cache.row_floats(), 41);
        std::vector<int32_t> positions = ascending(0, 100), slots(100, 0);
        for (const int32_t p : ascending(0, 31)) positions.push_back(p), slots.push_back(2);
        step(cache, first, positions, slots, window, nullptr, pool);
        positions = {100, -1, 31, 32, 33, 0, 1, -1};
        slots = {0, 1, 2, 2, 2, 3, 3, 0};
        std::vector<float> qkv = random_floats(8 * cache.row_floats(), 42);
        const std::vector<float> out = step(cache, qkv, positions, slots, window, nullptr, pool);
        std::vector<double> expected(8 * cache.out_floats());
        attention_reference(
            {qkv.data(), cache.row_floats(), cache.shape(window), cache.rows(positions, slots), cache.layer()},
            expected.data());
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], kAttentionTolerance) << i;
        for (int64_t i = 0; i < cache.out_floats(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(out[cache.out_floats() + i]), 0u) << "a dead row gives +0";
        }
      }
    }
  }
}

// An infinite key may get a score of -inf, and then weighs nothing: it must not be overlooked.
TEST(PagedAttention, AKeyBeyondF16SpoilsEveryRowThatSeesItAndNoOther) {
  ThreadPool pool(1);
  const Geometry geometry = grouped(4, 2, 32);
  Cache cache(geometry, 1, 40);
  std::vector<float> qkv = random_floats(40 * cache.row_floats(), 45);
  qkv[20 * cache.row_floats() + geometry.q_heads * geometry.head_dim + 3] = -1e6f;  // of KV head 0
  const std::vector<int32_t> slots(40, 0);
  const std::vector<float> out = step(cache, qkv, ascending(0, 40), slots, 0, nullptr, pool, DType::kFloat16);
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t i = 0; i < cache.out_floats(); ++i) {
      const bool sees = r >= 20 && geometry.kv_of_q[static_cast<size_t>(i / geometry.head_dim)] == 0;
      ASSERT_EQ(std::isnan(out[r * cache.out_floats() + i]), sees) << r << " " << i;
    }
  }
}

TEST(PagedAttention, RoundsItsOutputWhenAsked) {
  ThreadPool pool(2);
  const std::vector<float> input = testing::random_bf16_floats(40 * Cache(grouped(4, 2, 32), 1, 40).row_floats(), 43);
  const std::vector<int32_t> slots(40, 0);
  for (const auto& [round, tolerance] : {std::pair{DType::kBFloat16, 0.05}, {DType::kFloat16, 0.05 / 8}}) {
    Cache exact(grouped(4, 2, 32), 1, 40), rounded(grouped(4, 2, 32), 1, 40);
    std::vector<float> qkv = input, same = input;
    const std::vector<float> a = step(exact, qkv, ascending(0, 40), slots, 0, nullptr, pool);
    const std::vector<float> b = step(rounded, same, ascending(0, 40), slots, 0, nullptr, pool, round);
    size_t changed = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(b[i], round_to_dtype(round, b[i]));
      ASSERT_NEAR(a[i], b[i], tolerance);
      changed += a[i] != b[i];
    }
    EXPECT_GT(changed, a.size() / 2);
  }
}

/// Every row of a sequence of `length`, fed in chunks, beside another sequence in the same batch.
std::vector<float> run_chunked(const Geometry& geometry, int length, int chunk, int32_t window, bool with_company,
                               bool with_norm, ThreadPool& pool, uint32_t table_seed, DType dtype) {
  Cache cache(geometry, 2, length + 1, dtype, table_seed);
  const std::vector<float> qkv = random_floats(length * cache.row_floats(), 51);
  const std::vector<float> other = random_floats(length * cache.row_floats(), 52);
  const std::vector<float> norm = random_floats(2 * geometry.head_dim, 53);
  std::vector<float> all;
  for (int begin = 0; begin < length; begin += chunk) {
    const int end = std::min(begin + chunk, length);
    std::vector<int32_t> positions, slots;
    std::vector<float> rows;
    const auto add = [&](const std::vector<float>& from, int32_t slot) {
      for (int32_t p = begin; p < end; ++p) positions.push_back(p), slots.push_back(slot);
      rows.insert(rows.end(), &from[begin * cache.row_floats()], &from[end * cache.row_floats()]);
    };
    if (with_company) add(other, 1);
    add(qkv, 0);
    const std::vector<float> out = step(cache, rows, positions, slots, window, with_norm ? norm.data() : nullptr, pool);
    all.insert(all.end(), out.end() - (end - begin) * cache.out_floats(), out.end());
  }
  return all;
}

TEST(PagedAttention, X1_PrefillInAnyChunkingAndDecodeGiveTheSameBits) {
  ThreadPool one(1), three(3);
  for (const Geometry& geometry : testing::cases_for_device(geometries(), 2)) {
    for (const auto& [window, dtype] :
         {std::pair{0, kCaches[0]}, {37, kCaches[0]}, {0, kCaches[1]}, {37, kCaches[1]}}) {
      const int length = 103;
      const std::vector<float> decode = run_chunked(geometry, length, 1, window, false, true, one, 3, dtype);
      const auto expected = bits_of(decode.data(), static_cast<int64_t>(decode.size()));
      for (const int chunk : testing::cases_for_device<int>({50, 7, 2, 32, 103}, 2)) {
        for (ThreadPool* pool : testing::cases_for_device<ThreadPool*>({&one, &three}, 1)) {
          const std::vector<float> out =
              run_chunked(geometry, length, chunk, window, chunk % 2 == 0, true, *pool, 4, dtype);
          ASSERT_EQ(bits_of(out.data(), static_cast<int64_t>(out.size())), expected)
              << "chunk " << chunk << " head_dim " << geometry.head_dim;
        }
      }
    }
  }
}

// Sequences of few queries go through their blocks side by side, in company that sees other parts of other blocks.
TEST(PagedAttention, X1_DecodeBesideSequencesOfAnyLengthGivesTheBitsOfDecodeAlone) {
  const auto lengths = testing::cases_for_device<int32_t>({70, 1, 33, 97, 31, 64, 5, 102, 32}, 3);
  const auto count = static_cast<int32_t>(lengths.size());
  for (const int threads : testing::cases_for_device<int>({1, 2, 3}, 1)) {
    ThreadPool pool(threads);
    for (const Geometry& geometry : testing::cases_for_device(geometries(), 2)) {
      for (const auto& [window, dtype] : {std::pair{0, kCaches[0]}, {20, kCaches[0]}, {0, kCaches[1]}}) {
        Cache cache(geometry, count, 104, dtype);
        const int64_t width = cache.row_floats(), out_width = cache.out_floats();
        for (int32_t slot = 0; slot < count; ++slot) {
          std::vector<float> prompt = random_floats(lengths[slot] * width, 60 + slot);
          step(cache, prompt, ascending(0, lengths[slot]), std::vector<int32_t>(lengths[slot], slot), window, nullptr,
               pool);
        }
        const std::vector<float> rows = random_floats(count * width, 59);
        std::vector<float> all = rows;
        const std::vector<float> together = step(cache, all, lengths, ascending(0, count), window, nullptr, pool);
        for (int32_t slot = 0; slot < count; ++slot) {
          std::vector<float> row(&rows[slot * width], &rows[slot * width] + width);
          const std::vector<float> alone = step(cache, row, {lengths[slot]}, {slot}, window, nullptr, pool);
          ASSERT_EQ(bits_of(&together[slot * out_width], out_width), bits_of(alone.data(), out_width))
              << "slot " << slot << " head_dim " << geometry.head_dim << " threads " << threads;
        }
      }
    }
  }
}

TEST(PagedAttention, X1_ALargePrefillGivesTheBitsOfDecode) {
  ThreadPool two(2);
  const Geometry geometry = grouped(2, 1, 64);
  for (const DType dtype : kCaches) {
    const std::vector<float> decode = run_chunked(geometry, 300, 1, 0, false, false, two, 3, dtype);
    const std::vector<float> prefill = run_chunked(geometry, 300, 300, 0, false, false, two, 5, dtype);
    EXPECT_EQ(bits_of(decode.data(), static_cast<int64_t>(decode.size())),
              bits_of(prefill.data(), static_cast<int64_t>(prefill.size())));
  }
}

// What --dtype bfloat16 stores is BF16 already: half the cache then costs nothing. On a GPU the other pieces of an FP32
// cache are zeros.
TEST(PagedAttention, ABf16CacheOfRoundedRowsIsTheFp32One) {
  ThreadPool pool(2);
  for (const Geometry& geometry : testing::cases_for_device(geometries(), 3)) {
    Cache wide(geometry, 1, 80), narrow(geometry, 1, 80, DType::kBFloat16);
    std::vector<float> qkv = random_floats(80 * wide.row_floats(), 44);
    const std::vector<int32_t> slots(80, 0);
    std::vector<float> same = qkv;
    const std::vector<float> a = step(wide, qkv, ascending(0, 80), slots, 0, nullptr, pool, DType::kBFloat16);
    const std::vector<float> b = step(narrow, same, ascending(0, 80), slots, 0, nullptr, pool, DType::kBFloat16);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << i;
  }
}

// A step's count is read when the kernel runs, and bounds what is read and written.
TEST(PagedAttention, OnlyTheRowsOfTheStepAreTouched) {
  ThreadPool pool(2);
  const Geometry geometry = grouped(4, 2, 8);
  for (const auto& [live, dtype] : {std::pair{0, kCaches[0]}, {1, kCaches[1]}, {3, kCaches[0]}, {3, kCaches[1]}}) {
    Cache cache(geometry, 1, 40, dtype);
    std::vector<float> qkv = random_floats(5 * cache.row_floats(), 71);
    const std::vector<float> before = qkv;
    const std::vector<int32_t> positions = ascending(0, 5), slots(5, 0);
    int32_t count = -1;
    AttentionRows rows = cache.rows(positions, slots);
    rows.num_rows = &count;
    GuardedFloats out(5 * cache.out_floats());
    AlignedBuffer scratch(static_cast<size_t>(attention_scratch_bytes(cache.shape(), rows, pool.num_threads())));
    RopeAndCacheArgs rope{qkv.data(), cache.row_floats(), cache.shape(), rows};
    rope.rope = cache.rope();
    rope.cache = cache.layer();
    const AttentionArgs attention{qkv.data(),    cache.row_floats(), cache.shape(),     rows,
                                  cache.layer(), out.data(),         cache.out_floats()};
    count = live;
    rope_and_cache(rope, pool);
    paged_attention(attention, scratch.data(), pool);
    for (size_t i = live * cache.row_floats(); i < qkv.size(); ++i) ASSERT_EQ(qkv[i], before[i]) << live;
    const std::vector<float> keys = cache.keys();
    const auto cached = std::count_if(keys.begin(), keys.end(), [](float f) { return f == f; });
    EXPECT_EQ(cached, live * geometry.kv_heads * geometry.head_dim);
    for (int64_t i = 0; i < 5 * cache.out_floats(); ++i) {
      ASSERT_EQ(out[i] != -77.0f, i < live * cache.out_floats()) << live;
    }
  }
}

/// A slot whose cache holds `length` positions, and attention of rows over it.
class FilledCache {
 public:
  FilledCache(const Geometry& geometry, int length, DType dtype, ThreadPool& pool)
      : cache_(geometry, 2, length, dtype), pool_(pool) {
    rows_ = random_floats(length * cache_.row_floats(), 81);
    RopeAndCacheArgs rope{rows_.data(), cache_.row_floats(), cache_.shape(), {}};
    const std::vector<int32_t> positions = ascending(0, length), slots(static_cast<size_t>(length), 1);
    rope.rows = cache_.rows(positions, slots);
    rope.rope = cache_.rope();
    rope.cache = cache_.layer();
    rope_and_cache(rope, pool_);
  }

  /// Attention of the rows at `positions`, from a graph for `max_rows` of them. Dense.
  std::vector<float> attend(const std::vector<int32_t>& positions, int32_t window, int64_t max_rows) {
    const AttentionArgs args = prepare(positions, window, max_rows);
    GuardedFloats out(static_cast<int64_t>(positions.size()) * cache_.out_floats());
    AttentionArgs run = args;
    run.out = out.data();
    const int64_t bytes = attention_scratch_bytes(args.shape, args.rows, pool_.num_threads());
    AlignedBuffer scratch(static_cast<size_t>(bytes) + 64);
    std::fill_n(scratch.as<uint8_t>(), bytes + 64, uint8_t{0xff});
    paged_attention(run, scratch.data(), pool_);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(scratch.as<uint8_t>()[bytes + i], 0xff) << "scratch overrun";
    return out.values();
  }
  std::vector<double> reference(const std::vector<int32_t>& positions, int32_t window) {
    std::vector<double> out(positions.size() * static_cast<size_t>(cache_.out_floats()));
    attention_reference(prepare(positions, window, static_cast<int64_t>(positions.size())), out.data());
    return out;
  }
  int64_t out_floats() const { return cache_.out_floats(); }

 private:
  AttentionArgs prepare(const std::vector<int32_t>& positions, int32_t window, int64_t max_rows) {
    slots_.assign(positions.size(), 1);
    queries_.clear();
    for (const int32_t p : positions) {
      const auto row = rows_.begin() + p * cache_.row_floats();
      queries_.insert(queries_.end(), row, row + cache_.row_floats());
    }
    AttentionArgs args{queries_.data(), cache_.row_floats(), cache_.shape(window), cache_.rows(positions, slots_),
                       cache_.layer()};
    args.out_stride = cache_.out_floats();
    args.rows.max_rows = max_rows;
    return args;
  }

  Cache cache_;
  ThreadPool& pool_;
  std::vector<float> rows_, queries_;
  std::vector<int32_t> slots_;
};

// Every head size that has code of its own on some device, groups beyond what goes through a block together, contexts
// of several partitions; a row's bits are its own whatever the rows beside it and the graph that it is in.
TEST(PagedAttention, X1_LongContextsOfEveryHeadSizeMeetFloat64) {
  ThreadPool pool(2);
  const std::vector<Geometry> geometries = {grouped(6, 1, 128),
                                            grouped(2, 2, 256),
                                            grouped(8, 1, 64),
                                            grouped(6, 1, 100),
                                            grouped(1, 1, 192),
                                            grouped(20, 1, 16),
                                            Geometry{5, 2, 32, {0, 1, 1, 0, 1}}};
  for (size_t run = 0; run < 2 * geometries.size(); ++run) {
    const Geometry& geometry = geometries[run / 2];
    FilledCache cache(geometry, 540, kCaches[run % 2], pool);
    for (const int32_t window : testing::cases_for_device<int32_t>({290, 0}, geometry.head_dim == 256 ? 2 : 1)) {
      // a decode; rows about a partition's end; a tile of neighbours; the begin
      const std::vector<int32_t> positions = {539, 255, 256, 257, 500, 501, 502, 0, 1};
      const auto rows = static_cast<int64_t>(positions.size());
      const std::vector<float> out = cache.attend(positions, window, rows);
      const std::vector<double> expected = cache.reference(positions, window);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], kAttentionTolerance) << "head_dim " << geometry.head_dim << " at " << i;
      }
      const auto bits = bits_of(out.data(), static_cast<int64_t>(out.size()));
      // Tiles of more queries; and with thousands of rows, several rows for a block to look at.
      const int64_t more_rows = geometry.head_dim == 64 && run % 2 == 0 ? 4096 : 100;
      const std::vector<float> larger_graph = cache.attend(positions, window, more_rows);
      ASSERT_EQ(bits_of(larger_graph.data(), static_cast<int64_t>(out.size())), bits) << geometry.head_dim;
      for (const int64_t r : {0, 2, 6}) {
        const std::vector<float> alone = cache.attend({positions[static_cast<size_t>(r)]}, window, 1);
        ASSERT_EQ(bits_of(alone.data(), cache.out_floats()), bits_of(&out[r * cache.out_floats()], cache.out_floats()))
            << "head_dim " << geometry.head_dim << " row " << r;
      }
    }
  }
}

// A context so long that the partial results of all rows would be too large at once: rows go in passes.
TEST(PagedAttention, X1_RowsBeyondOnePassGiveTheSameBits) {
  ThreadPool pool(2);
  const Geometry geometry = grouped(64, 1, 8);
  Cache cache(geometry, 1, 300);
  std::vector<float> qkv = random_floats(300 * cache.row_floats(), 91);
  const std::vector<int32_t> positions = ascending(0, 300), slots(300, 0);
  AttentionRows rows = cache.rows(positions, slots);
  RopeAndCacheArgs rope{qkv.data(), cache.row_floats(), cache.shape(), rows};
  rope.rope = cache.rope();
  rope.cache = cache.layer();
  rope_and_cache(rope, pool);
  std::vector<int32_t> table(80000, -1);
  std::copy_n(rows.block_tables, rows.max_blocks, table.begin());
  rows.block_tables = table.data(), rows.max_blocks = 80000;
  rows.positions += 250, rows.num_rows = count_of(12), rows.max_rows = 12;
  const auto bytes = static_cast<size_t>(attention_scratch_bytes(cache.shape(), rows, pool.num_threads()));
  void* const scratch = ::operator new (bytes, std::align_val_t{64});  // large, and touched in part
  GuardedFloats out(12 * cache.out_floats()), alone(cache.out_floats());
  const float* from = &qkv[250 * cache.row_floats()];
  paged_attention({from, cache.row_floats(), cache.shape(), rows, cache.layer(), out.data(), cache.out_floats()},
                  scratch, pool);
  for (const int64_t r : {0, 9, 10, 11}) {
    rows.positions = &positions[static_cast<size_t>(250 + r)], rows.num_rows = count_of(1), rows.max_rows = 1;
    paged_attention({from + r * cache.row_floats(), cache.row_floats(), cache.shape(), rows, cache.layer(),
                     alone.data(), cache.out_floats()},
                    scratch, pool);
    ASSERT_EQ(bits_of(alone.data(), cache.out_floats()),
              bits_of(out.data() + r * cache.out_floats(), cache.out_floats()));
  }
  ::operator delete (scratch, std::align_val_t{64});
}

TEST(PagedAttention, NanStaysWithTheRowsThatSeeIt) {
  ThreadPool pool(2);
  const Geometry geometry = grouped(4, 2, 16);
  for (const auto& [window, dtype] : {std::pair{0, kCaches[0]}, {10, kCaches[0]}, {0, kCaches[1]}, {10, kCaches[1]}}) {
    Cache cache(geometry, 2, 80, dtype);
    std::vector<float> qkv = random_floats(80 * cache.row_floats(), 61);
    const int64_t width = cache.row_floats(), out_width = cache.out_floats();
    const int64_t k_at = geometry.q_heads * 16, v_at = k_at + geometry.kv_heads * 16;
    qkv[20 * width + 3] = kNan;          // a query of row 20: row 20, head 0 only
    qkv[40 * width + k_at + 5] = kNan;   // a key of KV head 0 at 40: rows from 40 on, heads 0 and 1
    qkv[60 * width + v_at + 16] = kNan;  // a value of KV head 1 at 60: rows from 60 on, heads 2 and 3, element 0
    const std::vector<float> out =
        step(cache, qkv, ascending(0, 80), std::vector<int32_t>(80, 0), window, nullptr, pool);
    for (int64_t row = 0; row < 80; ++row) {
      const auto sees = [&, window = window](int64_t key) { return key <= row && (window == 0 || key > row - window); };
      for (int64_t i = 0; i < out_width; ++i) {
        const int64_t head = i / 16;
        const bool poisoned =
            (row == 20 && head == 0) || (sees(40) && head < 2) || (sees(60) && head >= 2 && i % 16 == 0);
        ASSERT_EQ(std::isnan(out[row * out_width + i]), poisoned) << "row " << row << " element " << i;
      }
    }
  }
}

TEST(PagedAttention, LargeScoresNeitherOverflowNorUnderflow) {
  ThreadPool pool(1);
  const Geometry geometry = grouped(1, 1, 8);
  for (const DType dtype : kCaches) {
    Cache cache(geometry, 1, 64, dtype);
    std::vector<float> qkv = random_floats(64 * cache.row_floats(), 62, 60.0f);
    const std::vector<int32_t> slots(64, 0);
    const std::vector<float> out = step(cache, qkv, ascending(0, 64), slots, 0, nullptr, pool);
    const std::vector<int32_t> positions = ascending(0, 64);
    std::vector<double> expected(64 * 8);
    attention_reference({qkv.data(), cache.row_floats(), cache.shape(), cache.rows(positions, slots), cache.layer()},
                        expected.data());
    // Scores of thousands: their FP32 rounding (about 2^-13 absolute) moves the weights, and values are of size 60.
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 0.05) << i;
  }
}

}  // namespace
}  // namespace helios
