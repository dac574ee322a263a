// Which matrices of a checkpoint are quantised, and how their bytes and scales lie in its files.
//
// Weights of 8 bits only: compressed-tensors' float-quantized, int-quantized and naive-quantized formats, and the fp8
// method of Qwen's and DeepSeek's checkpoints. Activations stay FP32 whatever the checkpoint says of them (W8A32), so
// their scales are known by name and not used. Any other scheme is refused with its field and value.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/base/dtype.h"

namespace helios {

/// A weight is its stored value times the scale of its block: block_rows x block_columns of them share one.
struct MatrixScheme {
  DType dtype = DType::kInt8;  // or kFloat8E4M3
  int64_t block_rows = 0;      // 0: all
  int64_t block_columns = 0;   // 0: all
  std::string scale = ".weight_scale";

  bool operator==(const MatrixScheme&) const = default;
};

/// By module: "model.layers.0.mlp.down_proj".
using QuantisedMatrices = std::map<std::string, MatrixScheme>;

}  // namespace helios
