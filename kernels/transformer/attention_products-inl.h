// Attention's two products, once for each Highway target: queries by keys and weights by values, for queries that share
// a block, and for several blocks side by side.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/transformer/attention.h"
#include "kernels/transformer/row_ops-inl.h"

#if defined(HELIOS_ATTENTION_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_ATTENTION_PRODUCTS_INL_H
#undef HELIOS_ATTENTION_PRODUCTS_INL_H
#else
#define HELIOS_ATTENTION_PRODUCTS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kVecs = 4;  // vectors of a query's accumulators at a time
using Vec = hn::Vec<F32>;

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

/// c[q][0, n vectors) = c * scale[q] + sum over i in [begin, end) of a[q][i] * b[i * b_stride + column]; kZero: from
/// zero.
template <int kQueries, int kCount, bool kZero, class D, class T>
HWY_INLINE void Accumulate(D d, const float* const* a, const T* HWY_RESTRICT b, int64_t b_stride, int64_t begin,
                           int64_t end, const float* scale, float* const* c, int64_t column) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::MaxLanes(d));
  V sums[kQueries][kCount];
  const float* left[kQueries];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
    left[q] = a[q];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      sums[q][v] = kZero ? hn::Zero(d) : hn::Mul(hn::LoadU(d, c[q] + column + v * lanes), hn::Set(d, scale[q]));
    }
  }
  for (int64_t i = begin; i < end; ++i) {
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

/// Accumulate() over `columns` columns: four vectors at a time, then fewer, then single elements.
template <int kQueries, bool kZero, class T>
HWY_NOINLINE void Product(const float* const* a, const T* b, int64_t b_stride, int64_t begin, int64_t end,
                          const float* scale, float* const* c, int64_t columns) {
  const F32 d;
  int64_t column = 0;
  for (; column + kVecs * kLanes <= columns; column += kVecs * kLanes) {
    Accumulate<kQueries, kVecs, kZero>(d, a, b, b_stride, begin, end, scale, c, column);
  }
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes) {
    Accumulate<kQueries, 2, kZero>(d, a, b, b_stride, begin, end, scale, c, column);
  }
  for (; column + kLanes <= columns; column += kLanes) {
    Accumulate<kQueries, 1, kZero>(d, a, b, b_stride, begin, end, scale, c, column);
  }
  for (; column < columns; ++column) {
    Accumulate<kQueries, 1, kZero>(One(), a, b, b_stride, begin, end, scale, c, column);
  }
}

/// Scores of `kQueries` queries of each of `kPasses` passes: c[p][q][0, kCount vectors) = sum over i in [0, dim) of
/// a[p][q][i] * b[p][i * kKvBlockSize + column]. Each pass reads its own keys: streams that the hardware fetches ahead
/// side by side, told apart by the instructions that read them.
template <int kPasses, int kQueries, int kCount, class T>
HWY_NOINLINE void ScoresTogether(const float* const (*a)[kQueries], const T* const* b, int64_t dim,
                                 float* const (*c)[kQueries]) {
  const F32 d;
  Vec sums[kPasses][kQueries][kCount];
  const T* keys[kPasses];
  const float* left[kPasses][kQueries];
#pragma GCC unroll 4
  for (int p = 0; p < kPasses; ++p) {
    keys[p] = b[p];
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      left[p][q] = a[p][q];
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) sums[p][q][v] = hn::Zero(d);
    }
  }
  for (int64_t i = 0; i < dim; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPasses; ++p) {
      Vec right[kCount];
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) right[v] = LoadWidened(d, keys[p] + i * kKvBlockSize + v * kLanes);
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) {
        const Vec broadcast = hn::Set(d, left[p][q][i]);
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) sums[p][q][v] = hn::MulAdd(broadcast, right[v], sums[p][q][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPasses; ++p) {
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) hn::StoreU(sums[p][q][v], d, c[p][q] + v * kLanes);
    }
  }
}

/// The same for values: c[p][q][column] += sum over i in [begin, end) of a[p][q][i] * b[p][i * dim + column], a row of
/// each pass in turn, from its begin to its end. `dim`: a multiple of kVecs vectors.
template <int kPasses, int kQueries, class T>
HWY_NOINLINE void ValuesTogether(const float* const (*a)[kQueries], const T* const* b, int64_t begin, int64_t end,
                                 float* const (*c)[kQueries], int64_t dim) {
  const F32 d;
  for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPasses; ++p) {
      const T* row = b[p] + i * dim;
      Vec weights[kQueries];
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) weights[q] = hn::Set(d, a[p][q][i]);
      for (int64_t column = 0; column < dim; column += kVecs * kLanes) {
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          const int64_t at = column + v * kLanes;
          const Vec right = LoadWidened(d, row + at);
#pragma GCC unroll 4
          for (int q = 0; q < kQueries; ++q) {
            hn::StoreU(hn::MulAdd(weights[q], right, hn::LoadU(d, c[p][q] + at)), d, c[p][q] + at);
          }
        }
      }
    }
  }
}

/// The hardware fetches ahead within a page, once it has seen a few lines of it: these, for a block's keys or values.
template <class T>
void FetchPageStarts(const T* block, int64_t count) {
  constexpr int64_t kPage = 4096, kLines = 4;
  const char* const bytes = reinterpret_cast<const char*>(block);
  for (int64_t page = 0; page < count * static_cast<int64_t>(sizeof(T)); page += kPage) {
    for (int64_t line = 0; line < kLines; ++line) hwy::Prefetch(bytes + page + 64 * line);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif  // HELIOS_ATTENTION_PRODUCTS_INL_H
