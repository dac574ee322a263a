// How a packed matrix lies in memory, and how its rows and columns are cut for the register tiles.
//
// A panel holds `width` columns (two float vectors of the instruction set in use) over all of k, panels one after
// another, so that a thread streams its part of the matrix once, in address order. Within a panel, segments one after
// another; within a segment BF16 weights lie as [pair of k][width][2] (a 32-bit lane holds the even k below the odd
// one), FP32 weights as [k][width]. An odd segment's last pair has an unused upper half, which no kernel multiplies.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transformer/matmul.h"

namespace helios {

inline constexpr int64_t kMaxSegments = 16;
inline constexpr int64_t kMaxLevels = 5;  // partial sums alive at once in a binary tree over kMaxSegments

/// Storage rows of a segment of `length`: pairs for BF16, single k for FP32. A row is 4 * width bytes either way.
constexpr int64_t segment_rows(DType dtype, int64_t length) {
  return dtype == DType::kBFloat16 ? (length + 1) / 2 : length;
}

struct PanelView {
  int64_t n = 0, k = 0, width = 0;
  DType dtype = DType::kFloat32;
  const int64_t* segments = nullptr;  // num_segments + 1 boundaries
  int64_t num_segments = 0;
  int64_t panel_words = 0;  // 32-bit words from one panel to the next
  const uint32_t* words = nullptr;

  int64_t num_panels() const { return width == 0 ? 0 : (n + width - 1) / width; }
};

/// The one door to PackedMatrix's storage.
struct MatmulKernels {
  static PackedMatrix allocate(int64_t n, int64_t k, std::span<const int64_t> segments, DType dtype, int64_t width,
                               WeightStore& store);
  static PanelView view(const PackedMatrix& matrix);
  static uint32_t* words(PackedMatrix& matrix) { return matrix.storage_.as<uint32_t>(); }
};

/// Rows [0, m) in `count` tiles of nearly equal height, at most `max_rows` each: 7 rows are 4 + 3, not 6 + 1.
struct RowTiles {
  int64_t m = 0, count = 0;
  RowTiles(int64_t rows, int64_t max_rows) : m(rows), count((rows + max_rows - 1) / max_rows) {}
  int64_t begin(int64_t tile) const { return m * tile / count; }
};

}  // namespace helios
