// A register tile of a matrix product: what those who call one and the instruction sets that have one agree on.
#pragma once

#include <cstdint>

namespace helios {

inline constexpr int64_t kStreams = 4;  // panels that are fetched ahead side by side

/// Memory that is needed soon: four places `stride` bytes apart, each moved on by `step` bytes every eight k.
/// Four streams at once read far faster than one (the hardware's prefetchers restart at each page of each stream).
struct Ahead {
  const char* from = nullptr;
  int64_t stride = 0, step = 0;
};

/// How far ahead rows in place fetch each of their panels. From four rows on arithmetic is half of the time, and the
/// hardware's prefetchers do not run far enough ahead to read during it (5 to 20% of the time); with fewer rows they
/// do, and are faster left alone.
inline constexpr int64_t kDirectAhead = 8192;
inline constexpr int kRowsThatFetch = 4;  // of FP32
/// 8-bit weights are fetched for any number of rows: widening fills the processor's window, which then reaches fewer of
/// their lines than reading at full speed needs (1 row: 0.74 of it, not 0.91).
inline constexpr int64_t kBytesAhead = 2048;

/// acc[rows][panels * width] (+)= x[rows][len] * panels, rows and panels being the function's own.
/// `w`: the first panel's words at the tile's first k, the other panels `panel_words` apart. `x`: packed [k][rows], or
/// in place, rows `x_stride` apart. `len`: of k. `fresh`: starts from zero. `mask`: 16 words of 0xffff0000. `ahead`:
/// only of packed rows.
using TileFunction = void (*)(const uint32_t* w, int64_t panel_words, const float* x, int64_t x_stride, int64_t len,
                              float* acc, bool fresh, const uint32_t* mask, Ahead ahead);

}  // namespace helios
