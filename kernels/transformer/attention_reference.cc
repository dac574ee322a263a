// Rotary embedding and attention over a paged cache in float64: one softmax over all visible keys, no blocks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/transformer/reference.h"

namespace helios {
namespace {

void norm_and_rotate(double* x, int64_t dim, const float* norm, float eps, const float* cos, const float* sin) {
  if (norm) {
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) squares += x[i] * x[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) x[i] *= scale * norm[i];
  }
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double a = x[i], b = x[i + dim / 2];
    x[i] = a * cos[i] - b * sin[i];
    x[i + dim / 2] = b * cos[i] + a * sin[i];
  }
}

/// Where a slot's position lies in the cache.
struct Place {
  int64_t block, offset;
};
Place place_of(const AttentionRows& rows, int64_t slot, int64_t position) {
  return {rows.block_tables[slot * rows.max_blocks + position / kKvBlockSize], position % kKvBlockSize};
}

}  // namespace

void rope_reference(const RopeAndCacheArgs& args, double* out) {
  const int64_t dim = args.shape.head_dim, rotated = args.shape.q_heads + args.shape.kv_heads;
  const int64_t width = (rotated + args.shape.kv_heads) * dim;
  for (int64_t row = 0; row < *args.rows.num_rows; ++row) {
    const float* x = args.qkv + row * args.qkv_stride;
    std::copy(x, x + width, out + row * width);
    const int64_t position = args.rows.positions[row];
    if (position < 0) continue;
    for (int64_t h = 0; h < rotated; ++h) {
      norm_and_rotate(out + row * width + h * dim, dim, h < args.shape.q_heads ? args.q_norm : args.k_norm,
                      args.norm_eps, args.rope.cos + position * (dim / 2), args.rope.sin + position * (dim / 2));
    }
  }
}

void attention_reference(const AttentionArgs& args, double* out) {
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim;
  std::fill(out, out + *args.rows.num_rows * shape.q_heads * dim, 0.0);
  for (int64_t row = 0; row < *args.rows.num_rows; ++row) {
    const int64_t position = args.rows.positions[row], slot = args.rows.slots[row];
    if (position < 0) continue;
    const int64_t first = shape.window > 0 ? std::max<int64_t>(position - shape.window + 1, 0) : 0;
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const float* q = args.qkv + row * args.qkv_stride + h * dim;
      std::vector<double> scores;
      for (int64_t key = first; key <= position; ++key) {
        const auto [block, offset] = place_of(args.rows, slot, key);
        const int64_t k = (block * shape.kv_heads + shape.kv_of_q[h]) * dim * kKvBlockSize + offset;
        double score = 0;
        for (int64_t i = 0; i < dim; ++i) {
          score += static_cast<double>(q[i]) * load_element(args.cache.keys, args.cache.dtype, k + i * kKvBlockSize);
        }
        scores.push_back(score * shape.scale);
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double mass = 0;
      for (double& score : scores) mass += score = std::exp(score - max);
      for (int64_t key = first; key <= position; ++key) {
        const auto [block, offset] = place_of(args.rows, slot, key);
        const int64_t v = ((block * shape.kv_heads + shape.kv_of_q[h]) * kKvBlockSize + offset) * dim;
        for (int64_t i = 0; i < dim; ++i) {
          out[(row * shape.q_heads + h) * dim + i] +=
              scores[key - first] / mass * load_element(args.cache.values, args.cache.dtype, v + i);
        }
      }
    }
  }
}

}  // namespace helios
