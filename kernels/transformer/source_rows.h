// What every weight layout is packed from: the checkpoint's rows, stacked, and what a packing may ask for.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "kernels/transformer/matmul.h"

namespace helios {

/// A packed row's source: checkpoint row and element type.
struct SourceRow {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  const float* scales = nullptr;  // null: none
  int64_t scale_columns = 0;
  const ByteSource* source = nullptr;

  /// The weight in column `i`: of a quantised one, rounded once.
  float value(int64_t i) const {
    const float stored = load_element(data, dtype, i);
    return scales ? stored * scales[i / scale_columns] : stored;
  }
};

/// The parts' rows one after another, as PackedMatrix::pack() stacks them.
inline std::vector<SourceRow> source_rows(std::span<const WeightRows> parts) {
  std::vector<SourceRow> rows;
  for (const WeightRows& part : parts) {
    const auto* data = static_cast<const std::byte*>(part.data);
    const int64_t row_bytes = part.row_stride * static_cast<int64_t>(dtype_bytes(part.dtype));
    HELIOS_CHECK((part.scales != nullptr) == is_eight_bit(part.dtype), static_cast<int>(part.dtype));
    for (int64_t r = 0; r < part.num_rows; ++r) {
      const float* scales = part.scales ? part.scales + r * part.scale_stride : nullptr;
      rows.push_back({data + r * row_bytes, part.dtype, scales, part.scale_columns, part.source});
    }
  }
  return rows;
}

/// The conditions of PackedMatrix::pack(), and at most `most_segments`.
inline void check_packing(int64_t k_begin, int64_t k_end, std::span<const int64_t> segments, int64_t most_segments) {
  HELIOS_CHECK(0 <= k_begin && k_begin <= k_end, k_begin, k_end);
  HELIOS_CHECK(segments.size() >= 2 && segments.front() == 0 && segments.back() == k_end - k_begin, segments.size());
  HELIOS_CHECK(std::is_sorted(segments.begin(), segments.end()));
  const size_t num_segments = segments.size() - 1;
  HELIOS_CHECK(std::has_single_bit(num_segments) && static_cast<int64_t>(num_segments) <= most_segments, num_segments);
}

}  // namespace helios
