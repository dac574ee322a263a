// Block storage for this rank's keys and values, FP32 or BF16, one pair of arrays a layer. Blocks hold kKvBlockSize
// absolute positions; which block belongs to whom is the coordinator's business.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transformer/attention.h"
#include "worker/backend/backend.h"

namespace helios {

/// Where a block's bytes lie: `count` pieces, keys and values of each layer, the first block's first one at `first`,
/// `pitch` bytes apart; the next block's are `bytes` further.
struct KvBlockPieces {
  std::byte* first = nullptr;  // device memory
  size_t bytes = 0;            // of one piece; 0 on a rank without heads
  size_t pitch = 0;
  size_t count = 0;
  size_t block_bytes() const { return bytes * count; }
};

class KvCache {
 public:
  /// `dtype` kFloat32 or kBFloat16. Throws DeviceError.
  KvCache(Backend& backend, int num_layers, int kv_heads, int head_dim, DType dtype, int64_t num_blocks);

  KvLayer layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  int64_t bytes() const { return static_cast<int64_t>(storage_.bytes()); }
  KvBlockPieces pieces() const { return pieces_; }

  static int64_t block_bytes(int num_layers, int kv_heads, int head_dim, DType dtype) {
    return int64_t{2} * num_layers * kv_heads * head_dim * kKvBlockSize * static_cast<int64_t>(dtype_bytes(dtype));
  }

 private:
  Memory storage_;
  KvBlockPieces pieces_;
  std::vector<KvLayer> layers_;
};

}  // namespace helios
