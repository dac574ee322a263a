// Packs checkpoint matrices into panels: once, at load, in place: the CPU device's memory is the host's. Thread: the
// loader's, with its pool.
#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "kernels/transformer/matmul_cpu.h"
#include "kernels/transformer/matmul_panels.h"
#include "kernels/transformer/source_rows.h"

namespace helios {
namespace {

template <DType kType>
float load_as(const void* data, int64_t index) {
  return load_element(data, kType, index);  // the switch folds away
}

/// One column of a panel, bytes as they are.
void pack_bytes(const PanelView& view, std::byte* column, const std::byte* from) {
  view.for_each_run([&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) column[(i - begin) * view.width] = from[i];
    column += run_rows(view.dtype, end - begin) * 4 * view.width;
  });
}

/// The FP32 weights `values(i)` of one column, as F16.
template <class Values>
void pack_halves(const PanelView& view, uint16_t* column, const Values& values) {
  view.for_each_run([&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) column[(i - begin) * view.width] = float_to_f16(values(i));
    column += run_rows(view.dtype, end - begin) * 2 * view.width;
  });
}

/// A panel of F16 rows, kept as F16: a line of every source row at a time, so that neither side is visited twice.
void copy_halves(const PanelView& view, const SourceRow* rows, int64_t columns, int64_t k_begin, uint16_t* to) {
  constexpr int64_t kLine = 32;
  view.for_each_run([&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kLine) {
      for (int64_t c = 0; c < columns; ++c) {
        const uint16_t* row = static_cast<const uint16_t*>(rows[c].data) + k_begin;
        for (int64_t j = i; j < std::min(i + kLine, end); ++j) to[(j - begin) * view.width + c] = row[j];
      }
    }
    to += run_rows(view.dtype, end - begin) * 2 * view.width;
  });
}

/// One column's scales.
void pack_scales(const PanelView& view, float* column, const SourceRow& row, int64_t k_begin) {
  const float factor = scale_factor_of(view.dtype);
  for (int64_t r = 0; r < view.scale_blocks.rows; ++r, column += view.width) {
    *column = factor * row.scales[view.scale_blocks.block == 0 ? 0 : k_begin / view.scale_blocks.block + r];
  }
}

/// The scales of columns [k_begin, k_end) of the checkpoint's matrix.
ScaleBlocks scale_blocks(const WeightRows& part, int64_t k_begin, int64_t k_end) {
  if (part.scale_columns >= part.row_stride) return {.rows = 1};
  const int64_t block = part.scale_columns;
  HELIOS_CHECK(0 < block && block <= kMaxScaleColumns, block);
  const int64_t first = k_begin / block, last = k_end > k_begin ? (k_end - 1) / block : first;
  return {.rows = last - first + 1, .block = block, .phase = k_begin % block};
}

/// One column of a panel: `values(i)` is the FP32 weight at k = i.
template <class Values>
void pack_column(const PanelView& view, uint32_t* column, const Values& values) {
  for (int64_t s = 0; s < view.num_segments; ++s) {
    const int64_t begin = view.segments[s], end = view.segments[s + 1];
    if (view.dtype == DType::kFloat32) {
      for (int64_t i = begin; i < end; ++i, column += view.width) *column = std::bit_cast<uint32_t>(values(i));
    } else {
      for (int64_t i = begin; i < end; i += 2, column += view.width) {
        const uint32_t even = float_to_bf16(values(i)), odd = i + 1 < end ? float_to_bf16(values(i + 1)) : 0;
        *column = even << 16 | odd;
      }
    }
  }
}

void pack_column(const PanelView& view, uint32_t* column, const SourceRow& row, int64_t k_begin) {
  switch (row.dtype) {
    case DType::kFloat32:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kFloat32>(row.data, k_begin + i); });
    case DType::kBFloat16:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kBFloat16>(row.data, k_begin + i); });
    case DType::kFloat16:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kFloat16>(row.data, k_begin + i); });
    case DType::kInt8:
    case DType::kFloat8E4M3:
      return pack_column(view, column, [=](int64_t i) { return row.value(k_begin + i); });
  }
}

/// Pairs of BF16 weights, which storage rows take with their halves swapped: a cache line of every source row at a
/// time, so that neither side is visited twice.
void copy_pairs(const SourceRow* rows, int64_t columns, int64_t first_k, int64_t pairs, int64_t width, uint32_t* to) {
  constexpr int64_t kPairs = 16;
  for (int64_t p = 0; p < pairs; p += kPairs) {
    const int64_t count = std::min(kPairs, pairs - p);
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t line[kPairs];
      std::memcpy(line, static_cast<const uint16_t*>(rows[c].data) + first_k + 2 * p, static_cast<size_t>(count) * 4);
      for (int64_t i = 0; i < count; ++i) to[(p + i) * width + c] = std::rotl(line[i], 16);
    }
  }
}

/// A panel of BF16 rows, kept as BF16.
void copy_panel(const PanelView& view, const SourceRow* rows, int64_t columns, int64_t k_begin, uint32_t* to) {
  for (int64_t s = 0; s < view.num_segments; ++s) {
    const int64_t begin = view.segments[s], length = view.segments[s + 1] - begin;
    copy_pairs(rows, columns, k_begin + begin, length / 2, view.width, to);
    to += length / 2 * view.width;
    if (length % 2 == 0) continue;
    for (int64_t c = 0; c < columns; ++c) {
      to[c] = uint32_t{static_cast<const uint16_t*>(rows[c].data)[k_begin + begin + length - 1]} << 16;
    }
    to += view.width;
  }
}

/// A panel's rows copied from where they are expensive to read; the others as they are.
class StagedRows {
 public:
  /// Columns [k_begin, k_end) of `rows`. Rows that follow each other in memory are copied at once.
  const SourceRow* stage(const SourceRow* rows, int64_t count, int64_t k_begin, int64_t k_end) {
    rows_.assign(rows, rows + count);
    const auto stride = static_cast<size_t>(k_end) * sizeof(float);  // of the widest type
    bytes_.resize(static_cast<size_t>(count) * stride);
    for (int64_t r = 0, end = 0; r < count; r = end) {
      const auto element = static_cast<int64_t>(dtype_bytes(rows[r].dtype));
      const auto* from = static_cast<const std::byte*>(rows[r].data);
      std::byte* to = bytes_.data() + static_cast<size_t>(r) * stride;
      for (end = r + 1; end < count && k_begin == 0 && follows(rows[r], rows[end], (end - r) * k_end * element);) ++end;
      if (!rows[r].source) continue;
      rows[r].source->copy(from + k_begin * element, static_cast<size_t>((end - r) * k_end - k_begin) * element,
                           to + k_begin * element);
      for (int64_t i = r; i < end; ++i) rows_[i].data = to + (i - r) * k_end * element;
    }
    return rows_.data();
  }

 private:
  static bool follows(const SourceRow& first, const SourceRow& row, int64_t bytes) {
    return row.source == first.source && row.dtype == first.dtype &&
           row.data == static_cast<const std::byte*>(first.data) + bytes;
  }
  std::vector<SourceRow> rows_;
  std::vector<std::byte> bytes_;
};

/// A panel of `columns` rows. `scales`: the panel's, where it has any.
void pack_panel(const PanelView& view, const SourceRow* rows, int64_t columns, int64_t k_begin, uint32_t* to,
                float* scales) {
  const auto is_kept = [&view](const SourceRow& row) { return row.dtype == view.dtype; };
  const bool kept = std::all_of(rows, rows + columns, is_kept);
  if (view.dtype == DType::kBFloat16 && kept) return copy_panel(view, rows, columns, k_begin, to);
  if (view.dtype == DType::kFloat16 && kept) {
    return copy_halves(view, rows, columns, k_begin, reinterpret_cast<uint16_t*>(to));
  }
  for (int64_t c = 0; c < columns; ++c) {
    if (is_eight_bit(view.dtype)) {
      pack_bytes(view, reinterpret_cast<std::byte*>(to) + c, static_cast<const std::byte*>(rows[c].data) + k_begin);
      pack_scales(view, scales + c, rows[c], k_begin);
    } else if (view.dtype == DType::kFloat16) {
      pack_halves(view, reinterpret_cast<uint16_t*>(to) + c, [&](int64_t i) { return rows[c].value(k_begin + i); });
    } else {
      pack_column(view, to + c, rows[c], k_begin);
    }
  }
}

}  // namespace

PackedMatrix MatmulKernels::allocate(int64_t n, int64_t k, std::span<const int64_t> segments, DType dtype,
                                     int64_t width, const ScaleBlocks& scales, WeightStore& store) {
  PackedMatrix matrix;
  matrix.n_ = n;
  matrix.k_ = k;
  matrix.dtype_ = dtype;
  matrix.panel_width_ = width;
  matrix.segments_.assign(segments.begin(), segments.end());
  matrix.scale_rows_ = scales.rows;
  matrix.scale_block_ = scales.block;
  matrix.scale_phase_ = scales.phase;
  const PanelView shape = view(matrix);
  matrix.storage_ = store.allocate(static_cast<size_t>(shape.num_panels() * shape.panel_words * 4));
  matrix.scales_ = store.allocate(static_cast<size_t>(shape.num_panels() * scales.rows * width) * sizeof(float));
  return matrix;
}

PanelView MatmulKernels::view(const PackedMatrix& matrix) {
  PanelView view;
  view.n = matrix.n_;
  view.k = matrix.k_;
  view.width = matrix.panel_width_;
  view.dtype = matrix.dtype_;
  view.segments = matrix.segments_.data();
  view.num_segments = static_cast<int64_t>(matrix.segments_.size()) - 1;
  view.scale_blocks = {matrix.scale_rows_, matrix.scale_block_, matrix.scale_phase_};
  view.for_each_run(
      [&view](int64_t begin, int64_t end) { view.panel_words += run_rows(view.dtype, end - begin) * view.width; });
  view.words = matrix.storage_.as<uint32_t>();
  view.scales = matrix.scales_.as<float>();
  return view;
}

bool PackedMatrix::holds_eight_bits() { return true; }

PackedMatrix PackedMatrix::pack(std::span<const WeightRows> parts, int64_t k_begin, int64_t k_end,
                                std::span<const int64_t> segments, DType stored, WeightStore& store, int64_t) {
  check_packing(k_begin, k_end, segments, kMaxSegments);
  const std::vector<SourceRow> rows = source_rows(parts);
  const auto n = static_cast<int64_t>(rows.size());
  ScaleBlocks scales;
  for (const WeightRows& part : parts) {
    if (!is_eight_bit(stored)) break;
    HELIOS_CHECK(part.dtype == stored && part.row_stride == parts[0].row_stride, static_cast<int>(part.dtype));
    HELIOS_CHECK(part.scale_columns == parts[0].scale_columns, part.scale_columns);
    scales = scale_blocks(part, k_begin, k_end);
  }
  PackedMatrix matrix =
      MatmulKernels::allocate(n, k_end - k_begin, segments, stored, matmul_panel_width(), scales, store);
  const PanelView view = MatmulKernels::view(matrix);
  uint32_t* words = MatmulKernels::words(matrix);
  float* const all_scales = MatmulKernels::scales(matrix);
  store.pool().parallel_for(view.num_panels(), 1, [&](int64_t begin, int64_t end) {
    StagedRows staged;
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * view.width, columns = std::min(view.width, n - first);
      const SourceRow* const from = staged.stage(rows.data() + first, columns, k_begin, k_end);
      pack_panel(view, from, columns, k_begin, words + panel * view.panel_words,
                 all_scales + panel * scales.rows * view.width);
    }
  });
  return matrix;
}

}  // namespace helios
