// The library of matmul() on the emulated device: plain loops on the host in the stream's order, each output in the
// CPU's order of summation, so that a whole forward pass with FP32 weights has the CPU's products bit for bit. Products
// are low, so that few rows already take several.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "common/base/check.h"
#include "kernels/base/simt.h"
#include "kernels/transformer/matmul_library.h"

namespace helios {
namespace {

constexpr int64_t kHalfRows = 12, kFloatRows = 4;

void multiply_row(const RowsView& w, int64_t segment, const void* staged, int64_t row, float* out) {
  const int64_t x = row * w.segment_k, weights = segment * w.segment_elements();
  for (int64_t column = 0; column < w.padded_n; ++column) {
    float sum = 0.0f;
    for (int64_t i = 0; i < w.segment_k; ++i) {
      sum = std::fma(load_element(staged, w.dtype, x + i),
                     load_element(w.data, w.dtype, weights + column * w.segment_k + i), sum);
    }
    out[column] = sum;
  }
}

class PlainLoops final : public MatmulLibrary {
 public:
  int64_t rows(DType weights) const override { return weights == DType::kFloat32 ? kFloatRows : kHalfRows; }
  size_t workspace_bytes() const override { return 0; }
  void prepare(const RowsView& w, int64_t rows) override { prepared_.insert({w.dtype, w.padded_n, w.segment_k, rows}); }
  void multiply(const RowsView& w, const void* staged, int64_t rows, float* products, void*, void* stream) override {
    HELIOS_CHECK(prepared_.contains({w.dtype, w.padded_n, w.segment_k, rows}), w.padded_n, w.segment_k, rows);
    simt::enqueue(stream, [=] {
      for (int64_t row = 0; row < w.num_segments * rows; ++row) {
        multiply_row(w, row / rows, staged, row, products + row * w.padded_n);
      }
    });
  }

 private:
  std::set<std::tuple<DType, int64_t, int64_t, int64_t>> prepared_;
};

}  // namespace

std::shared_ptr<void> make_matmul_handle() {
  const std::shared_ptr<MatmulLibrary> library = std::make_shared<PlainLoops>();
  return library;
}

}  // namespace helios
