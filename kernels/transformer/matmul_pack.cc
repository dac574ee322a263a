// Packs checkpoint matrices into panels: once, at load, in place: the CPU device's memory is the host's. Thread: the
// loader's, with its pool.
#include <algorithm>
#include <bit>

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

/// One column of a panel: `values(i)` is the FP32 weight at k = i.
template <class Values>
void pack_column(const PanelView& view, uint32_t* column, const Values& values) {
  for (int64_t s = 0; s < view.num_segments; ++s) {
    const int64_t begin = view.segments[s], end = view.segments[s + 1];
    if (view.dtype == DType::kFloat32) {
      for (int64_t i = begin; i < end; ++i, column += view.width) *column = std::bit_cast<uint32_t>(values(i));
    } else {
      for (int64_t i = begin; i < end; i += 2, column += view.width) {
        const uint32_t odd = i + 1 < end ? float_to_bf16(values(i + 1)) : 0u;
        *column = float_to_bf16(values(i)) | (odd << 16);
      }
    }
  }
}

void pack_column(const PanelView& view, uint32_t* column, SourceRow row, int64_t k_begin) {
  switch (row.dtype) {
    case DType::kFloat32:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kFloat32>(row.data, k_begin + i); });
    case DType::kBFloat16:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kBFloat16>(row.data, k_begin + i); });
    case DType::kFloat16:
      return pack_column(view, column, [=](int64_t i) { return load_as<DType::kFloat16>(row.data, k_begin + i); });
  }
}

}  // namespace

PackedMatrix MatmulKernels::allocate(int64_t n, int64_t k, std::span<const int64_t> segments, DType dtype,
                                     int64_t width, WeightStore& store) {
  PackedMatrix matrix;
  matrix.n_ = n;
  matrix.k_ = k;
  matrix.dtype_ = dtype;
  matrix.panel_width_ = width;
  matrix.segments_.assign(segments.begin(), segments.end());
  const PanelView shape = view(matrix);
  matrix.storage_ = store.allocate(static_cast<size_t>(shape.num_panels() * shape.panel_words * 4));
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
  for (int64_t s = 0; s < view.num_segments; ++s) {
    view.panel_words += segment_rows(view.dtype, view.segments[s + 1] - view.segments[s]) * view.width;
  }
  view.words = matrix.storage_.as<uint32_t>();
  return view;
}

PackedMatrix PackedMatrix::pack(std::span<const WeightRows> parts, int64_t k_begin, int64_t k_end,
                                std::span<const int64_t> segments, DType stored, WeightStore& store) {
  check_packing(k_begin, k_end, segments, stored, kMaxSegments);
  const std::vector<SourceRow> rows = source_rows(parts);
  const auto n = static_cast<int64_t>(rows.size());
  PackedMatrix matrix = MatmulKernels::allocate(n, k_end - k_begin, segments, stored, matmul_panel_width(), store);
  const PanelView view = MatmulKernels::view(matrix);
  uint32_t* words = MatmulKernels::words(matrix);
  store.pool().parallel_for(view.num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin * view.width; column < std::min(end * view.width, n); ++column) {
      uint32_t* top = words + column / view.width * view.panel_words + column % view.width;
      pack_column(view, top, rows[column], k_begin);
    }
  });
  return matrix;
}

}  // namespace helios
