#include "worker/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "kernels/transformer/layers.h"

namespace helios {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// Cuts one allocation into aligned parts; run once to measure, once to place.
struct Carver {
  std::byte* base = nullptr;
  int64_t used = 0;
  std::byte* bytes(int64_t count) {
    std::byte* at = base ? base + used : nullptr;
    used += aligned(count);
    return at;
  }
  float* floats(int64_t count) { return reinterpret_cast<float*>(bytes(count * static_cast<int64_t>(sizeof(float)))); }
};

/// Every row-parallel product's input may be missing on a rank; the others are as wide as hidden.
bool owns_all_columns(const RankShape& shape) { return shape.num_q() > 0 && shape.inner.size() > 0; }

}  // namespace

Transformer::Transformer(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights,
                         const KvCache& cache, const StepRows& rows, int64_t max_rows, int max_positions,
                         DType round_to, Communicator& communicator, StepCounters* counters, Backend& backend)
    : config_(config),
      shape_(shape),
      weights_(weights),
      cache_(cache),
      rows_(rows),
      round_to_(round_to),
      communicator_(communicator),
      counters_(counters) {
  upload_tables(max_positions, backend);
  const int64_t q = int64_t{shape.num_q()} * config.head_dim, kv = int64_t{shape.num_kv()} * config.head_dim;
  const int64_t inner = shape.inner.size();
  const int64_t scratch = scratch_bytes(max_rows, backend.host_pool().num_threads());
  const auto carve = [&](std::byte* base) {
    Carver carver{base};
    residual_ = carver.floats(max_rows * config.hidden);
    normed_ = carver.floats(max_rows * config.hidden);
    qkv_ = carver.floats(max_rows * (q + 2 * kv));
    attention_ = carver.floats(max_rows * q);
    partials_ = carver.floats(shape.world * max_rows * config.hidden);
    zeros_ = carver.floats(owns_all_columns(shape) ? 0 : max_rows * config.hidden);
    gate_up_ = carver.floats(max_rows * 2 * inner);
    gated_ = carver.floats(max_rows * inner);
    scratch_ = carver.bytes(scratch);
    return carver.used;
  };
  workspace_ = backend.device_memory(static_cast<size_t>(carve(nullptr)));
  carve(workspace_.as<std::byte>());
}

void Transformer::upload_tables(int max_positions, Backend& backend) {
  std::vector<float> cosines, sines;
  const std::vector<double> frequencies = inverse_frequencies(config_.rope, config_.head_dim);
  for (int p = 0; p < max_positions; ++p) {
    for (const double f : frequencies) {
      cosines.push_back(static_cast<float>(std::cos(p * f)));
      sines.push_back(static_cast<float>(std::sin(p * f)));
    }
  }
  const int64_t rope_bytes = aligned(static_cast<int64_t>(cosines.size() * sizeof(float)));
  std::vector<std::byte> image(static_cast<size_t>(2 * rope_bytes) + shape_.kv_of_q.size() * sizeof(int32_t));
  std::memcpy(image.data(), cosines.data(), cosines.size() * sizeof(float));
  std::memcpy(image.data() + rope_bytes, sines.data(), sines.size() * sizeof(float));
  std::ranges::copy(std::as_bytes(std::span(shape_.kv_of_q)), image.begin() + 2 * rope_bytes);  // empty without heads
  tables_ = device_copy(backend, image.data(), image.size());
  const std::byte* base = tables_.as<std::byte>();
  rope_ = {.cos = reinterpret_cast<const float*>(base), .sin = reinterpret_cast<const float*>(base + rope_bytes)};
  kv_of_q_ = reinterpret_cast<const int32_t*>(base + 2 * rope_bytes);
}

/// The largest of what products and attention need; they follow each other.
int64_t Transformer::scratch_bytes(int64_t max_rows, int num_threads) const {
  int64_t bytes = attention_scratch_bytes(attention_shape(0), attention_rows(max_rows), num_threads);
  for (const LayerWeights& w : weights_.layers) {
    for (const PackedMatrix* m : {&w.qkv, &w.o, &w.gate_up, &w.down}) {
      bytes = std::max(bytes, matmul_scratch_bytes(*m, max_rows, num_threads));
    }
  }
  return bytes;
}

AttentionShape Transformer::attention_shape(int layer) const {
  return {.q_heads = shape_.num_q(),
          .kv_heads = shape_.num_kv(),
          .head_dim = config_.head_dim,
          .kv_of_q = kv_of_q_,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
          .window = config_.windows[static_cast<size_t>(layer)]};
}

AttentionRows Transformer::attention_rows(int64_t max_rows) const {
  return {.positions = rows_.positions,
          .slots = rows_.slots,
          .block_tables = rows_.block_tables,
          .max_blocks = rows_.max_blocks,
          .num_rows = rows_.num_rows,
          .max_rows = max_rows};
}

void Transformer::record(Stream& stream, int64_t max_rows) {
  stream.launch([=, this](const Launcher& on) {
    embed({.table = weights_.embedding.data(),
           .dtype = weights_.embedding.dtype(),
           .hidden = config_.hidden,
           .tokens = rows_.tokens,
           .num_rows = rows_.num_rows,
           .max_rows = max_rows,
           .out = residual_,
           .round_to = round_to_,
           .source = weights_.embedding.source()},
          on);
  });
  for (int layer = 0; layer < config_.num_layers; ++layer) record_layer(stream, layer, max_rows);
}

void Transformer::record_layer(Stream& stream, int layer, int64_t max_rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  record_norm(stream, w.input_norm, max_rows);
  if (shape_.num_q() > 0) {
    record_product(stream, w.qkv, normed_, w.qkv_bias, qkv_, max_rows);
    record_attention(stream, layer, max_rows);
  }
  record_partial_sum(stream, w.o, attention_, w.o_bias, max_rows);

  record_norm(stream, w.post_norm, max_rows);
  if (const int64_t inner = shape_.inner.size(); inner > 0) {
    record_product(stream, w.gate_up, normed_, w.gate_up_bias, gate_up_, max_rows);
    stream.launch([=, this](const Launcher& on) {
      gated_mlp({.gate_up = gate_up_,
                 .num_rows = rows_.num_rows,
                 .max_rows = max_rows,
                 .inner = inner,
                 .out = gated_,
                 .round_to = round_to_},
                on);
    });
  }
  record_partial_sum(stream, w.down, gated_, w.down_bias, max_rows);
}

void Transformer::record_norm(Stream& stream, const float* weight, int64_t max_rows) {
  stream.launch([=, this](const Launcher& on) {
    rms_norm({.x = residual_,
              .x_stride = config_.hidden,
              .weight = weight,
              .eps = config_.rms_eps,
              .num_rows = rows_.num_rows,
              .max_rows = max_rows,
              .hidden = config_.hidden,
              .out = normed_,
              .out_stride = config_.hidden,
              .round_to = round_to_},
             on);
  });
}

void Transformer::record_product(Stream& stream, const PackedMatrix& w, const float* x, const float* bias, float* out,
                                 int64_t max_rows) {
  stream.launch([=, this, &w](const Launcher& on) {
    matmul({.x = x,
            .x_stride = w.k(),
            .w = &w,
            .bias = bias,
            .out = out,
            .out_stride = w.n(),
            .num_rows = rows_.num_rows,
            .max_rows = max_rows,
            .x_rounded_to = round_to_},
           scratch_, on);
  });
}

void Transformer::record_attention(Stream& stream, int layer, int64_t max_rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t q = int64_t{shape_.num_q()} * config_.head_dim;
  const int64_t qkv = q + 2 * int64_t{shape_.num_kv()} * config_.head_dim;
  stream.launch([=, this, &w](const Launcher& on) {
    rope_and_cache({.qkv = qkv_,
                    .qkv_stride = qkv,
                    .shape = attention_shape(layer),
                    .rows = attention_rows(max_rows),
                    .q_norm = w.q_norm,
                    .k_norm = w.k_norm,
                    .norm_eps = config_.rms_eps,
                    .rope = rope_,
                    .cache = cache_.layer(layer),
                    .round_to = round_to_},
                   on);
  });
  stream.launch([=, this](const Launcher& on) {
    paged_attention({.qkv = qkv_,
                     .qkv_stride = qkv,
                     .shape = attention_shape(layer),
                     .rows = attention_rows(max_rows),
                     .cache = cache_.layer(layer),
                     .out = attention_,
                     .out_stride = q,
                     .round_to = round_to_},
                    scratch_, on);
  });
}

/// This rank's product, the exchange, and the canonical sum into the residual stream, or a sum by the group's library
/// if it was made for that. A rank without columns contributes exact zeros, the value of an empty segment in the tree.
void Transformer::record_partial_sum(Stream& stream, const PackedMatrix& w, const float* x, const float* bias,
                                     int64_t max_rows) {
  const int64_t hidden = config_.hidden;
  const bool added = shape_.world > 1 && communicator_.adds_rows();
  float* const own = w.k() > 0 ? partials_ + (added ? 0 : shape_.rank.value * max_rows * hidden) : zeros_;
  if (w.k() > 0) record_product(stream, w, x, nullptr, own, max_rows);
  stream.launch([=, this](const Launcher& on) {
    if (added) {
      communicator_.add_rows(own, partials_, static_cast<size_t>(hidden), max_rows);
    } else if (shape_.world > 1) {
      communicator_.all_gather_rows(own, partials_, static_cast<size_t>(hidden) * sizeof(float), rows_.num_rows,
                                    max_rows);
    }
    add_partials({.partials = partials_,
                  .world = added ? 1 : shape_.world,
                  .num_rows = rows_.num_rows,
                  .max_rows = max_rows,
                  .hidden = hidden,
                  .bias = bias,
                  .residual = residual_,
                  .counters = counters_},
                 on);
  });
}

}  // namespace helios
