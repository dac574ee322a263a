// What config.json says, for the four supported classes: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and
// Qwen3ForCausalLM. Whatever would change the numbers and is not understood is refused with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/load_error.h"
#include "worker/model/quantization.h"

namespace helios {

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 0.0, high_freq_factor = 0.0;  // llama3
  double original_max_positions = 0.0;                   // llama3
};

struct ModelConfig {
  std::string model_type;  // "llama", "mistral", "qwen2", "qwen3"
  int64_t hidden = 0;
  int64_t inner = 0;
  int64_t vocab_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;
  float rms_eps = 1e-6f;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool qk_norm = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  std::vector<int32_t> windows;  // a layer: keys that a query sees, itself included; 0: all
  QuantisedMatrices quantised;   // of the matrices that products read; the others are F32, BF16 or F16
};

/// `text` is config.json; `path` is for messages. Throws LoadError.
ModelConfig parse_model_config(const std::string& text, const std::string& path);

/// Reads model_dir/config.json. Throws LoadError.
ModelConfig read_model_config(const std::string& model_dir);

/// Angle per position of each of the head_dim / 2 rotated pairs, in float64.
std::vector<double> inverse_frequencies(const RopeConfig& rope, int head_dim);

}  // namespace helios
