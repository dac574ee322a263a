// matmul() around a library that multiplies whole blocks of rows: inputs are staged as pieces of the weights' type, and
// products of segments and pieces are added to the result. The CUDA module links it with cuBLASLt, the emulator with
// plain loops.
//
// The library cannot read a count in device memory: rows past the step's or the graph's are zeros, and more rows are
// more products of the same height. Runs on the host while a graph is captured, and enqueues.
#include <algorithm>
#include <cstddef>

#include "kernels/transformer/matmul.h"
#include "kernels/transformer/matmul_library.h"
#include "kernels/transformer/matmul_stage.h"

namespace helios {
namespace {

constexpr int64_t kScratchAlignment = 256;  // of the library's workspace

MatmulLibrary& library_of(const PackedMatrix& w) { return *static_cast<MatmulLibrary*>(MatmulRows::handle(w).get()); }

/// Parts of the scratch, in this order.
struct ScratchBytes {
  int64_t staged, exponents, products, workspace;
  ScratchBytes(const RowsView& w, const MatmulLibrary& library)
      : staged(
            aligned(library.rows(w.dtype) * w.num_segments * w.segment_k * static_cast<int64_t>(dtype_bytes(w.dtype)))),
        exponents(aligned(library.rows(w.dtype) * w.num_segments * static_cast<int64_t>(sizeof(int32_t)))),
        products(aligned(library.rows(w.dtype) * w.num_segments * w.padded_n * static_cast<int64_t>(sizeof(float)))),
        workspace(static_cast<int64_t>(library.workspace_bytes())) {}
  int64_t total() const { return kScratchAlignment + staged + exponents + products + workspace; }
  static int64_t aligned(int64_t bytes) {
    return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  }
};

/// Rows of a product that takes `pieces` of each row of x.
int64_t product_rows(const MatmulLibrary& library, DType weights, int pieces) {
  return library.rows(weights) / pieces * pieces;
}

int pieces_of(const MatmulArgs& args, DType weights) {
  return weights == DType::kFloat32 || args.x_rounded_to == weights ? 1 : kMostPieces;
}

}  // namespace

void prepare_products(const RowsView& w, MatmulLibrary& library) {
  library.prepare(w, product_rows(library, w.dtype, 1));
  if (w.dtype != DType::kFloat32) library.prepare(w, product_rows(library, w.dtype, kMostPieces));
}

int64_t matmul_scratch_bytes(const PackedMatrix& w, int64_t, int) {
  return w.n() == 0 ? 0 : ScratchBytes(MatmulRows::view(w), library_of(w)).total();
}

void matmul(const MatmulArgs& args, void* scratch, const Launcher& on) {
  if (args.max_rows == 0 || args.w->n() == 0) return;
  const RowsView w = MatmulRows::view(*args.w);
  MatmulLibrary& library = library_of(*args.w);
  const ScratchBytes bytes(w, library);
  auto* const staged = reinterpret_cast<std::byte*>(ScratchBytes::aligned(reinterpret_cast<int64_t>(scratch)));
  auto* const exponents = reinterpret_cast<int32_t*>(staged + bytes.staged);
  auto* const products = reinterpret_cast<float*>(staged + bytes.staged + bytes.exponents);
  auto* const workspace = staged + bytes.staged + bytes.exponents + bytes.products;
  const int pieces = pieces_of(args, w.dtype);
  const int64_t block = product_rows(library, w.dtype, pieces) / pieces;
  for (int64_t first = 0; first < args.max_rows; first += block) {
    const int64_t rows = std::min(block, args.max_rows - first);
    stage_inputs({.x = args.x + first * args.x_stride,
                  .x_stride = args.x_stride,
                  .num_rows = args.num_rows,
                  .first_row = args.first_row + first,
                  .rows = rows,
                  .padded_rows = block,
                  .w = w,
                  .pieces = pieces,
                  .staged = staged,
                  .exponents = exponents},
                 on);
    library.multiply(w, staged, pieces * block, products, workspace, on.stream());
    finish_products({.products = products,
                     .num_rows = args.num_rows,
                     .first_row = args.first_row + first,
                     .rows = rows,
                     .padded_rows = block,
                     .w = w,
                     .pieces = pieces,
                     .exponents = exponents,
                     .bias = args.bias,
                     .out = args.out + first * args.out_stride,
                     .out_stride = args.out_stride},
                    on);
  }
}

}  // namespace helios
