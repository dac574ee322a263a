#include "worker/model/lm_head.h"

#include <cstring>

#include "kernels/transformer/layers.h"

namespace helios {

LmHead::LmHead(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const float* residual,
               const StepRows& rows, int64_t max_sampling, bool round_bf16, Backend& backend)
    : config_(config),
      weights_(weights),
      residual_(residual),
      rows_(rows),
      round_bf16_(round_bf16),
      stride_(VocabLayout(config.vocab_size).shard_stride(shape.world)) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t word = sizeof(float);
  const int64_t logits_bytes = aligned(max_sampling * stride_ * word);
  const int64_t gathered_bytes = aligned(max_sampling * config.hidden * word);
  const int64_t scratch_bytes = matmul_scratch_bytes(max_sampling, config.hidden, backend.host_pool().num_threads());
  workspace_ = backend.device_memory(static_cast<size_t>(logits_bytes + gathered_bytes + aligned(scratch_bytes)));
  logits_ = workspace_.as<float>();
  gathered_ = reinterpret_cast<float*>(workspace_.as<std::byte>() + logits_bytes);
  scratch_ = workspace_.as<std::byte>() + logits_bytes + gathered_bytes;
}

void LmHead::record(Stream& stream) {
  stream.launch([this](const Launcher& on) { normalise_sampling_rows(on); });
  if (weights_.lm_head.n() == 0) return;  // the vocabulary ends before this rank's shard
  stream.launch([this](const Launcher& on) {
    matmul({.x = gathered_,
            .x_stride = config_.hidden,
            .w = &weights_.lm_head,
            .out = logits_,
            .out_stride = stride_,
            .m = *rows_.num_sampling},
           scratch_, on);
  });
}

void LmHead::normalise_sampling_rows(const Launcher& on) {
  const int64_t hidden = config_.hidden;
  for (int32_t i = 0; i < *rows_.num_sampling; ++i) {
    std::memcpy(gathered_ + i * hidden, residual_ + rows_.sampling_rows[i] * hidden,
                static_cast<size_t>(hidden) * sizeof(float));
  }
  rms_norm({.x = gathered_,
            .x_stride = hidden,
            .weight = weights_.final_norm.data(),
            .eps = config_.rms_eps,
            .rows = *rows_.num_sampling,
            .hidden = hidden,
            .out = gathered_,
            .out_stride = hidden,
            .round_bf16 = round_bf16_},
           on);
}

}  // namespace helios
