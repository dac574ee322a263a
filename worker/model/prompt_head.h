// Hidden rows of a prompt to raw logits of this rank's vocabulary shard, 64 at a time, through the generation head.
//
// The only logit matrix of prompt scoring is this [64, local vocabulary]; each block of rows overwrites the one before
// it (R41). Final norm and projection are those of lm_head.h, row by row the same bits. Thread: the rank's compute
// stream.
#pragma once

#include <cstdint>

#include "worker/backend/backend.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/model/weights.h"

namespace helios {

class PromptHead {
 public:
  static constexpr int64_t kBlockRows = 64;

  /// Borrows everything for its life. `residual` [rows, hidden]. Throws DeviceError.
  PromptHead(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const float* residual,
             DType round_to, Backend& backend);

  /// Rows [first_row, first_row + *num_rows), at most 64, of the step. `num_rows` in device memory.
  void record(Stream& stream, int64_t first_row, const int32_t* num_rows) const;

  float* logits() const { return logits_; }  // [64, logits_stride] FP32; columns past the shard are never read
  int64_t logits_stride() const { return stride_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_.bytes()); }

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const float* residual_;
  const DType round_to_;
  const int64_t stride_;
  Memory workspace_;
  float* logits_ = nullptr;
  float* normed_ = nullptr;  // [64, hidden]
  std::byte* scratch_ = nullptr;
};

}  // namespace helios
