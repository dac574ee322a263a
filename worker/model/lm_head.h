// Hidden rows to raw logits of this rank's vocabulary shard: gather of the sampling rows, final norm, projection.
//
// In blocks of rows: a device that cannot read the count multiplies whole blocks, and a block past the count costs the
// CPU nothing. Raw logits stay as they are until the step ends (R18). Columns past the shard are padding and never
// read. Thread: the rank's compute stream.
#pragma once

#include <cstdint>

#include "worker/backend/backend.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/model/step_rows.h"
#include "worker/model/weights.h"

namespace helios {

class LmHead {
 public:
  /// Borrows everything for its life. `residual` [rows, hidden]. Throws DeviceError.
  LmHead(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const float* residual,
         const StepRows& rows, int64_t max_sampling, DType round_to, Backend& backend);

  /// For steps of at most `max_sampling` rows that sample, itself at most the constructor's.
  void record(Stream& stream, int64_t max_sampling);

  /// [sampling rows, logits_stride] FP32.
  float* logits() const { return logits_; }
  int64_t logits_stride() const { return stride_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_.bytes()); }

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const float* residual_;
  const StepRows rows_;
  const DType round_to_;
  const int64_t stride_;
  Memory workspace_;
  float* logits_ = nullptr;
  float* normed_ = nullptr;  // [sampling rows, hidden]
  std::byte* scratch_ = nullptr;
};

}  // namespace helios
