#include "worker/model/kv_cache.h"

namespace helios {

KvCache::KvCache(Backend& backend, int num_layers, int kv_heads, int head_dim, DType dtype, int64_t num_blocks)
    : storage_(
          backend.device_memory(static_cast<size_t>(num_blocks * block_bytes(num_layers, kv_heads, head_dim, dtype)))) {
  const auto block_of_layer = static_cast<size_t>(block_bytes(1, kv_heads, head_dim, dtype)) / 2;
  const size_t pitch = static_cast<size_t>(num_blocks) * block_of_layer;
  std::byte* next = storage_.as<std::byte>();
  pieces_ = {.first = next, .bytes = block_of_layer, .pitch = pitch, .count = 2 * static_cast<size_t>(num_layers)};
  for (int i = 0; i < num_layers; ++i) {
    if (!next) {  // a rank without heads
      layers_.push_back({.dtype = dtype});
      continue;
    }
    layers_.push_back({.keys = next, .values = next + pitch, .dtype = dtype});
    next += 2 * pitch;
  }
}

}  // namespace helios
