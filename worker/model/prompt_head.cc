#include "worker/model/prompt_head.h"

#include "common/base/vocab_range.h"
#include "kernels/transformer/layers.h"

namespace helios {

PromptHead::PromptHead(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights,
                       const float* residual, DType round_to, Backend& backend)
    : config_(config),
      weights_(weights),
      residual_(residual),
      round_to_(round_to),
      stride_(VocabLayout(config.vocab_size).shard_stride(shape.world)) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t logits_bytes = aligned(kBlockRows * stride_ * int64_t{sizeof(float)});
  const int64_t normed_bytes = aligned(kBlockRows * config.hidden * int64_t{sizeof(float)});
  const int64_t scratch_bytes = matmul_scratch_bytes(weights.lm_head, kBlockRows, backend.host_pool().num_threads());
  workspace_ = backend.device_memory(static_cast<size_t>(logits_bytes + normed_bytes + scratch_bytes));
  logits_ = workspace_.as<float>();
  normed_ = reinterpret_cast<float*>(workspace_.as<std::byte>() + logits_bytes);
  scratch_ = workspace_.as<std::byte>() + logits_bytes + normed_bytes;
}

void PromptHead::record(Stream& stream, int64_t first_row, const int32_t* num_rows) const {
  stream.launch([=, this](const Launcher& on) {
    rms_norm({.x = residual_ + first_row * config_.hidden,
              .x_stride = config_.hidden,
              .weight = weights_.final_norm,
              .eps = config_.rms_eps,
              .num_rows = num_rows,
              .max_rows = kBlockRows,
              .hidden = config_.hidden,
              .out = normed_,
              .out_stride = config_.hidden,
              .round_to = round_to_},
             on);
  });
  if (weights_.lm_head.n() == 0) return;  // the vocabulary ends before this rank's shard
  stream.launch([=, this](const Launcher& on) {
    matmul({.x = normed_,
            .x_stride = config_.hidden,
            .w = &weights_.lm_head,
            .out = logits_,
            .out_stride = stride_,
            .num_rows = num_rows,
            .max_rows = kBlockRows,
            .x_rounded_to = round_to_},
           scratch_, on);
  });
}

}  // namespace helios
