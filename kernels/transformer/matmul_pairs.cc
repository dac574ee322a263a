// Mapping: as the other register tiles; a pair of inputs is broadcast from memory, a vector of weights is read as it
// lies. Up to 24 accumulators for the instruction's latency.
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
/// As kRowsThatFetch: with half of the arithmetic, reading is what takes the time up to six rows.
constexpr int kPairRowsThatFetch = 7;

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

constexpr int64_t kLanes = 16;
static_assert(kPairWidth == 2 * kLanes);

[[gnu::always_inline]] inline __m512bh pairs_in(__m512i words) { return (__m512bh)words; }

/// acc += the products of one storage row's pairs.
template <int kRows, int kVecs>
[[gnu::always_inline]] inline void multiply_pairs(__m512 (&acc)[kRows][kVecs], const uint32_t* w, int64_t panel_words,
                                                  const float* x, int64_t row_stride) {
  __m512i weights[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) weights[v] = _mm512_load_si512(w + v / 2 * panel_words + v % 2 * kLanes);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const __m512bh pair = pairs_in(_mm512_castps_si512(_mm512_set1_ps(x[r * row_stride])));
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], pairs_in(weights[v]), pair);
  }
}

/// A segment's last k, where it is even: the upper halves alone, so that a sum of -0 stays one.
template <int kRows, int kVecs>
[[gnu::always_inline]] inline void multiply_last(__m512 (&acc)[kRows][kVecs], const uint32_t* w, int64_t panel_words,
                                                 const float* x, int64_t row_stride) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const __m512i pairs = _mm512_load_si512(w + v / 2 * panel_words + v % 2 * kLanes);
    const __m512 weights = _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][v] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * row_stride]), weights, acc[r][v]);
  }
}

template <int kRows, int kPanels, bool kPacked>
void pair_tile(const uint32_t* w, int64_t panel_words, const float* x, int64_t x_stride, int64_t len, float* sums,
               bool fresh, const uint32_t*, Ahead ahead) {
  constexpr int kVecs = 2 * kPanels;
  constexpr int64_t kStep = kPacked ? kRows : 1;
  const int64_t row_stride = kPacked ? 1 : x_stride;
  __m512 acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + (r * kVecs + v) * kLanes);
    }
  }
  const auto next_row = [&] {
    multiply_pairs<kRows, kVecs>(acc, w, panel_words, x, row_stride);
    w += kPairWidth;
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
    if (!kPacked && kRows >= kPairRowsThatFetch) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const char* from = reinterpret_cast<const char*>(w + p * panel_words) + kDirectAhead;
#pragma GCC unroll 4
        for (int line = 0; line < 4; ++line) _mm_prefetch(from + 64 * line, _MM_HINT_T0);
      }
    }
    next_row();
    next_row();
  }
  for (; len >= 2; len -= 2) next_row();
  if (len != 0) multiply_last<kRows, kVecs>(acc, w, panel_words, x, row_stride);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) _mm512_store_ps(sums + (r * kVecs + v) * kLanes, acc[r][v]);
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
  return {&pair_tile<static_cast<int>(kIndex) + 1, 1, true>...};
}
template <bool kTogether>
constexpr int panels_together(size_t rows) {
  return kTogether ? static_cast<int>(kPanels[rows]) : 1;
}
template <bool kTogether, size_t... kIndex>
constexpr std::array<TileFunction, sizeof...(kIndex)> direct_tiles(std::index_sequence<kIndex...>) {
  return {&pair_tile<static_cast<int>(kIndex) + 1, panels_together<kTogether>(kIndex + 1), false>...};
}

}  // namespace

bool has_pair_products() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16") && rounds_as_described();
  return has;
}

TileFunction packed_pair_tile(int64_t rows) {
  static constexpr auto kTiles = packed_tiles(std::make_index_sequence<kPairTileRows>());
  return kTiles[static_cast<size_t>(rows - 1)];
}

int64_t direct_pair_panels(int64_t rows) { return kPanels[static_cast<size_t>(rows)]; }

TileFunction direct_pair_tile(int64_t rows, bool together) {
  static constexpr auto kRowsUpTo = std::make_index_sequence<kPairDirectRows>();
  static constexpr auto kSide = direct_tiles<true>(kRowsUpTo), kAlone = direct_tiles<false>(kRowsUpTo);
  return (together ? kSide : kAlone)[static_cast<size_t>(rows - 1)];
}

}  // namespace helios

#else  // no such instruction

namespace helios {

bool has_pair_products() { return false; }
TileFunction packed_pair_tile(int64_t rows) { HELIOS_CHECK(false, rows); }
int64_t direct_pair_panels(int64_t rows) { HELIOS_CHECK(false, rows); }
TileFunction direct_pair_tile(int64_t rows, bool) { HELIOS_CHECK(false, rows); }

}  // namespace helios

#endif
