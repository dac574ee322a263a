#include "worker/model/lm_head.h"

#include <algorithm>

#include "kernels/transformer/layers.h"

namespace helios {
namespace {

constexpr int64_t kBlockRows = 64;

}  // namespace

LmHead::LmHead(const ModelConfig& config, const RankShape& shape, const ModelWeights& weights, const float* residual,
               const StepRows& rows, int64_t max_sampling, DType round_to, Backend& backend)
    : config_(config),
      weights_(weights),
      residual_(residual),
      rows_(rows),
      round_to_(round_to),
      stride_(VocabLayout(config.vocab_size).shard_stride(shape.world)) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t word = sizeof(float);
  const int64_t logits_bytes = aligned(max_sampling * stride_ * word);
  const int64_t normed_bytes = aligned(max_sampling * config.hidden * word);
  const int64_t scratch_bytes =
      matmul_scratch_bytes(weights.lm_head, std::min(max_sampling, kBlockRows), backend.host_pool().num_threads());
  workspace_ = backend.device_memory(static_cast<size_t>(logits_bytes + normed_bytes + scratch_bytes));
  logits_ = workspace_.as<float>();
  normed_ = reinterpret_cast<float*>(workspace_.as<std::byte>() + logits_bytes);
  scratch_ = workspace_.as<std::byte>() + logits_bytes + normed_bytes;
}

void LmHead::record(Stream& stream, int64_t max_sampling) {
  stream.launch([this, max_sampling](const Launcher& on) {
    rms_norm({.x = residual_,
              .x_stride = config_.hidden,
              .row_index = rows_.sampling_rows,
              .weight = weights_.final_norm,
              .eps = config_.rms_eps,
              .num_rows = rows_.num_sampling,
              .max_rows = max_sampling,
              .hidden = config_.hidden,
              .out = normed_,
              .out_stride = config_.hidden,
              .round_to = round_to_},
             on);
  });
  if (weights_.lm_head.n() == 0) return;  // the vocabulary ends before this rank's shard
  for (int64_t first = 0; first < max_sampling; first += kBlockRows) {
    stream.launch([this, first, max_sampling](const Launcher& on) {
      matmul({.x = normed_ + first * config_.hidden,
              .x_stride = config_.hidden,
              .w = &weights_.lm_head,
              .out = logits_ + first * stride_,
              .out_stride = stride_,
              .num_rows = rows_.num_sampling,
              .first_row = first,
              .max_rows = std::min(kBlockRows, max_sampling - first),
              .x_rounded_to = round_to_},
             scratch_, on);
    });
  }
}

}  // namespace helios
