// Embedding, RMS norm, partial sums and gated activation in float64.
#include <cmath>

#include "kernels/transformer/reference.h"

namespace helios {

void embed_reference(const EmbedArgs& args, double* out) {
  for (int64_t row = 0; row < *args.num_rows; ++row) {
    for (int64_t i = 0; i < args.hidden; ++i) {
      const int64_t token = args.tokens[row];
      out[row * args.hidden + i] = token < 0 ? 0.0 : load_element(args.table, args.dtype, token * args.hidden + i);
    }
  }
}

void rms_norm_reference(const RmsNormArgs& args, double* out) {
  for (int64_t row = 0; row < *args.num_rows; ++row) {
    const float* x = args.x + (args.row_index ? args.row_index[row] : row) * args.x_stride;
    double squares = 0;
    for (int64_t i = 0; i < args.hidden; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(args.hidden) + args.eps);
    for (int64_t i = 0; i < args.hidden; ++i) out[row * args.hidden + i] = x[i] * scale * args.weight[i];
  }
}

void add_partials_reference(const AddPartialsArgs& args, double* out) {
  const int64_t rank_stride = args.max_rows * args.hidden;
  for (int64_t i = 0; i < *args.num_rows * args.hidden; ++i) {
    double sum = args.residual[i] + (args.bias ? static_cast<double>(args.bias[i % args.hidden]) : 0.0);
    for (int rank = 0; rank < args.world; ++rank) sum += args.partials[rank * rank_stride + i];
    out[i] = sum;
  }
}

void gated_mlp_reference(const GatedMlpArgs& args, double* out) {
  for (int64_t row = 0; row < *args.num_rows; ++row) {
    for (int64_t i = 0; i < args.inner; ++i) {
      const double gate = args.gate_up[row * 2 * args.inner + i];
      const double up = args.gate_up[row * 2 * args.inner + args.inner + i];
      out[row * args.inner + i] = gate / (1.0 + std::exp(-gate)) * up;
    }
  }
}

}  // namespace helios
