// The tiny checkpoint, quantised: its config.json, its tensors, and what each weight is then worth.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/dtype.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {

/// A scheme in the words of config.json, and what the files then hold.
struct TinyScheme {
  const char* quantization;  // the object's text
  DType dtype;
  int64_t block_rows, block_columns;  // 0: all
  const char* suffix = ".weight_scale";
  const char* scale_dtype = "F32";
  bool head = true;
};

inline std::vector<TinyScheme> tiny_schemes() {
  return {
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
           "ignore": [], "kv_cache_scheme": null, "config_groups": {"group_0": {"targets": ["Linear"],
           "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true},
           "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true, "dynamic": false}}}})",
       DType::kInt8, 1, 0},
      {R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
           "config_groups": {"group_0": {"targets": ["Linear"],
           "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true}}}})",
       DType::kFloat8E4M3, 0, 0, ".weight_scale", "F16", false},
      {R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 20],
           "modules_to_not_convert": ["model.layers.0.input_layernorm"]})",
       DType::kFloat8E4M3, 16, 20, ".weight_scale_inv", "BF16", false},
      {R"({"quant_method": "compressed-tensors", "format": "naive-quantized", "ignore": ["re:lm_h.*"],
           "config_groups": {"group_0": {"targets": ["re:.*self_attn", "re:.*mlp"],
           "weights": {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 12}}}})",
       DType::kInt8, 1, 12, ".weight_scale", "F32", false},
  };
}

/// Codes rise with the magnitude.
inline uint8_t nearest_e4m3(float value) {
  const float magnitude = std::fabs(value);
  int low = 0, high = 0x7e;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (e4m3_to_float(static_cast<uint8_t>(middle)) <= magnitude ? low : high) = middle;
  }
  const float above = e4m3_to_float(static_cast<uint8_t>(high)), below = e4m3_to_float(static_cast<uint8_t>(low));
  const bool up = above - magnitude < magnitude - below;
  return static_cast<uint8_t>((up ? high : low) | (std::signbit(value) ? 0x80 : 0));
}

struct TinyQuantised {
  std::string config;
  std::vector<TinyTensor> tensors;
  std::map<std::string, std::vector<double>> values;  // of each weight, scale included

  explicit TinyQuantised(const TinyScheme& scheme) {
    config = tiny_config_json();
    config.insert(config.rfind('}'), std::string(", \"quantization_config\": ") + scheme.quantization);
    for (TinyTensor& t : tiny_tensors()) {
      const bool linear = t.name.find("_proj.weight") != std::string::npos || t.name == "lm_head.weight";
      if (linear && (scheme.head || t.name != "lm_head.weight")) {
        quantise(t, scheme);
        continue;
      }
      for (size_t i = 0; i < t.bytes.size() / sizeof(float); ++i) values[t.name].push_back(float_at(t, i));
      tensors.push_back(std::move(t));
    }
  }

  void write(const std::string& directory) const {
    write_file(directory + "/config.json", config);
    write_file(directory + "/model.safetensors", safetensors_bytes(tensors));
  }

 private:
  static float float_at(const TinyTensor& t, size_t i) {
    float value;
    std::memcpy(&value, &t.bytes[i * sizeof(float)], sizeof value);
    return value;
  }

  void quantise(const TinyTensor& t, const TinyScheme& scheme) {
    const int64_t rows = t.shape[0], columns = t.shape[1];
    const int64_t tall = scheme.block_rows ? scheme.block_rows : rows;
    const int64_t wide = scheme.block_columns ? scheme.block_columns : columns;
    const int64_t down = (rows + tall - 1) / tall, across = (columns + wide - 1) / wide;
    const bool int8 = scheme.dtype == DType::kInt8;
    std::vector<float> largest(static_cast<size_t>(down * across), 0.0f);
    const auto block = [&](int64_t i) { return static_cast<size_t>(i / columns / tall * across + i % columns / wide); };
    for (int64_t i = 0; i < rows * columns; ++i) {
      largest[block(i)] = std::max(largest[block(i)], std::fabs(float_at(t, static_cast<size_t>(i))));
    }
    TinyTensor q{.name = t.name, .shape = t.shape, .dtype = int8 ? "I8" : "F8_E4M3"};
    TinyTensor s{.name = t.name.substr(0, t.name.rfind(".weight")) + scheme.suffix, .dtype = scheme.scale_dtype};
    s.shape = scheme.block_rows ? std::vector<int64_t>{down, across} : std::vector<int64_t>{1};
    for (float& scale : largest) {
      scale /= int8 ? 127.0f : 448.0f;
      if (s.dtype != "F32") scale = round_to_bf16(scale * 1.01f);
      uint32_t bits = std::bit_cast<uint32_t>(scale);
      if (s.dtype == "BF16") bits >>= 16;
      if (s.dtype == "F16") {  // a BF16 value of this size is an F16 one
        bits = ((bits >> 16 & 0x8000) | ((bits >> 13) - (112u << 10))) & 0xffff;
        scale = f16_to_float(static_cast<uint16_t>(bits));
      }
      const auto* from = reinterpret_cast<const std::byte*>(&bits);
      s.bytes.insert(s.bytes.end(), from, from + (s.dtype == "F32" ? 4 : 2));
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float ratio = float_at(t, static_cast<size_t>(i)) / largest[block(i)];
      const uint8_t code = int8 ? static_cast<uint8_t>(static_cast<int8_t>(std::lround(ratio))) : nearest_e4m3(ratio);
      q.bytes.push_back(std::byte{code});
      values[t.name].push_back(double{load_element(&code, scheme.dtype, 0)} * largest[block(i)]);
    }
    tensors.push_back(std::move(q));
    tensors.push_back(std::move(s));
  }
};

}  // namespace helios::testing
