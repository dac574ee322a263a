// Matrix products on CUDA by cuBLASLt. Part of the CUDA module; the one kernel of this room that no emulator runs.
//
// The library cannot read a count in device memory: it multiplies whole blocks of rows, of which those past the step
// are zero. Which of its algorithms it uses follows from the weights' type and the length of a segment alone, never
// from the number of rows or columns, the rank or the configuration; none splits k. So an output's order of summation
// is its position's in every graph and at every tensor-parallel degree (X1), as far as an algorithm keeps one order for
// all tiles. One algorithm for decode and prefill: planned for rows between the two.
//
// Everything here runs on the host while a graph is captured: the choice, and the enqueueing.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "kernels/transformer/matmul.h"
#include "kernels/transformer/matmul_rows.h"
#include "kernels/transformer/matmul_stage.h"

namespace helios {
namespace {

constexpr int64_t kBlockRows = 256;                      // rows that are staged and multiplied at a time
constexpr int64_t kPlanRows = 128, kPlanColumns = 4096;  // what an algorithm is chosen for
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint32_t kAlignment = 16;         // bytes, of all that the library reads and writes
constexpr int64_t kScratchAlignment = 256;  // of the library's workspace
constexpr int kCandidates = 16;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLASLt cannot ") + what + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F; }

/// A row-major [rows, columns] matrix, `batches` of them one after another; the library sees its transpose.
class Layout {
 public:
  Layout(cudaDataType_t type, int64_t rows, int64_t columns, int32_t batches) {
    check(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                     columns),
          "describe a matrix");
    const int64_t stride = rows * columns;
    check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches),
          "describe a batch");
    check(
        cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "describe a batch");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// products [segments, rows, columns] = staged [segments, rows, k] times the transpose of weights [segments, columns,
/// k].
class Problem {
 public:
  Problem(DType dtype, int64_t rows, int64_t columns, int64_t k, int32_t segments)
      : weights_(type_of(dtype), columns, k, segments),
        staged_(type_of(dtype), rows, k, segments),
        products_(CUDA_R_32F, rows, columns, segments) {
    // FP32 weights are multiplied in FP32, never in TF32.
    check(cublasLtMatmulDescCreate(
              &operation_, dtype == DType::kFloat32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describe a product");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
          "describe a product");
  }
  ~Problem() { cublasLtMatmulDescDestroy(operation_); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  cublasLtMatmulDesc_t operation() const { return operation_; }
  const Layout& weights() const { return weights_; }
  const Layout& staged() const { return staged_; }
  const Layout& products() const { return products_; }

 private:
  Layout weights_, staged_, products_;
  cublasLtMatmulDesc_t operation_ = nullptr;
};

/// What algorithms may do: one pass over k, a bounded workspace, pointers aligned to kAlignment.
class Preference {
 public:
  Preference() {
    check(cublasLtMatmulPreferenceCreate(&preference_), "make a preference");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, kAlignment);
    }
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value), "set a preference");
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

bool splits_k(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 0;
  size_t written = 0;
  check(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written),
      "read an algorithm");
  return parts > 1;
}

/// The library's handle and the algorithms in use. Thread: whoever prepares the core.
class Library {
 public:
  Library() { check(cublasLtCreate(&handle_), "start"); }
  ~Library() { cublasLtDestroy(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void multiply(const RowsView& w, const void* staged, int64_t rows, float* products, void* workspace,
                cudaStream_t stream) {
    const Problem problem(w.dtype, rows, w.padded_n, w.segment_k, w.num_segments);
    const cublasLtMatmulAlgo_t& algorithm = algorithm_for(w);
    cublasLtMatmulHeuristicResult_t fit = {};
    check(cublasLtMatmulAlgoCheck(handle_, problem.operation(), problem.weights().get(), problem.staged().get(),
                                  problem.products().get(), problem.products().get(), &algorithm, &fit),
          "apply its algorithm to a product of another size");
    HELIOS_CHECK(fit.workspaceSize <= kWorkspaceBytes, fit.workspaceSize);
    const float one = 1.0f, zero = 0.0f;
    check(cublasLtMatmul(handle_, problem.operation(), &one, w.data, problem.weights().get(), staged,
                         problem.staged().get(), &zero, products, problem.products().get(), products,
                         problem.products().get(), &algorithm, workspace, kWorkspaceBytes, stream),
          "multiply");
  }

 private:
  const cublasLtMatmulAlgo_t& algorithm_for(const RowsView& w) {
    const auto key = std::pair(w.dtype, w.segment_k);
    const auto found = algorithms_.find(key);
    if (found != algorithms_.end()) return found->second;
    const Problem plan(w.dtype, kPlanRows, kPlanColumns, w.segment_k, 1);
    const Preference preference;
    cublasLtMatmulHeuristicResult_t candidates[kCandidates] = {};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation(), plan.weights().get(), plan.staged().get(),
                                         plan.products().get(), plan.products().get(), preference.get(), kCandidates,
                                         candidates, &count),
          "find an algorithm");
    for (int i = 0; i < count; ++i) {
      if (candidates[i].state == CUBLAS_STATUS_SUCCESS && !splits_k(candidates[i].algo)) {
        return algorithms_.emplace(key, candidates[i].algo).first->second;
      }
    }
    throw std::runtime_error("cuBLASLt has no algorithm without split k for k = " + std::to_string(w.segment_k));
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<std::pair<DType, int64_t>, cublasLtMatmulAlgo_t> algorithms_;
};

int most_pieces(DType dtype) { return dtype == DType::kBFloat16 ? kMostPieces : 1; }

/// Parts of the scratch, in this order.
struct ScratchBytes {
  int64_t staged, products;
  ScratchBytes(const RowsView& w, int64_t rows)
      : staged(aligned(rows * most_pieces(w.dtype) * w.num_segments * w.segment_k *
                       static_cast<int64_t>(dtype_bytes(w.dtype)))),
        products(
            aligned(rows * most_pieces(w.dtype) * w.num_segments * w.padded_n * static_cast<int64_t>(sizeof(float)))) {}
  int64_t total() const { return kScratchAlignment + staged + products + static_cast<int64_t>(kWorkspaceBytes); }
  static int64_t aligned(int64_t bytes) {
    return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  }
};

}  // namespace

std::shared_ptr<void> make_matmul_handle() { return std::make_shared<Library>(); }

int64_t matmul_scratch_bytes(const PackedMatrix& w, int64_t max_rows, int) {
  if (w.n() == 0) return 0;
  return ScratchBytes(MatmulRows::view(w), std::min(max_rows, kBlockRows)).total();
}

void matmul(const MatmulArgs& args, void* scratch, const Launcher& on) {
  if (args.max_rows == 0 || args.w->n() == 0) return;
  const RowsView w = MatmulRows::view(*args.w);
  HELIOS_CHECK(w.segment_k > 0, "a rank without columns multiplies nothing");
  auto& library = *static_cast<Library*>(MatmulRows::handle(*args.w).get());
  const ScratchBytes bytes(w, std::min(args.max_rows, kBlockRows));
  auto* const staged = reinterpret_cast<std::byte*>(ScratchBytes::aligned(reinterpret_cast<int64_t>(scratch)));
  auto* const products = reinterpret_cast<float*>(staged + bytes.staged);
  auto* const workspace = staged + bytes.staged + bytes.products;
  const int pieces = args.bf16_x ? 1 : most_pieces(w.dtype);
  for (int64_t first = 0; first < args.max_rows; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, args.max_rows - first);
    stage_inputs({.x = args.x + first * args.x_stride,
                  .x_stride = args.x_stride,
                  .num_rows = args.num_rows,
                  .first_row = args.first_row + first,
                  .rows = rows,
                  .w = w,
                  .pieces = pieces,
                  .staged = staged},
                 on);
    library.multiply(w, staged, pieces * rows, products, workspace, static_cast<cudaStream_t>(on.stream()));
    finish_products({.products = products,
                     .num_rows = args.num_rows,
                     .first_row = args.first_row + first,
                     .rows = rows,
                     .w = w,
                     .pieces = pieces,
                     .bias = args.bias,
                     .out = args.out + first * args.out_stride,
                     .out_stride = args.out_stride},
                    on);
  }
}

}  // namespace helios
