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
// output's bits depend on its row of a, its column of b and what it is added to.
#pragma once

#include <cstdint>

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

inline void multiply_add(void* const* lanes) {
  const auto of = [&](int lane) -> const Fragments& { return *static_cast<const Fragments*>(lanes[lane]); };
  float a[16][16], b[16][8];
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) a[row][k] = half_of(of(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k);
  }
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < 8; ++column) b[k][column] = half_of(of(column * 4 + k % 8 / 2).b[k / 8], k);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = of(lane).d[i];
      for (int k = 0; k < 16; ++k) sum = std::fma(a[row][k], b[k][column], sum);
      of(lane).d[i] = sum;
    }
  }
}
}  // namespace emulated

inline void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_LOC) {
  emulated::Fragments mine{d, a, {b0, b1}};
  simt::detail::join_warp(&mine, emulated::multiply_add, loc);
}

#endif

}  // namespace helios
