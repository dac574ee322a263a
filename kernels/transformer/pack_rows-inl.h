// Rows of activations to the layout of the matrix products' register tiles, once for each Highway target.
#include <hwy/highway.h>

#include <cstdint>

#if defined(HELIOS_PACK_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_PACK_ROWS_INL_H
#undef HELIOS_PACK_ROWS_INL_H
#else
#define HELIOS_PACK_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// `rows` rows, [begin, end) of k, into to[k * height + row].
void PackRowsOneByOne(const float* HWY_RESTRICT from, int64_t stride, int64_t rows, int64_t begin, int64_t end,
                      int64_t height, float* HWY_RESTRICT to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = begin; k < end; ++k) to[k * height + r] = from[r * stride + k];
  }
}

/// The same for four rows: transposed in registers, which stores four elements at once.
void PackFourRows(const float* HWY_RESTRICT from, int64_t stride, int64_t count, int64_t height,
                  float* HWY_RESTRICT to) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  for (; k + 4 <= count; k += 4) {
    const auto a = hn::LoadU(d, from + k), b = hn::LoadU(d, from + stride + k);
    const auto c = hn::LoadU(d, from + 2 * stride + k), e = hn::LoadU(d, from + 3 * stride + k);
    const auto ac_low = hn::InterleaveLower(d, a, c), ac_high = hn::InterleaveUpper(d, a, c);
    const auto be_low = hn::InterleaveLower(d, b, e), be_high = hn::InterleaveUpper(d, b, e);
    hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, to + k * height);
    hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, to + (k + 1) * height);
    hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + (k + 2) * height);
    hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + (k + 3) * height);
  }
#endif
  PackRowsOneByOne(from, stride, 4, k, count, height, to);
}

/// A tile's rows of `k` elements into [k][height]. Groups of four overlap where the height is no multiple.
void PackTileRows(const float* from, int64_t stride, int64_t k, int64_t height, float* to) {
  if (height < 4) return PackRowsOneByOne(from, stride, height, 0, k, height, to);
  for (int64_t r = 0; r < height; r += 4) {
    const int64_t first = r + 4 <= height ? r : height - 4;
    PackFourRows(from + first * stride, stride, k, height, to + first);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_PACK_ROWS_INL_H
