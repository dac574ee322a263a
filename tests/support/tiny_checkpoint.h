// Writes a small random checkpoint in Hugging Face layout: a real model directory that needs no test data.
//
// Vocabulary 300 (does not divide), 6 query heads over 2 KV heads, 3 of 8 canonical segments without a head, 52 inner
// columns. Random but fixed: the same bytes on every machine.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace helios::testing {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  std::vector<std::byte> bytes;
};

/// One safetensors file of the given tensors, in order.
inline std::string safetensors_bytes(const std::vector<TinyTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const TinyTensor& t : tensors) {
    header += ",\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < t.shape.size(); ++i) header += (i ? "," : "") + std::to_string(t.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + t.bytes.size()) + "]}";
    offset += t.bytes.size();
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  out += header;
  for (const TinyTensor& t : tensors) out.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  return out;
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A directory under the system's temporary directory, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "helios-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline constexpr int kTinyVocab = 300;
inline constexpr int kTinyContext = 128;

inline std::string tiny_config_json() {
  return R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48, "intermediate_size": 52,
  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 300,
  "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "attention_bias": false, "tie_word_embeddings": false, "eos_token_id": 2})";
}

inline std::vector<TinyTensor> tiny_tensors() {
  uint64_t state = 88172645463325252u;
  const auto random = [&state] {  // xorshift, to (-1, 1)
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<float>(static_cast<double>(state >> 11) * 0x1p-53 * 2.0 - 1.0);
  };
  std::vector<TinyTensor> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float centre, float spread) {
    TinyTensor t{.name = name, .shape = std::move(shape)};
    int64_t count = 1;
    for (const int64_t extent : t.shape) count *= extent;
    t.bytes.resize(static_cast<size_t>(count) * sizeof(float));
    for (int64_t i = 0; i < count; ++i) {
      const float value = centre + spread * random();
      std::memcpy(t.bytes.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof value);
    }
    out.push_back(std::move(t));
  };
  add("model.embed_tokens.weight", {kTinyVocab, 48}, 0.0f, 1.0f);
  add("model.norm.weight", {48}, 1.0f, 0.3f);
  add("lm_head.weight", {kTinyVocab, 48}, 0.0f, 0.6f);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    add(p + "input_layernorm.weight", {48}, 1.0f, 0.3f);
    add(p + "post_attention_layernorm.weight", {48}, 1.0f, 0.3f);
    add(p + "self_attn.q_norm.weight", {8}, 1.0f, 0.3f);
    add(p + "self_attn.k_norm.weight", {8}, 1.0f, 0.3f);
    add(p + "self_attn.q_proj.weight", {48, 48}, 0.0f, 0.3f);
    add(p + "self_attn.k_proj.weight", {16, 48}, 0.0f, 0.3f);
    add(p + "self_attn.v_proj.weight", {16, 48}, 0.0f, 0.3f);
    add(p + "self_attn.o_proj.weight", {48, 48}, 0.0f, 0.3f);
    add(p + "mlp.gate_proj.weight", {52, 48}, 0.0f, 0.3f);
    add(p + "mlp.up_proj.weight", {52, 48}, 0.0f, 0.3f);
    add(p + "mlp.down_proj.weight", {48, 52}, 0.0f, 0.3f);
  }
  return out;
}

/// Writes config.json and model.safetensors.
inline void write_tiny_checkpoint(const std::string& directory) {
  write_file(directory + "/config.json", tiny_config_json());
  write_file(directory + "/model.safetensors", safetensors_bytes(tiny_tensors()));
}

}  // namespace helios::testing
