// Matrix product in float64, straight from the definition.
#include "kernels/transformer/matmul.h"

namespace helios {

void matmul_reference(const float* x, int64_t m, int64_t k, const double* w, int64_t n, const float* bias,
                      double* out) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += static_cast<double>(x[row * k + i]) * w[column * k + i];
      out[row * n + column] = sum + (bias ? bias[column] : 0.0);
    }
  }
}

}  // namespace helios
