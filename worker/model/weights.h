// A rank's weights in device memory: packed once from the mapped checkpoint, whose pages are given back as it goes.
//
// Every rank looks embedding rows up itself, so there is no exchange; on the CPU they stay in the mapped file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/transformer/embedding_table.h"
#include "kernels/transformer/matmul.h"
#include "worker/backend/backend.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/model/safetensors.h"

namespace helios {

/// Pointers lie in ModelWeights::vectors; a bias or norm that the model has not is null.
struct LayerWeights {
  const float* input_norm = nullptr;                 // [hidden]
  const float* post_norm = nullptr;                  // [hidden]
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]
  PackedMatrix qkv;                                  // [(q + 2 kv) * head_dim, hidden], heads in the order q, k, v
  const float* qkv_bias = nullptr;                   // as qkv's rows
  PackedMatrix o;                                    // [hidden, q * head_dim]; no storage on a rank without heads
  const float* o_bias = nullptr;                     // [hidden]
  PackedMatrix gate_up;                              // [2 * inner, hidden]
  const float* gate_up_bias = nullptr;               // as gate_up's rows
  PackedMatrix down;                                 // [hidden, inner]
  const float* down_bias = nullptr;                  // [hidden]
};

struct ModelWeights {
  EmbeddingTable embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  PackedMatrix lm_head;               // [vocabulary shard, hidden]; no storage on a rank without ids
  Memory vectors;                     // norms and biases
  int64_t bytes = 0;                  // of device memory
};

/// Checks that the checkpoint holds exactly the model's tensors, each with its shape, and packs this rank's part.
/// `round_to` kBFloat16 or kFloat16 rounds matrices to that type. With kFloat32 matrices of one type stay as they are
/// and mixed ones become FP32. Quantised matrices stay bytes in all cases; what no stacked matrix of one kind can hold
/// is dequantised. `checkpoint` outlives the weights. Throws LoadError, also for a weight that F16 would make infinite;
/// DeviceError.
ModelWeights load_weights(Checkpoint& checkpoint, const ModelConfig& config, const RankShape& shape, DType round_to,
                          Backend& backend, const std::function<void(double)>& progress);

}  // namespace helios
