// The embedded model's forward pass over kernels: live rows in, residual stream out, for one rank's shard.
//
// Built once with fixed buffers, then recorded into graphs. The residual stream is FP32 and whole on every rank; each
// layer exchanges its two partial sums by all-gather and adds them in the canonical tree (X1). Thread: the rank's
// compute stream.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/launcher.h"
#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"
#include "worker/model/kv_cache.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/model/step_rows.h"
#include "worker/model/weights.h"

namespace helios {

class Transformer {
 public:
  /// Borrows everything for its life. `max_rows` bounds the live rows of a step, `max_positions` the positions.
  /// `round_bf16` rounds each matrix input once. Throws DeviceError.
  Transformer(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const KvCache& cache,
              const StepRows& rows, int64_t max_rows, int max_positions, bool round_bf16, Communicator& communicator,
              Backend& backend);

  /// Records embedding and every layer into the stream's capture.
  void record(Stream& stream);

  /// [rows, hidden] after the last layer, before the final norm.
  const float* residual() const { return residual_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_.bytes()); }
  /// 32-bit words that this rank sent in partial sums.
  int64_t words_exchanged() const { return words_exchanged_; }

 private:
  void record_layer(Stream& stream, int layer);
  void exchange_and_add(const std::vector<float>& bias, const Launcher& on);
  AttentionShape attention_shape(int layer) const;
  AttentionRows attention_rows() const;
  float* own_partial() const;

  const ModelConfig& config_;
  const RankShape& shape_;
  const ModelWeights& weights_;
  const KvCache& cache_;
  const StepRows rows_;
  const bool round_bf16_;
  Communicator& communicator_;

  std::vector<float> rope_cos_, rope_sin_;  // [max_positions, head_dim / 2]
  Memory workspace_;
  float* residual_ = nullptr;   // [rows, hidden]
  float* normed_ = nullptr;     // [rows, hidden]
  float* qkv_ = nullptr;        // [rows, (q + 2 kv) * head_dim]
  float* attention_ = nullptr;  // [rows, q * head_dim]
  float* partials_ = nullptr;   // [world, rows, hidden], rank-major over the live rows
  float* gate_up_ = nullptr;    // [rows, 2 * inner]
  float* gated_ = nullptr;      // [rows, inner]
  std::byte* scratch_ = nullptr;
  int64_t words_exchanged_ = 0;
};

}  // namespace helios
