#include "worker/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

const float* data_or_null(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

}  // namespace

Transformer::Transformer(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights,
                         const KvCache& cache, const StepRows& rows, int64_t max_rows, int max_positions,
                         bool round_bf16, Communicator& communicator, Backend& backend)
    : config_(config),
      shape_(shape),
      weights_(weights),
      cache_(cache),
      rows_(rows),
      round_bf16_(round_bf16),
      communicator_(communicator) {
  const std::vector<double> frequencies = inverse_frequencies(config.rope, config.head_dim);
  for (int p = 0; p < max_positions; ++p) {
    for (const double f : frequencies) {
      rope_cos_.push_back(static_cast<float>(std::cos(p * f)));
      rope_sin_.push_back(static_cast<float>(std::sin(p * f)));
    }
  }
  const int64_t q = int64_t{shape.num_q()} * config.head_dim, kv = int64_t{shape.num_kv()} * config.head_dim;
  const int64_t inner = shape.inner.size();
  const int64_t max_k = std::max({config.hidden, q, inner});
  const int64_t scratch = std::max(matmul_scratch_bytes(max_rows, max_k, backend.host_pool().num_threads()),
                                   attention_scratch_bytes(attention_shape(0), backend.host_pool().num_threads()));
  const auto carve = [&](std::byte* base) {
    Carver carver{base};
    residual_ = carver.floats(max_rows * config.hidden);
    normed_ = carver.floats(max_rows * config.hidden);
    qkv_ = carver.floats(max_rows * (q + 2 * kv));
    attention_ = carver.floats(max_rows * q);
    partials_ = carver.floats(shape.world * max_rows * config.hidden);
    gate_up_ = carver.floats(max_rows * 2 * inner);
    gated_ = carver.floats(max_rows * inner);
    scratch_ = carver.bytes(scratch);
    return carver.used;
  };
  workspace_ = backend.device_memory(static_cast<size_t>(carve(nullptr)));
  carve(workspace_.as<std::byte>());
}

AttentionShape Transformer::attention_shape(int layer) const {
  return {.q_heads = shape_.num_q(),
          .kv_heads = shape_.num_kv(),
          .head_dim = config_.head_dim,
          .kv_of_q = shape_.kv_of_q.data(),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
          .window = config_.windows[static_cast<size_t>(layer)]};
}

AttentionRows Transformer::attention_rows() const {
  return {.positions = rows_.positions,
          .slots = rows_.slots,
          .block_tables = rows_.block_tables,
          .max_blocks = rows_.max_blocks,
          .rows = *rows_.num_rows};
}

float* Transformer::own_partial() const { return partials_ + shape_.rank.value * *rows_.num_rows * config_.hidden; }

void Transformer::record(Stream& stream) {
  stream.launch([this](const Launcher& on) {
    embed({.table = weights_.embedding.data,
           .dtype = weights_.embedding.dtype,
           .hidden = config_.hidden,
           .tokens = rows_.tokens,
           .rows = *rows_.num_rows,
           .out = residual_,
           .round_bf16 = round_bf16_},
          on);
  });
  for (int layer = 0; layer < config_.num_layers; ++layer) record_layer(stream, layer);
}

void Transformer::record_layer(Stream& stream, int layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden, inner = shape_.inner.size();
  const int64_t q = int64_t{shape_.num_q()} * config_.head_dim;
  const int64_t qkv = q + 2 * int64_t{shape_.num_kv()} * config_.head_dim;
  const auto norm = [this, hidden](const std::vector<float>& weight, const Launcher& on) {
    rms_norm({.x = residual_,
              .x_stride = hidden,
              .weight = weight.data(),
              .eps = config_.rms_eps,
              .rows = *rows_.num_rows,
              .hidden = hidden,
              .out = normed_,
              .out_stride = hidden,
              .round_bf16 = round_bf16_},
             on);
  };
  const auto product = [this](const PackedMatrix& m, const float* x, const float* bias, float* out,
                              const Launcher& on) {
    matmul({.x = x, .x_stride = m.k(), .w = &m, .bias = bias, .out = out, .out_stride = m.n(), .m = *rows_.num_rows},
           scratch_, on);
  };
  // A rank without columns contributes exact zeros, the value of an empty segment in the tree.
  const auto partial_product = [this, hidden, product](const PackedMatrix& m, const float* x, const Launcher& on) {
    if (m.k() > 0) {
      product(m, x, nullptr, own_partial(), on);
    } else {
      std::memset(own_partial(), 0, static_cast<size_t>(*rows_.num_rows * hidden) * sizeof(float));
    }
  };

  stream.launch([norm, &w](const Launcher& on) { norm(w.input_norm, on); });
  if (q > 0) {
    stream.launch(
        [this, product, &w](const Launcher& on) { product(w.qkv, normed_, data_or_null(w.qkv_bias), qkv_, on); });
    stream.launch([this, &w, qkv, layer](const Launcher& on) {
      rope_and_cache({.qkv = qkv_,
                      .qkv_stride = qkv,
                      .shape = attention_shape(layer),
                      .rows = attention_rows(),
                      .q_norm = data_or_null(w.q_norm),
                      .k_norm = data_or_null(w.k_norm),
                      .norm_eps = config_.rms_eps,
                      .rope = {.cos = rope_cos_.data(), .sin = rope_sin_.data()},
                      .cache = cache_.layer(layer),
                      .round_bf16 = round_bf16_},
                     on);
    });
    stream.launch([this, q, qkv, layer](const Launcher& on) {
      paged_attention({.qkv = qkv_,
                       .qkv_stride = qkv,
                       .shape = attention_shape(layer),
                       .rows = attention_rows(),
                       .cache = cache_.layer(layer),
                       .out = attention_,
                       .out_stride = q,
                       .round_bf16 = round_bf16_},
                      scratch_, on);
    });
  }
  stream.launch([this, partial_product, &w](const Launcher& on) { partial_product(w.o, attention_, on); });
  stream.launch([this, &w](const Launcher& on) { exchange_and_add(w.o_bias, on); });

  stream.launch([norm, &w](const Launcher& on) { norm(w.post_norm, on); });
  if (inner > 0) {
    stream.launch([this, product, &w](const Launcher& on) {
      product(w.gate_up, normed_, data_or_null(w.gate_up_bias), gate_up_, on);
    });
    stream.launch([this, inner](const Launcher& on) {
      gated_mlp(
          {.gate_up = gate_up_, .rows = *rows_.num_rows, .inner = inner, .out = gated_, .round_bf16 = round_bf16_}, on);
    });
  }
  stream.launch([this, partial_product, &w](const Launcher& on) { partial_product(w.down, gated_, on); });
  stream.launch([this, &w](const Launcher& on) { exchange_and_add(w.down_bias, on); });
}

void Transformer::exchange_and_add(const std::vector<float>& bias, const Launcher& on) {
  const int64_t rows = *rows_.num_rows;
  const auto words = static_cast<size_t>(rows * config_.hidden);
  if (words == 0) return;  // on every rank alike
  if (shape_.world > 1) {
    communicator_.all_gather_words<float>({own_partial(), words},
                                          {partials_, words * static_cast<size_t>(shape_.world)});
    words_exchanged_ += static_cast<int64_t>(words);
  }
  add_partials({.partials = partials_,
                .world = shape_.world,
                .rows = rows,
                .hidden = config_.hidden,
                .bias = data_or_null(bias),
                .residual = residual_},
               on);
}

}  // namespace helios
