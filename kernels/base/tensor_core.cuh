// The tensor core instruction that the kernels use, and on the emulator what it means: one m16n8k16 product of BF16
// fragments that a warp holds together, added to FP32.
//
// Lane l has group g = l / 4 and place t = l % 4. Its words hold two BF16 values each, the lower index in the lower
// half:
//   a[0], a[2]  row g, columns 2t and 2t + 1; the same + 8       a[1], a[3]  row g + 8
//   b0, b1      rows 2t and 2t + 1 of column g; the same + 8
//   d[0], d[1]  row g, columns 2t and 2t + 1                     d[2], d[3]  row g + 8
// (PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type"; sm_80 and later.)
//
// A hardware's own order of the sixteen additions is not written down, but it is one for every row, column and call: an
// output's bits depend on its row of a, its column of b and what it is added to. What was measured of it (M. Fasi, N.
// Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): products are exact; they and the
// sum so far are aligned to the largest of them and cut, not rounded, a bit or more behind FP32's last, added, and cut
// to FP32. The emulator does as the coarsest of sm_80 and later: eight products at a time, one bit more. So what is
// proved there does not lean on rounding that a GPU has not.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "kernels/base/dtype.h"
#include "kernels/base/simt.h"

namespace helios {

#if defined(__CUDACC__)

/// Rounded to nearest, ties to even; `low` into the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// d = a b. All lanes of the warp together.
__device__ inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/// d += a b. All lanes of the warp together.
__device__ inline void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

inline uint32_t pack_bf16(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}

namespace emulated {
struct Fragments {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};
/// Half `k` % 2 of a word, as FP32.
inline float half_of(uint32_t word, int k) { return bf16_to_float(static_cast<uint16_t>(k % 2 ? word >> 16 : word)); }

inline int exponent_of(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1023; }
inline double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52); }

/// sums[c] += a[0] * b[0][c] + ... + a[7] * b[7][c], cut as said above, for the eight columns of a row.
inline void add_eight(double (&sums)[8], const double* a, const double (*b)[8]) {
  double terms[9][8], largest[8] = {}, total[8] = {}, up[8];
  int unit[8], units[8] = {};
  for (int c = 0; c < 8; ++c) terms[0][c] = sums[c];
  for (int k = 0; k < 8; ++k) {
    for (int c = 0; c < 8; ++c) terms[k + 1][c] = a[k] * b[k][c];
  }
  for (int k = 0; k < 9; ++k) {
    for (int c = 0; c < 8; ++c) {
      const double size = std::fabs(terms[k][c]);
      largest[c] = largest[c] < size ? size : largest[c];
      total[c] += terms[k][c];
    }
  }
  for (int c = 0; c < 8; ++c) {
    unit[c] = std::max(exponent_of(largest[c]) - 24, -149);  // FP32's last bit is 23 below the first
    up[c] = power_of_two(-unit[c]);
    if (std::isfinite(total[c])) continue;
    for (int k = 0; k < 9; ++k) terms[k][c] = 0.0;
  }
  for (int k = 0; k < 9; ++k) {
    for (int c = 0; c < 8; ++c) units[c] += static_cast<int>(terms[k][c] * up[c]);
  }
  for (int c = 0; c < 8; ++c) {
    if (!std::isfinite(total[c])) {
      sums[c] = static_cast<float>(total[c]);
      continue;
    }
    const int surplus = std::bit_width(static_cast<unsigned>(std::abs(units[c]))) - 24;
    if (surplus > 0) units[c] = units[c] / (1 << surplus) * (1 << surplus);
    sums[c] = static_cast<float>(units[c] * power_of_two(unit[c]));
  }
}

inline void multiply_add(void* const* lanes) {
  const auto of = [&](int lane) -> const Fragments& { return *static_cast<const Fragments*>(lanes[lane]); };
  double b[16][8], size = 0;
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < 8; ++column) {
      b[k][column] = half_of(of(column * 4 + k % 8 / 2).b[k / 8], k);
      size += std::fabs(b[k][column]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    double a[16], sums[8];
    bool zeros = std::isfinite(size);  // of a row that nobody reads, mostly: the sums stay
    for (int k = 0; k < 16; ++k) {
      a[k] = half_of(of(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k);
      zeros &= a[k] == 0.0;
    }
    if (zeros) continue;
    const auto d = [&](int column) -> float& { return of(row % 8 * 4 + column / 2).d[row / 8 * 2 + column % 2]; };
    for (int column = 0; column < 8; ++column) sums[column] = d(column);
    add_eight(sums, a, b);
    add_eight(sums, a + 8, b + 8);
    for (int column = 0; column < 8; ++column) d(column) = static_cast<float>(sums[column]);
  }
}
}  // namespace emulated

inline void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_LOC) {
  emulated::Fragments mine{d, a, {b0, b1}};
  simt::detail::join_warp(&mine, emulated::multiply_add, loc);
}

inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_LOC) {
  for (float& sum : d) sum = 0.0f;
  multiply_add_bf16(d, a, b0, b1, loc);
}

#endif

}  // namespace helios
