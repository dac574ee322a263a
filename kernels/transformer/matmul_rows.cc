// Weights for a device with memory of its own: arranged on the host in pieces, then uploaded. Thread: the loader's,
// with its pool.
#include "kernels/transformer/matmul_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/transformer/embedding_table.h"
#include "kernels/transformer/matmul_library.h"
#include "kernels/transformer/source_rows.h"

namespace helios {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // of host memory at a time

constexpr int64_t round_up(int64_t value) { return (value + kRowsPadding - 1) / kRowsPadding * kRowsPadding; }

/// Elements [begin, end) of a source row, as the stored type.
void convert(const SourceRow& row, int64_t begin, int64_t end, DType stored, std::byte* to) {
  if (begin == end) return;
  if (row.dtype == stored) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(stored));
    std::memcpy(to, static_cast<const std::byte*>(row.data) + begin * bytes,
                static_cast<size_t>((end - begin) * bytes));
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const float value = row.value(i);
    if (stored == DType::kBFloat16) {
      reinterpret_cast<uint16_t*>(to)[i - begin] = float_to_bf16(value);
    } else if (stored == DType::kFloat16) {
      reinterpret_cast<uint16_t*>(to)[i - begin] = float_to_f16(value);
    } else {
      reinterpret_cast<float*>(to)[i - begin] = value;
    }
  }
}

}  // namespace

bool PackedMatrix::holds_eight_bits() { return false; }

RowsView MatmulRows::view(const PackedMatrix& matrix) {
  RowsView view;
  view.n = matrix.n_;
  view.k = matrix.k_;
  view.padded_n = round_up(matrix.n_);
  view.num_segments = static_cast<int32_t>(matrix.segments_.size()) - 1;
  // At least so many zeros where there is no column at all: a library multiplies something.
  view.segment_k = std::max(kRowsPadding, round_up(matrix.longest_segment_));
  std::copy(matrix.segments_.begin(), matrix.segments_.end(), view.segments.begin());
  for (int32_t s = 0; s < view.num_segments; ++s) {
    view.segment_k = std::max(view.segment_k, round_up(view.segments[s + 1] - view.segments[s]));
  }
  view.dtype = matrix.dtype_;
  view.data = matrix.storage_.data();
  return view;
}

PackedMatrix PackedMatrix::pack(std::span<const WeightRows> parts, int64_t k_begin, int64_t k_end,
                                std::span<const int64_t> segments, DType stored, WeightStore& store,
                                int64_t longest_segment) {
  check_packing(k_begin, k_end, segments, kRowsMaxSegments);
  HELIOS_CHECK(!is_eight_bit(stored));
  const std::vector<SourceRow> rows = source_rows(parts);
  PackedMatrix matrix;
  matrix.n_ = static_cast<int64_t>(rows.size());
  matrix.k_ = k_end - k_begin;
  matrix.dtype_ = stored;
  matrix.segments_.assign(segments.begin(), segments.end());
  matrix.longest_segment_ = longest_segment;
  if (!store.matmul_handle) store.matmul_handle = make_matmul_handle();
  matrix.handle_ = store.matmul_handle;
  const RowsView view = MatmulRows::view(matrix);
  prepare_products(view, *static_cast<MatmulLibrary*>(matrix.handle_.get()));
  const auto row_bytes = view.segment_k * static_cast<int64_t>(dtype_bytes(stored));
  matrix.storage_ = store.allocate(static_cast<size_t>(view.num_segments * view.padded_n * row_bytes));

  const int64_t piece_rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> piece;
  for (int32_t s = 0; s < view.num_segments; ++s) {
    for (int64_t first = 0; first < matrix.n_; first += piece_rows) {
      const int64_t count = std::min(piece_rows, matrix.n_ - first);
      piece.assign(static_cast<size_t>(count * row_bytes), std::byte{});
      store.pool().parallel_for(count, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          convert(rows[static_cast<size_t>(first + r)], k_begin + view.segments[s], k_begin + view.segments[s + 1],
                  stored, piece.data() + r * row_bytes);
        }
      });
      store.upload(matrix.storage_.as<std::byte>() + (s * view.padded_n + first) * row_bytes, piece.data(),
                   piece.size());
    }
  }
  return matrix;
}

EmbeddingTable EmbeddingTable::prepare(const void* data, DType dtype, int64_t elements, WeightStore& store,
                                       const ByteSource*) {
  EmbeddingTable table;
  table.dtype_ = dtype;
  table.storage_ = store.allocate(static_cast<size_t>(elements) * dtype_bytes(dtype));
  store.upload(table.storage_.data(), data, table.storage_.bytes());
  table.data_ = table.storage_.data();
  return table;
}

}  // namespace helios
