// A rank's weights: packed once from the mapped checkpoint, whose pages are given back as it goes.
//
// The embedding stays in the mapped file: every rank looks its rows up directly, so there is neither a copy nor an
// exchange.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/transformer/matmul.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/model/safetensors.h"

namespace helios {

struct LayerWeights {
  std::vector<float> input_norm, post_norm;  // [hidden]
  std::vector<float> q_norm, k_norm;         // [head_dim] or empty
  PackedMatrix qkv;                          // [(q + 2 kv) * head_dim, hidden], heads in the order q, k, v
  std::vector<float> qkv_bias;               // as qkv's rows, or empty
  PackedMatrix o;                            // [hidden, q * head_dim]; no storage on a rank without heads
  std::vector<float> o_bias;                 // [hidden] or empty
  PackedMatrix gate_up;                      // [2 * inner, hidden]
  std::vector<float> gate_up_bias;
  PackedMatrix down;  // [hidden, inner]
  std::vector<float> down_bias;
};

struct ModelWeights {
  TensorView embedding;  // [vocab, hidden], in the mapped file
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedMatrix lm_head;           // [vocabulary shard, hidden]; no storage on a rank without ids
  int64_t bytes = 0;              // packed
};

/// Checks that the checkpoint holds exactly the model's tensors, each with its shape, and packs this rank's part.
/// `bfloat16` rounds matrices to BF16; otherwise F32 and BF16 stay as they are and F16 is widened. Throws LoadError.
ModelWeights load_weights(Checkpoint& checkpoint, const ModelConfig& config, const RankShape& shape, bool bfloat16,
                          ThreadPool& pool, const std::function<void(double)>& progress);

}  // namespace helios
