// matmul()'s library on CUDA: cuBLASLt. The one part of this room that no emulator runs.
//
// A library may compute a row otherwise in a product of another height. So every product has the same number of rows,
// in every graph, for decode, prefill and prompt scoring alike: a matrix is multiplied by one kernel in one shape, and
// all that varies is where in the block a row lies (X1). The algorithm follows from the weights' type and the length of
// the longest segment on any rank alone, never from the columns or the rank, and does not split k: between
// tensor-parallel degrees the bits are the same as far as an algorithm keeps one order for all tiles, which tests/gpu
// holds it to.
//
// The height is what a decode can afford: at kHalfRows a product in 16 bits still waits for memory, not for tensor
// cores. An algorithm is chosen, and held against each matrix it is for, when that matrix is loaded; while a graph is
// captured products are only enqueued.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include "common/base/check.h"
#include "kernels/transformer/matmul_library.h"

namespace helios {
namespace {

constexpr int64_t kHalfRows = 128, kFloatRows = 32;
constexpr int64_t kPlanColumns = 4096;  // what an algorithm is chosen for
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint32_t kAlignment = 16;  // bytes, of all that the library reads and writes
constexpr int kCandidates = 16;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLASLt cannot ") + what + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::kBFloat16) return CUDA_R_16BF;
  return dtype == DType::kFloat16 ? CUDA_R_16F : CUDA_R_32F;
}

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
    // FP32 weights are multiplied in FP32, never in TF32; 16-bit products are exact in FP32, where they are added.
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

/// Whether an output's sum over k is taken in one piece: split k has several parts, and what distributes k as it goes
/// says so by a number below zero or by a reduction.
bool sums_k_at_once(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  check(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written),
      "read an algorithm");
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                             sizeof reduction, &written),
        "read an algorithm");
  return (parts == 0 || parts == 1) && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

std::string shape_text(const RowsView& w, int64_t rows) {
  return std::to_string(w.num_segments) + " segments of " + std::to_string(rows) + " rows times [" +
         std::to_string(w.padded_n) + ", " + std::to_string(w.segment_k) + "], " +
         std::to_string(dtype_bytes(w.dtype)) + " bytes each";
}

/// The library's handle and the algorithms in use.
class CublasLt final : public MatmulLibrary {
 public:
  CublasLt() { check(cublasLtCreate(&handle_), "start"); }
  ~CublasLt() override { cublasLtDestroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  int64_t rows(DType weights) const override { return weights == DType::kFloat32 ? kFloatRows : kHalfRows; }
  size_t workspace_bytes() const override { return kWorkspaceBytes; }

  void prepare(const RowsView& w, int64_t rows) override {
    if (fitting_.contains(shape_of(w, rows))) return;
    const Problem problem(w.dtype, rows, w.padded_n, w.segment_k, w.num_segments);
    const cublasLtMatmulAlgo_t& algorithm = algorithm_for(w, rows);
    cublasLtMatmulHeuristicResult_t fit = {};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, problem.operation(), problem.weights().get(),
                                                          problem.staged().get(), problem.products().get(),
                                                          problem.products().get(), &algorithm, &fit);
    if (status != CUBLAS_STATUS_SUCCESS || fit.workspaceSize > kWorkspaceBytes) {
      throw std::runtime_error("cuBLASLt cannot multiply " + shape_text(w, rows) + " by the algorithm of that k: " +
                               cublasLtGetStatusString(status) + ", a workspace of " +
                               std::to_string(fit.workspaceSize) + " bytes");
    }
    fitting_.insert(shape_of(w, rows));
  }

  void multiply(const RowsView& w, const void* staged, int64_t rows, float* products, void* workspace,
                void* stream) override {
    HELIOS_CHECK(fitting_.contains(shape_of(w, rows)), w.padded_n, w.segment_k, rows);
    const Problem problem(w.dtype, rows, w.padded_n, w.segment_k, w.num_segments);
    const float one = 1.0f, zero = 0.0f;
    check(cublasLtMatmul(handle_, problem.operation(), &one, w.data, problem.weights().get(), staged,
                         problem.staged().get(), &zero, products, problem.products().get(), products,
                         problem.products().get(), &algorithm_for(w, rows), workspace, kWorkspaceBytes,
                         static_cast<cudaStream_t>(stream)),
          "multiply");
  }

 private:
  using Shape = std::tuple<DType, int64_t, int64_t, int32_t, int64_t>;  // type, columns, segment, segments, rows
  static Shape shape_of(const RowsView& w, int64_t rows) {
    return {w.dtype, w.padded_n, w.segment_k, w.num_segments, rows};
  }

  const cublasLtMatmulAlgo_t& algorithm_for(const RowsView& w, int64_t rows) {
    const auto key = std::tuple(w.dtype, w.segment_k, rows);
    const auto found = algorithms_.find(key);
    if (found != algorithms_.end()) return found->second;
    const Problem plan(w.dtype, rows, kPlanColumns, w.segment_k, 1);
    const Preference preference;
    cublasLtMatmulHeuristicResult_t candidates[kCandidates] = {};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation(), plan.weights().get(), plan.staged().get(),
                                         plan.products().get(), plan.products().get(), preference.get(), kCandidates,
                                         candidates, &count),
          ("find an algorithm for " + shape_text(w, rows)).c_str());
    for (int i = 0; i < count; ++i) {
      if (candidates[i].state == CUBLAS_STATUS_SUCCESS && sums_k_at_once(candidates[i].algo)) {
        return algorithms_.emplace(key, candidates[i].algo).first->second;
      }
    }
    throw std::runtime_error("cuBLASLt has no algorithm that sums k at once for " + shape_text(w, rows));
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<std::tuple<DType, int64_t, int64_t>, cublasLtMatmulAlgo_t> algorithms_;  // by type, segment, rows
  std::set<Shape> fitting_;  // what an algorithm was held against
};

}  // namespace

std::shared_ptr<void> make_matmul_handle() {
  const std::shared_ptr<MatmulLibrary> library = std::make_shared<CublasLt>();
  return library;
}

}  // namespace helios
