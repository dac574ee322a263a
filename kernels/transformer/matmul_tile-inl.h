// The register tiles of the matrix products, once for each Highway target: rows x panels accumulate in registers while
// k runs; weights are widened there.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/transformer/matmul_panels.h"
#include "kernels/transformer/matmul_tile.h"
#include "kernels/transformer/matmul_widen-inl.h"

#if defined(HELIOS_MATMUL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_MATMUL_TILE_INL_H
#undef HELIOS_MATMUL_TILE_INL_H
#else
#define HELIOS_MATMUL_TILE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kRowBytes = kWidth * 4;  // one storage row of a panel
constexpr int64_t kRowLines = (kRowBytes + 63) / 64;

// Register tiles: accumulators for twice the FMA latency, and room for the weights and a broadcast. kWidenTiles tiles
// share weights that are widened once. Up to kDirectRows rows are read in place by kDirectPanels[rows] panels side by
// side, more are packed as [tile][k][rows]: by each thread for itself, which for two threads is faster than lines that
// wander between their caches and a second fork.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int64_t kTileRows = 12;
constexpr int64_t kWidenTiles = INT64_MAX;  // 32 KiB of them crowd the activations out of L1: 0.79 of peak, not 0.86
constexpr std::array<int64_t, 11> kDirectPanels = {0, 4, 4, 4, 3, 2, 2, 1, 1, 1, 1};
#elif HWY_TARGET == HWY_AVX2
constexpr int64_t kTileRows = 6;
constexpr int64_t kWidenTiles = 8;
constexpr std::array<int64_t, 3> kDirectPanels = {0, 4, 3};
#else
constexpr int64_t kTileRows = 4;
constexpr int64_t kWidenTiles = 8;
constexpr std::array<int64_t, 3> kDirectPanels = {0, 1, 1};
#endif
constexpr int64_t kDirectRows = kDirectPanels.size() - 1;

/// acc[r][v] += x[r] * w[v] for one k.
template <int kRows, int kVecs>
HWY_INLINE void MultiplyStep(Vec (&acc)[kRows][kVecs], const Vec (&w)[kVecs], const float* HWY_RESTRICT x,
                             int64_t row_stride) {
  const F32 d;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const Vec broadcast = hn::Set(d, x[r * row_stride]);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(broadcast, w[v], acc[r][v]);
    HWY_FENCE;
  }
}

/// acc += x * the kSub-th k of the panels' storage row.
template <int kRows, int kPanels, DType kStored, int kSub>
HWY_INLINE void MultiplyRow(Vec (&acc)[kRows][2 * kPanels], const uint32_t* HWY_RESTRICT w, int64_t panel_words,
                            const float* HWY_RESTRICT x, int64_t row_stride, const uint32_t* HWY_RESTRICT mask) {
  Vec weights[2 * kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      weights[2 * p + half] = LoadWeights<kStored, kSub>(w + p * panel_words, half, mask);
    }
  }
  MultiplyStep(acc, weights, x, row_stride);
}

/// The first `count` k of a storage row, up to all of it.
template <int kRows, int kPanels, DType kStored>
HWY_INLINE void PartOfRow(Vec (&acc)[kRows][2 * kPanels], const uint32_t* HWY_RESTRICT w, int64_t panel_words,
                          const float* HWY_RESTRICT x, int64_t step, int64_t row_stride, int64_t count,
                          const uint32_t* HWY_RESTRICT mask) {
  constexpr int64_t kPerRow = k_per_row(kStored);
  if (count > 0) MultiplyRow<kRows, kPanels, kStored, 0>(acc, w, panel_words, x, row_stride, mask);
  if constexpr (kPerRow > 1) {
    if (count > 1) MultiplyRow<kRows, kPanels, kStored, 1>(acc, w, panel_words, x + step, row_stride, mask);
  }
  if constexpr (kPerRow > 2) {
    if (count > 2) MultiplyRow<kRows, kPanels, kStored, 2>(acc, w, panel_words, x + 2 * step, row_stride, mask);
    if (count > 3) MultiplyRow<kRows, kPanels, kStored, 3>(acc, w, panel_words, x + 3 * step, row_stride, mask);
  }
}

/// One storage row of the panels: k_per_row() k. Moves `w` and `x` on.
template <int kRows, int kPanels, DType kStored, bool kPacked>
HWY_INLINE void StorageRow(Vec (&acc)[kRows][2 * kPanels], const uint32_t* HWY_RESTRICT& w, int64_t panel_words,
                           const float* HWY_RESTRICT& x, int64_t x_stride, const uint32_t* HWY_RESTRICT mask) {
  constexpr int64_t kStep = kPacked ? kRows : 1;
  const int64_t row_stride = kPacked ? 1 : x_stride;
  PartOfRow<kRows, kPanels, kStored>(acc, w, panel_words, x, kStep, row_stride, k_per_row(kStored), mask);
  w += kWidth;
  x += k_per_row(kStored) * kStep;
}

/// Fetches what two storage rows of each panel will need.
template <int kPanels, int64_t kAhead>
HWY_INLINE void FetchPanels(const uint32_t* w, int64_t panel_words) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const auto* from = reinterpret_cast<const char*>(w + p * panel_words) + kAhead;
#pragma GCC unroll 4
    for (int64_t byte = 0; byte < 2 * kRowBytes; byte += 64) hwy::Prefetch(from + byte);
  }
}

/// acc[kRows][kPanels * kWidth] (+)= x[kRows][len] * panels; starts from zero if `fresh`. `ahead` only where kPacked.
template <int kRows, int kPanels, DType kStored, bool kPacked>
HWY_NOINLINE void Tile(const uint32_t* HWY_RESTRICT w, int64_t panel_words, const float* HWY_RESTRICT x,
                       int64_t x_stride, int64_t len, float* HWY_RESTRICT acc, bool fresh, const uint32_t* mask,
                       Ahead ahead) {
  constexpr int kVecs = 2 * kPanels;
  constexpr int64_t kPerRow = k_per_row(kStored);
  constexpr bool kFetches = !kPacked && (kRows >= kRowsThatFetch || is_eight_bit(kStored));
  const F32 d;
  const int64_t row_stride = kPacked ? 1 : x_stride;
  Vec c[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) c[r][v] = fresh ? hn::Zero(d) : hn::Load(d, acc + (r * kVecs + v) * kLanes);
  }
  if (kPacked) {
    for (; len >= 8; len -= 8) {
#pragma GCC unroll 4
      for (int64_t stream = 0; stream < kStreams; ++stream) {
#pragma GCC unroll 2
        for (int64_t line = 0; line < kRowLines; ++line) hwy::Prefetch(ahead.from + stream * ahead.stride + line * 64);
      }
      ahead.from += ahead.step;
#pragma GCC unroll 8
      for (int i = 0; i < 8 / kPerRow; ++i) {
        StorageRow<kRows, kPanels, kStored, kPacked>(c, w, panel_words, x, x_stride, mask);
      }
    }
  }
  for (; len >= 2 * kPerRow; len -= 2 * kPerRow) {  // whole lines of each stream where a storage row is half of one
    if (kFetches) FetchPanels<kPanels, is_eight_bit(kStored) ? kBytesAhead : kDirectAhead>(w, panel_words);
    StorageRow<kRows, kPanels, kStored, kPacked>(c, w, panel_words, x, x_stride, mask);
    StorageRow<kRows, kPanels, kStored, kPacked>(c, w, panel_words, x, x_stride, mask);
  }
  if (len >= kPerRow) {
    StorageRow<kRows, kPanels, kStored, kPacked>(c, w, panel_words, x, x_stride, mask);
    len -= kPerRow;
  }
  // A run's last storage row: what is left of it is padding.
  if (kPerRow > 1 && len != 0) {
    PartOfRow<kRows, kPanels, kStored>(c, w, panel_words, x, kPacked ? kRows : 1, row_stride, len, mask);
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) hn::Store(c[r][v], d, acc + (r * kVecs + v) * kLanes);
  }
}

template <DType kStored, size_t... kIndex>
constexpr std::array<TileFunction, sizeof...(kIndex)> PackedTiles(std::index_sequence<kIndex...>) {
  return {&Tile<static_cast<int>(kIndex) + 1, 1, kStored, true>...};
}

template <DType kStored>
TileFunction PackedTile(int64_t rows) {
  static constexpr auto kTiles = PackedTiles<kStored>(std::make_index_sequence<kTileRows>());
  return kTiles[rows - 1];
}

/// The kernel for `rows` packed rows and one panel.
TileFunction PackedTile(DType stored, int64_t rows) {
  switch (stored) {
    case DType::kBFloat16:
      return PackedTile<DType::kBFloat16>(rows);
    case DType::kFloat16:
      return PackedTile<DType::kFloat16>(rows);
    case DType::kInt8:
      return PackedTile<DType::kInt8>(rows);
    case DType::kFloat8E4M3:
      return PackedTile<DType::kFloat8E4M3>(rows);
    default:
      return PackedTile<DType::kFloat32>(rows);
  }
}

template <bool kTogether>
constexpr int PanelsTogether(size_t rows) {
  return kTogether ? static_cast<int>(kDirectPanels[rows]) : 1;
}

template <DType kStored, bool kTogether, size_t... kIndex>
constexpr std::array<TileFunction, sizeof...(kIndex)> DirectTiles(std::index_sequence<kIndex...>) {
  return {&Tile<static_cast<int>(kIndex) + 1, PanelsTogether<kTogether>(kIndex + 1), kStored, false>...};
}

/// The kernel for `rows` rows in place, and kDirectPanels[rows] panels or a single one.
template <DType kStored>
TileFunction DirectTile(int64_t rows, bool together) {
  static constexpr auto kRowsUpTo = std::make_index_sequence<kDirectRows>();
  static constexpr auto kSide = DirectTiles<kStored, true>(kRowsUpTo);
  static constexpr auto kAlone = DirectTiles<kStored, false>(kRowsUpTo);
  return together ? kSide[rows - 1] : kAlone[rows - 1];
}

TileFunction DirectTile(DType stored, int64_t rows, bool together) {
  switch (stored) {
    case DType::kBFloat16:
      return DirectTile<DType::kBFloat16>(rows, together);
    case DType::kFloat16:
      return DirectTile<DType::kFloat16>(rows, together);
    case DType::kInt8:
      return DirectTile<DType::kInt8>(rows, together);
    case DType::kFloat8E4M3:
      return DirectTile<DType::kFloat8E4M3>(rows, together);
    default:
      return DirectTile<DType::kFloat32>(rows, together);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_MATMUL_TILE_INL_H
