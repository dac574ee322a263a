// The embedded model's forward pass over kernels: live rows in, residual stream out, for one rank's shard.
//
// Built once with fixed buffers, then recorded into graphs. The residual stream is FP32 and whole on every rank; each
// layer exchanges its two partial sums by all-gather and adds them in the canonical tree (X1). Thread: the rank's
// compute stream.
#pragma once

#include <cstdint>

#include "kernels/base/step_counters.h"
#include "kernels/transformer/attention.h"
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
  /// `round_to` rounds each matrix input once. `counters` (device memory, or null) gets the words sent in partial
  /// sums. Throws DeviceError.
  Transformer(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const KvCache& cache,
              const StepRows& rows, int64_t max_rows, int max_positions, DType round_to, Communicator& communicator,
              StepCounters* counters, Backend& backend);

  /// Records embedding and every layer into the stream's capture, for steps of at most `max_rows` rows, itself at most
  /// the constructor's. Nothing recorded reads the step's data on the host.
  void record(Stream& stream, int64_t max_rows);

  /// [rows, hidden] after the last layer, before the final norm.
  const float* residual() const { return residual_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_.bytes()); }

 private:
  void upload_tables(int max_positions, Backend& backend);
  int64_t scratch_bytes(int64_t max_rows, int num_threads) const;
  void record_layer(Stream& stream, int layer, int64_t max_rows);
  void record_norm(Stream& stream, const float* weight, int64_t max_rows);
  void record_product(Stream& stream, const PackedMatrix& w, const float* x, const float* bias, float* out,
                      int64_t max_rows);
  void record_attention(Stream& stream, int layer, int64_t max_rows);
  void record_partial_sum(Stream& stream, const PackedMatrix& w, const float* x, const float* bias, int64_t max_rows);
  AttentionShape attention_shape(int layer) const;
  AttentionRows attention_rows(int64_t max_rows) const;

  const ModelConfig& config_;
  const RankShape& shape_;
  const ModelWeights& weights_;
  const KvCache& cache_;
  const StepRows rows_;
  const DType round_to_;
  Communicator& communicator_;

  StepCounters* const counters_;

  Memory tables_;  // what no step changes: rope, which KV head a query head reads
  RopeTable rope_;
  const int32_t* kv_of_q_ = nullptr;
  Memory workspace_;
  float* residual_ = nullptr;   // [rows, hidden]
  float* normed_ = nullptr;     // [rows, hidden]
  float* qkv_ = nullptr;        // [rows, (q + 2 kv) * head_dim]
  float* attention_ = nullptr;  // [rows, q * head_dim]
  float* partials_ = nullptr;   // [world, rows, hidden], where rows is what the graph was recorded for
  float* zeros_ = nullptr;      // [rows, hidden] never written: the partial sum of a rank without columns
  float* gate_up_ = nullptr;    // [rows, 2 * inner]
  float* gated_ = nullptr;      // [rows, inner]
  std::byte* scratch_ = nullptr;
};

}  // namespace helios
