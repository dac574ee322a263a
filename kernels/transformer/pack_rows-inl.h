// Rows of activations to the layout of the matrix products' register tiles, once for each Highway target.
#include <hwy/highway.h>

#include <bit>
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

/// Word `i` of a row: its element, or its BF16 elements 2i and 2i + 1 as a pair, the even one in the upper half; zero
/// stands for an odd one past `count` elements.
template <bool kPairs>
HWY_INLINE float WordOf(const float* HWY_RESTRICT row, int64_t i, int64_t count) {
  if (!kPairs) return row[i];
  const auto even = std::bit_cast<uint32_t>(row[2 * i]);
  const uint32_t odd = 2 * i + 1 < count ? std::bit_cast<uint32_t>(row[2 * i + 1]) : 0;
  return std::bit_cast<float>((even & 0xffff0000u) | odd >> 16);
}

/// Words [begin, end) of each of `rows` rows of `count` elements into to[word * height + row].
template <bool kPairs>
void PackRowsOneByOne(const float* HWY_RESTRICT from, int64_t stride, int64_t rows, int64_t begin, int64_t end,
                      int64_t count, int64_t height, float* HWY_RESTRICT to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = begin; i < end; ++i) to[i * height + r] = WordOf<kPairs>(from + r * stride, i, count);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// As many words as `d` has lanes, from word i, whole pairs all.
template <bool kPairs, class D>
HWY_INLINE hn::Vec<D> LoadWords(D d, const float* HWY_RESTRICT row, int64_t i) {
  if constexpr (!kPairs) return hn::LoadU(d, row + i);
  const hn::RebindToUnsigned<D> du;
  const float* from = row + 2 * i;
  const auto low = hn::BitCast(du, hn::LoadU(d, from));
  const auto high = hn::BitCast(du, hn::LoadU(d, from + hn::MaxLanes(d)));
  const auto even = hn::ConcatEven(du, high, low), odd = hn::ConcatOdd(du, high, low);
  return hn::BitCast(d, hn::Or(hn::And(even, hn::Set(du, 0xffff0000u)), hn::ShiftRight<16>(odd)));
}
#endif

/// A row of `count` BF16 values as pairs.
HWY_MAYBE_UNUSED void PackRowPairs(const float* HWY_RESTRICT from, int64_t count, float* HWY_RESTRICT to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  for (; i + lanes <= count / 2; i += lanes) hn::StoreU(LoadWords<true>(d, from, i), d, to + i);
#endif
  for (; i < (count + 1) / 2; ++i) to[i] = WordOf<true>(from, i, count);
}

/// The same for four rows: transposed in registers, which stores four words at once.
template <bool kPairs>
void PackFourRows(const float* HWY_RESTRICT from, int64_t stride, int64_t count, int64_t height,
                  float* HWY_RESTRICT to) {
  const int64_t words = kPairs ? (count + 1) / 2 : count;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  for (; i + 4 <= (kPairs ? count / 2 : count); i += 4) {
    const auto a = LoadWords<kPairs>(d, from, i), b = LoadWords<kPairs>(d, from + stride, i);
    const auto c = LoadWords<kPairs>(d, from + 2 * stride, i), e = LoadWords<kPairs>(d, from + 3 * stride, i);
    const auto ac_low = hn::InterleaveLower(d, a, c), ac_high = hn::InterleaveUpper(d, a, c);
    const auto be_low = hn::InterleaveLower(d, b, e), be_high = hn::InterleaveUpper(d, b, e);
    hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, to + i * height);
    hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, to + (i + 1) * height);
    hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + (i + 2) * height);
    hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + (i + 3) * height);
  }
#endif
  PackRowsOneByOne<kPairs>(from, stride, 4, i, words, count, height, to);
}

/// A tile's rows of `count` elements into [word][height]: a word is an element, or a pair of BF16 values. Groups of
/// four overlap where the height is no multiple.
template <bool kPairs>
void PackTileRows(const float* from, int64_t stride, int64_t count, int64_t height, float* to) {
  if (height < 4) {
    return PackRowsOneByOne<kPairs>(from, stride, height, 0, kPairs ? (count + 1) / 2 : count, count, height, to);
  }
  for (int64_t r = 0; r < height; r += 4) {
    const int64_t first = r + 4 <= height ? r : height - 4;
    PackFourRows<kPairs>(from + first * stride, stride, count, height, to + first);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_PACK_ROWS_INL_H
