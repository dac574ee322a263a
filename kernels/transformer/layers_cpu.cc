// Embedding, RMS norm, partial sums and the gated activation, vectorised. Mapping: threads split rows, or the elements
// of all rows where each stands alone; every element's operations and their order are fixed (X1).
#include "kernels/transformer/layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/transformer/embedding_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer/layers_cpu.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/transformer/row_ops-inl.h"
// After the row operations: this header has its own per-target guard.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {

/// A row from element `begin` on, through the table's source.
void CopyRow(const EmbedArgs& args, int64_t begin, float* out) {
  constexpr int64_t kPiece = 1024;
  alignas(64) std::byte piece[kPiece * sizeof(float)];
  const auto element = static_cast<int64_t>(dtype_bytes(args.dtype));
  const auto* from = static_cast<const std::byte*>(args.table) + begin * element;
  for (int64_t i = 0; i < args.hidden; i += kPiece) {
    const int64_t count = std::min(kPiece, args.hidden - i);
    args.source->copy(from + i * element, static_cast<size_t>(count * element), piece);
    for (int64_t j = 0; j < count; ++j) out[i + j] = load_element(piece, args.dtype, j);
  }
}

void EmbedRow(const EmbedArgs& args, int64_t row) {
  float* out = args.out + row * args.hidden;
  const int64_t begin = static_cast<int64_t>(args.tokens[row]) * args.hidden;
  if (args.source) {
    CopyRow(args, begin, out);
  } else {
    for (int64_t i = 0; i < args.hidden; ++i) out[i] = load_element(args.table, args.dtype, begin + i);
  }
  if (args.round_to == DType::kFloat32) return;
  ForEach(args.hidden, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
    hn::StoreU(RoundTo(d, hn::LoadU(d, out + i), args.round_to), d, out + i);
  });
}

/// The tree over ranks for elements at `p`, p + stride, ...
template <class D>
HWY_INLINE hn::Vec<D> PartialTree(D d, const float* p, int64_t stride, int world) {
  if (world == 1) return hn::LoadU(d, p);
  const int half = world / 2;
  if (world == 2) return hn::Add(hn::LoadU(d, p), hn::LoadU(d, p + stride));
  const auto pair = [&](int rank) HELIOS_INLINE_LAMBDA {
    return hn::Add(hn::LoadU(d, p + rank * stride), hn::LoadU(d, p + (rank + 1) * stride));
  };
  const auto quad = [&](int rank) HELIOS_INLINE_LAMBDA { return hn::Add(pair(rank), pair(rank + 2)); };
  return half == 2 ? quad(0) : hn::Add(quad(0), quad(4));
}

/// silu(g) * u with exp of a value that is never positive, so that nothing overflows; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GatedValue(D d, V gate, V up) {
  const V e = hn::Exp(d, hn::Neg(hn::Abs(gate)));
  const V one = hn::Set(d, 1.0f);
  const V numerator = hn::IfThenElse(hn::Lt(gate, hn::Zero(d)), e, one);
  return hn::Mul(hn::Mul(gate, hn::Div(numerator, hn::Add(one, e))), up);
}

}  // namespace

void EmbedRows(const EmbedArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (args.tokens[row] >= 0) {
      EmbedRow(args, row);
    } else {
      std::memset(args.out + row * args.hidden, 0, static_cast<size_t>(args.hidden) * sizeof(float));
    }
  }
}

void NormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = args.row_index ? args.row_index[row] : row;
    NormRow(args.x + from * args.x_stride, args.weight, args.eps, args.hidden, args.out + row * args.out_stride,
            args.round_to);
  }
}

void AddPartialRows(const AddPartialsArgs& args, int64_t begin, int64_t end) {
  const int64_t stride = args.max_rows * args.hidden;
  for (int64_t row = begin; row < end; ++row) {
    const float* partials = args.partials + row * args.hidden;
    float* residual = args.residual + row * args.hidden;
    ForEach(args.hidden, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      auto sum = PartialTree(d, partials + i, stride, args.world);
      if (args.bias) sum = hn::Add(sum, hn::LoadU(d, args.bias + i));
      hn::StoreU(hn::Add(hn::LoadU(d, residual + i), sum), d, residual + i);
    });
  }
}

void GatedRows(const GatedMlpArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = args.gate_up + row * 2 * args.inner;
    const float* up = gate + args.inner;
    float* out = args.out + row * args.inner;
    ForEach(args.inner, [&](auto d, int64_t i) HELIOS_INLINE_LAMBDA {
      const auto value = GatedValue(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i));
      hn::StoreU(RoundTo(d, value, args.round_to), d, out + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {

HWY_EXPORT(EmbedRows);
HWY_EXPORT(NormRows);
HWY_EXPORT(AddPartialRows);
HWY_EXPORT(GatedRows);

namespace {

constexpr int64_t kElementsWorthAFork = 16384;

int64_t rows_a_piece(int64_t row_elements) {
  return std::max<int64_t>(1, kElementsWorthAFork / std::max<int64_t>(row_elements, 1));
}

}  // namespace

EmbeddingTable EmbeddingTable::prepare(const void* data, DType dtype, int64_t, WeightStore&, const ByteSource* source) {
  EmbeddingTable table;
  table.source_ = source;
  table.data_ = data;
  table.dtype_ = dtype;
  return table;
}

void embed(const EmbedArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  pool.parallel_for(*args.num_rows, rows_a_piece(args.hidden), [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(EmbedRows)(args, begin, end);
  });
}

void rms_norm(const RmsNormArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  pool.parallel_for(*args.num_rows, rows_a_piece(args.hidden), [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormRows)(args, begin, end);
  });
}

void add_partials(const AddPartialsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  HELIOS_CHECK(args.world == 1 || args.world == 2 || args.world == 4 || args.world == 8, args.world);
  if (args.counters && args.world > 1) args.counters->partial_sum_words += *args.num_rows * args.hidden;
  pool.parallel_for(*args.num_rows, rows_a_piece(args.hidden), [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddPartialRows)(args, begin, end);
  });
}

void gated_mlp(const GatedMlpArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  pool.parallel_for(*args.num_rows, rows_a_piece(args.inner), [&args](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GatedRows)(args, begin, end);
  });
}

}  // namespace helios
#endif  // HWY_ONCE
