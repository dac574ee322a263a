// Mapping: as the other register tiles; a pair of inputs is broadcast from memory, a vector of BF16 weights is read as
// it lies, 64 bytes of 8-bit ones become two such vectors in registers. Up to 24 accumulators for the latency.
#include "kernels/transformer/matmul_pairs.h"

#include "common/base/check.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/base/flush_subnormals.h"

namespace helios {
namespace {

constexpr std::array<int64_t, kPairDirectRows + 1> kPanels = {0, 4, 4, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1};
/// Of 8-bit weights, whose tables take registers.
constexpr std::array<int64_t, kPairDirectRows + 1> kBytePanels = {0, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1};
/// As kRowsThatFetch: with half of the arithmetic, reading is what takes the time up to six rows.
constexpr int kPairRowsThatFetch = 7;

/// For each magnitude of a type, the lower or the upper byte of its BF16. INT8's 0 stands for 128.
struct alignas(64) ByteTables {
  uint8_t lower[128], upper[128];
};
constexpr ByteTables tables_of(DType stored) {
  ByteTables tables{};
  for (int code = 0; code < 128; ++code) {
    float value = static_cast<float>(code == 0 ? 128 : code);
    if (stored == DType::kFloat8E4M3) {
      value = static_cast<float>(code < 8 ? code : 8 + code % 8) * 0x1p-65f;
      for (int exponent = 1; exponent < code / 8; ++exponent) value *= 2;
    }
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    tables.lower[code] = static_cast<uint8_t>(bits >> 16), tables.upper[code] = static_cast<uint8_t>(bits >> 24);
  }
  return tables;
}
template <DType kStored>
constexpr ByteTables kTables = tables_of(kStored);

/// Where the four bytes of each pair are among 64 lower and 64 upper ones: of the even k's 32 columns, then the odd's.
struct alignas(64) PairBytes {
  uint8_t from[2][64];
};
constexpr PairBytes pair_bytes() {
  PairBytes bytes{};
  for (int column = 0; column < 32; ++column) {
    uint8_t* const pair = bytes.from[column / 16] + column % 16 * 4;
    for (int i = 0; i < 4; ++i) pair[i] = static_cast<uint8_t>((i < 2 ? 32 : 0) + (i % 2) * 64 + column);
  }
  return bytes;
}
constexpr PairBytes kPairBytes = pair_bytes();

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,fma")

constexpr int64_t kLanes = 16;
static_assert(kPairWidth == 2 * kLanes);

[[gnu::always_inline]] inline __m512bh pairs_in(__m512i words) { return (__m512bh)words; }

/// A panel's weights of one pair of k.
template <DType kStored>
class PairLoader {
 public:
  static constexpr int64_t kWords = kStored == DType::kBFloat16 ? kPairWidth : kPairWidth / 2;  // from pair to pair

  PairLoader() {
    if constexpr (is_eight_bit(kStored)) {
      for (int i = 0; i < 2; ++i) {
        lower_[i] = _mm512_load_si512(kTables<kStored>.lower + 64 * i);
        upper_[i] = _mm512_load_si512(kTables<kStored>.upper + 64 * i);
        from_[i] = _mm512_load_si512(kPairBytes.from[i]);
      }
    }
  }

  [[gnu::always_inline]] void load(const uint32_t* w, __m512i* pairs) const {
    const __m512i first = _mm512_load_si512(w);
    if constexpr (kStored == DType::kBFloat16) {
      pairs[0] = first;
      pairs[1] = _mm512_load_si512(w + kLanes);
    } else {
      __m512i lower, upper;
      if constexpr (kStored == DType::kInt8) {
        const __m512i magnitude = _mm512_abs_epi8(first);
        lower = _mm512_permutex2var_epi8(lower_[0], magnitude, lower_[1]);
        upper = _mm512_maskz_permutex2var_epi8(_mm512_test_epi8_mask(first, first), upper_[0], magnitude, upper_[1]);
      } else {
        lower = _mm512_permutex2var_epi8(lower_[0], first, lower_[1]);
        upper = _mm512_permutex2var_epi8(upper_[0], first, upper_[1]);
      }
      constexpr int kOrOfAnd = 0xf8;
      upper = _mm512_ternarylogic_epi32(upper, first, _mm512_set1_epi8(-128), kOrOfAnd);  // with the sign
      for (int i = 0; i < 2; ++i) pairs[i] = _mm512_permutex2var_epi8(lower, from_[i], upper);
    }
  }

 private:
  __m512i lower_[2], upper_[2], from_[2];
};

/// acc += the products of one storage row's pairs.
template <DType kStored, int kRows, int kVecs>
[[gnu::always_inline]] inline void multiply_pairs(__m512 (&acc)[kRows][kVecs], const PairLoader<kStored>& loader,
                                                  const uint32_t* w, int64_t panel_words, const float* x,
                                                  int64_t row_stride) {
  __m512i weights[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; v += 2) loader.load(w + v / 2 * panel_words, weights + v);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const __m512bh pair = pairs_in(_mm512_castps_si512(_mm512_set1_ps(x[r * row_stride])));
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], pairs_in(weights[v]), pair);
  }
}

/// A segment's last k, where it is even: the upper halves alone, so that a sum of -0 stays one.
template <DType kStored, int kRows, int kVecs>
[[gnu::always_inline]] inline void multiply_last(__m512 (&acc)[kRows][kVecs], const PairLoader<kStored>& loader,
                                                 const uint32_t* w, int64_t panel_words, const float* x,
                                                 int64_t row_stride) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512i pairs[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; v += 2) loader.load(w + v / 2 * panel_words, pairs + v);
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const __m512 weights = _mm512_castsi512_ps(_mm512_and_si512(pairs[v], upper));
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][v] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * row_stride]), weights, acc[r][v]);
  }
}

template <DType kStored, int kRows, int kPanels, bool kPacked>
void pair_tile(const uint32_t* w, int64_t panel_words, const float* x, int64_t x_stride, int64_t len, float* sums,
               bool fresh, const uint32_t*, Ahead ahead) {
  constexpr int kVecs = 2 * kPanels;
  constexpr int64_t kStep = kPacked ? kRows : 1;
  constexpr bool kBytes = is_eight_bit(kStored);
  const PairLoader<kStored> loader;
  const int64_t row_stride = kPacked ? 1 : x_stride;
  __m512 acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + (r * kVecs + v) * kLanes);
    }
  }
  const auto next_row = [&]() __attribute__((always_inline)) {  // called, its vectors would go through memory
    multiply_pairs<kStored, kRows, kVecs>(acc, loader, w, panel_words, x, row_stride);
    w += loader.kWords;
    x += kStep;
  };
  if (kPacked) {
    for (; len >= 8; len -= 8) {
#pragma GCC unroll 4
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        const char* from = ahead.from + stream * ahead.stride;
        _mm_prefetch(from, _MM_HINT_T0);
        _mm_prefetch(from + 64, _MM_HINT_T0);
      }
      ahead.from += ahead.step;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) next_row();
    }
  }
  for (; len >= 4; len -= 4) {
    if (!kPacked && (kBytes || kRows >= kPairRowsThatFetch)) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const char* from = reinterpret_cast<const char*>(w + p * panel_words) + (kBytes ? kBytesAhead : kDirectAhead);
#pragma GCC unroll 4
        for (int line = 0; line < loader.kWords / 8; ++line) _mm_prefetch(from + 64 * line, _MM_HINT_T0);
      }
    }
    next_row();
    next_row();
  }
  for (; len >= 2; len -= 2) next_row();
  if (len != 0) multiply_last<kStored, kRows, kVecs>(acc, loader, w, panel_words, x, row_stride);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) _mm512_store_ps(sums + (r * kVecs + v) * kLanes, acc[r][v]);
  }
}

template <DType kStored>
void widen_bytes(const uint32_t* words, int64_t len, uint32_t* to) {
  const PairLoader<kStored> loader;
  for (; len > 0; len -= 2, words += loader.kWords, to += kPairWidth) {
    __m512i pairs[2];
    loader.load(words, pairs);
    _mm512_store_si512(to, pairs[0]);
    _mm512_store_si512(to + kLanes, pairs[1]);
  }
}

/// A BF16 number of any size and sign, often near one whose products cancel or vanish.
uint32_t some_bf16(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  const auto random = static_cast<uint32_t>(state >> 40);
  const uint32_t exponent = random % 8 == 0 ? random >> 3 & 0xff : random % 8 < 4 ? 50 + (random >> 3 & 31) : 127;
  return (random & 0x8000) | std::min(exponent, 190u) << 7 | (random >> 11 & 0x7f);
}

/// Whether the instruction gives the bits of two fused multiply-adds with subnormals flushed.
bool rounds_as_described() {
  const FlushSubnormals flush;
  uint64_t state = 1;
  for (int round = 0; round < 4096; ++round) {
    alignas(64) std::array<uint32_t, kLanes> a, b, c, got;
    for (size_t i = 0; i < kLanes; ++i) {
      a[i] = some_bf16(state) << 16 | some_bf16(state);
      b[i] = some_bf16(state) << 16 | some_bf16(state);
      c[i] = some_bf16(state) << 16 | some_bf16(state);
      const float product = std::bit_cast<float>(a[i] << 16) * std::bit_cast<float>(b[i] << 16);
      if (round % 4 == 0) c[i] = std::bit_cast<uint32_t>(-product);  // cancels
    }
    const __m512 sum = _mm512_dpbf16_ps(_mm512_load_ps(c.data()), pairs_in(_mm512_load_si512(a.data())),
                                        pairs_in(_mm512_load_si512(b.data())));
    _mm512_store_ps(got.data(), sum);
    for (size_t i = 0; i < kLanes; ++i) {
      const auto upper = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); };
      const auto lower = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
      const float first = __builtin_fmaf(upper(a[i]), upper(b[i]), std::bit_cast<float>(c[i]));
      const float want = __builtin_fmaf(lower(a[i]), lower(b[i]), first);
      if (std::bit_cast<uint32_t>(want) != got[i]) return false;
    }
  }
  return true;
}

#pragma GCC pop_options

template <size_t... kIndex>
constexpr std::array<TileFunction, sizeof...(kIndex)> packed_tiles(std::index_sequence<kIndex...>) {
  return {&pair_tile<DType::kBFloat16, static_cast<int>(kIndex) + 1, 1, true>...};
}
template <DType kStored, bool kTogether>
constexpr int panels_together(size_t rows) {
  return !kTogether ? 1 : static_cast<int>(is_eight_bit(kStored) ? kBytePanels[rows] : kPanels[rows]);
}
template <DType kStored, bool kTogether, size_t... kIndex>
constexpr std::array<TileFunction, sizeof...(kIndex)> direct_tiles(std::index_sequence<kIndex...>) {
  return {&pair_tile<kStored, static_cast<int>(kIndex) + 1, panels_together<kStored, kTogether>(kIndex + 1), false>...};
}
template <DType kStored>
TileFunction direct_tile(int64_t rows, bool together) {
  static constexpr auto kRowsUpTo = std::make_index_sequence<kPairDirectRows>();
  static constexpr auto kSide = direct_tiles<kStored, true>(kRowsUpTo);
  static constexpr auto kAlone = direct_tiles<kStored, false>(kRowsUpTo);
  return (together ? kSide : kAlone)[static_cast<size_t>(rows - 1)];
}

}  // namespace

bool has_pair_products() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
                          rounds_as_described();
  return has;
}

TileFunction packed_pair_tile(int64_t rows) {
  static constexpr auto kTiles = packed_tiles(std::make_index_sequence<kPairTileRows>());
  return kTiles[static_cast<size_t>(rows - 1)];
}

int64_t direct_pair_panels(DType stored, int64_t rows) {
  return (is_eight_bit(stored) ? kBytePanels : kPanels)[static_cast<size_t>(rows)];
}

TileFunction direct_pair_tile(DType stored, int64_t rows, bool together) {
  if (stored == DType::kInt8) return direct_tile<DType::kInt8>(rows, together);
  if (stored == DType::kFloat8E4M3) return direct_tile<DType::kFloat8E4M3>(rows, together);
  return direct_tile<DType::kBFloat16>(rows, together);
}

void bytes_to_pairs(DType stored, const uint32_t* words, int64_t len, uint32_t* to) {
  if (stored == DType::kInt8) return widen_bytes<DType::kInt8>(words, len, to);
  widen_bytes<DType::kFloat8E4M3>(words, len, to);
}

}  // namespace helios

#else  // no such instruction

namespace helios {

bool has_pair_products() { return false; }
TileFunction packed_pair_tile(int64_t rows) { HELIOS_CHECK(false, rows); }
int64_t direct_pair_panels(DType, int64_t rows) { HELIOS_CHECK(false, rows); }
TileFunction direct_pair_tile(DType, int64_t rows, bool) { HELIOS_CHECK(false, rows); }
void bytes_to_pairs(DType, const uint32_t*, int64_t len, uint32_t*) { HELIOS_CHECK(false, len); }

}  // namespace helios

#endif
