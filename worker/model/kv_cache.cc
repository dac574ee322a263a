#include "worker/model/kv_cache.h"

namespace helios {

KvCache::KvCache(Backend& backend, int num_layers, int kv_heads, int head_dim, int64_t num_blocks)
    : storage_(backend.device_memory(static_cast<size_t>(num_blocks * block_bytes(num_layers, kv_heads, head_dim)))) {
  const int64_t layer_floats = num_blocks * kv_heads * head_dim * kKvBlockSize;
  float* next = storage_.as<float>();
  pieces_ = {.first = storage_.as<std::byte>(),
             .bytes = static_cast<size_t>(block_bytes(1, kv_heads, head_dim)) / 2,
             .pitch = static_cast<size_t>(layer_floats) * sizeof(float),
             .count = 2 * static_cast<size_t>(num_layers)};
  for (int i = 0; i < num_layers; ++i) {
    if (!next) {  // a rank without heads
      layers_.push_back({});
      continue;
    }
    layers_.push_back({.keys = next, .values = next + layer_floats});
    next += 2 * layer_floats;
  }
}

}  // namespace helios
