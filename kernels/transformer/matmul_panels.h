// How a packed matrix lies in memory, and how its rows and columns are cut for the register tiles.
//
// A panel holds `width` columns (two float vectors of the instruction set in use) over all of k, panels one after
// another, so that a thread streams its part of the matrix once, in address order. Within a panel, segments one after
// another; within a segment BF16 weights lie as [pair of k][width][2] (a 32-bit lane holds the even k above the odd
// one, as matmul_pairs.h takes them), F16 weights as [pair of k][2][width], FP32 weights as [k][width], 8-bit weights
// as [four of k][4][width] bytes. An odd segment's last pair has an unused half, zero for BF16, and a run's last four
// unused bytes, which no kernel multiplies.
//
// Scales of 8-bit weights: [panel][scale row][width], those of E4M3 times what widening leaves out. A run is the part
// of a segment that shares a scale along k; where all of k does, the segment.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transformer/matmul.h"

namespace helios {

inline constexpr int64_t kMaxSegments = 16;
inline constexpr int64_t kMaxLevels = 5;  // partial sums alive at once in a binary tree over kMaxSegments

/// What x is multiplied by before it meets widened weights of a type.
constexpr float lift_of(DType dtype) { return dtype == DType::kFloat8E4M3 ? 0x1p64f : 1.0f; }
/// What the scales make up for: widened E4M3 is 2^-120 of its value.
constexpr float scale_factor_of(DType dtype) { return dtype == DType::kFloat8E4M3 ? 0x1p56f : 1.0f; }

/// k in a storage row, which is always 4 * width bytes.
constexpr int64_t k_per_row(DType dtype) { return 4 / static_cast<int64_t>(dtype_bytes(dtype)); }
/// Storage rows of a run of `length`.
constexpr int64_t run_rows(DType dtype, int64_t length) {
  return (length + k_per_row(dtype) - 1) / k_per_row(dtype);
}

/// How the scales of a packed matrix lie along its k.
struct ScaleBlocks {
  int64_t rows = 0;   // scales of a column; 0: none
  int64_t block = 0;  // of k; 0: one scale for all of it
  int64_t phase = 0;  // of the first column within its block
};

struct PanelView {
  int64_t n = 0, k = 0, width = 0;
  DType dtype = DType::kFloat32;
  const int64_t* segments = nullptr;  // num_segments + 1 boundaries
  int64_t num_segments = 0;
  int64_t panel_words = 0;  // 32-bit words from one panel to the next
  const uint32_t* words = nullptr;
  const float* scales = nullptr;
  ScaleBlocks scale_blocks;

  /// Scales of a panel's columns for the run that begins at k.
  const float* scales_at(int64_t panel, int64_t begin) const {
    const int64_t row = scale_blocks.block == 0 ? 0 : (begin + scale_blocks.phase) / scale_blocks.block;
    return scales + (panel * scale_blocks.rows + row) * width;
  }
  /// The end of the run that begins at `begin` of a segment that ends at `end`.
  int64_t run_end(int64_t begin, int64_t end) const {
    if (scale_blocks.block == 0) return end;
    const int64_t left = scale_blocks.block - (begin + scale_blocks.phase) % scale_blocks.block;
    return left < end - begin ? begin + left : end;
  }
  /// take(begin, end) for each run along k.
  template <class Take>
  void for_each_run(const Take& take) const {
    for (int64_t s = 0; s < num_segments; ++s) {
      for (int64_t begin = segments[s], end = begin; begin < segments[s + 1]; begin = end) {
        end = run_end(begin, segments[s + 1]);
        take(begin, end);
      }
    }
  }

  int64_t num_panels() const { return width == 0 ? 0 : (n + width - 1) / width; }
};

/// The one door to PackedMatrix's storage.
struct MatmulKernels {
  static PackedMatrix allocate(int64_t n, int64_t k, std::span<const int64_t> segments, DType dtype, int64_t width,
                               const ScaleBlocks& scales, WeightStore& store);
  static PanelView view(const PackedMatrix& matrix);
  static uint32_t* words(PackedMatrix& matrix) { return matrix.storage_.as<uint32_t>(); }
  static float* scales(PackedMatrix& matrix) { return matrix.scales_.as<float>(); }
};

/// Rows [0, m) in `count` tiles of nearly equal height, at most `max_rows` each: 7 rows are 4 + 3, not 6 + 1.
struct RowTiles {
  int64_t m = 0, count = 0;
  RowTiles(int64_t rows, int64_t max_rows) : m(rows), count((rows + max_rows - 1) / max_rows) {}
  int64_t begin(int64_t tile) const { return m * tile / count; }
};

}  // namespace helios
