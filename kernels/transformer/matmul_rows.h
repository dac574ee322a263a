// How a weight matrix lies in the memory of a device that is not the host: row-major, segment by segment along k, rows
// and columns padded with zeros so that every row of a segment begins on 16 bytes. A padded product adds +0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/transformer/matmul.h"

namespace helios {

inline constexpr int64_t kRowsMaxSegments = 16;
inline constexpr int64_t kRowsPadding = 8;  // elements

struct RowsView {
  int64_t n = 0, k = 0;
  int64_t padded_n = 0;   // rows of a segment
  int64_t segment_k = 0;  // elements of such a row: the longest segment on any rank, padded
  int32_t num_segments = 0;
  std::array<int64_t, kRowsMaxSegments + 1> segments{};  // boundaries along k
  DType dtype = DType::kFloat32;
  const void* data = nullptr;  // [num_segments, padded_n, segment_k]

  int64_t segment_elements() const { return padded_n * segment_k; }
};

/// The one door to such a PackedMatrix's storage.
struct MatmulRows {
  static RowsView view(const PackedMatrix& matrix);
  static const std::shared_ptr<void>& handle(const PackedMatrix& matrix) { return matrix.handle_; }
};

/// What matmul() of this device keeps for all matrices; null where it keeps nothing. Throws std::runtime_error.
std::shared_ptr<void> make_matmul_handle();

}  // namespace helios
