// Rotary embedding, KV cache writes and paged attention.
//
// Keys and values lie in blocks of kv_block_size absolute positions. A row at position p reads the blocks from its
// first visible key to p in ascending order and folds each into a running softmax, so that prefill in any chunking and
// decode do the same operations in the same order (X1).
//
// The cache is FP32, or BF16: then keys and values are rounded once, where they are stored. Queries, softmax weights
// and sums are FP32's either way, so that a BF16 cache has one meaning on every device.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/launcher.h"

namespace helios {

inline constexpr int kKvBlockSize = 32;  // positions

/// One layer's cache on one rank. Keys are stored transposed within a block so that scores vectorise over positions.
///   keys   [num_blocks, kv_heads, head_dim, kKvBlockSize]
///   values [num_blocks, kv_heads, kKvBlockSize, head_dim]
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kFloat32;  // or kBFloat16
};

/// The rank's heads: local query heads [0, q_heads); query head h reads local KV head kv_of_q[h].
struct AttentionShape {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  const int32_t* kv_of_q = nullptr;  // [q_heads]
  float scale = 1.0f;                // 1 / sqrt(head_dim)
  int32_t window = 0;                // keys a query sees, itself included; 0: all before it
};

/// Rows of this step, [0, *num_rows). A row with position < 0 is dead: nothing is read or cached for it.
struct AttentionRows {
  const int32_t* positions = nullptr;     // [max_rows] absolute
  const int32_t* slots = nullptr;         // [max_rows]
  const int32_t* block_tables = nullptr;  // [capacity, max_blocks]
  int32_t max_blocks = 0;
  const int32_t* num_rows = nullptr;  // [1]
  int64_t max_rows = 0;
};

/// cos and sin [max_positions, head_dim / 2], each FP32 rounded from float64.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

/// In place on qkv [rows, (q_heads + 2 * kv_heads) * head_dim], heads in the order q, k, v:
/// optional RMS norm of each q and k head (weights [head_dim] or null), rotation of i with i + head_dim/2 by the row's
/// position, optional rounding of q, k and v to BF16 or F16 (`round_to`), then the write of k and v into the cache;
/// what that rounds is rounded there alone. A key that F16 makes infinite becomes NaN: a softmax could give it the
/// weight zero, and nobody would know; NaN spoils every row that sees it.
struct RopeAndCacheArgs {
  float* qkv = nullptr;
  int64_t qkv_stride = 0;
  AttentionShape shape;
  AttentionRows rows;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 0.0f;
  RopeTable rope;
  KvLayer cache;
  DType round_to = DType::kFloat32;
};
void rope_and_cache(const RopeAndCacheArgs& args, const Launcher& on);

/// out [rows, q_heads * head_dim] = softmax(q k^T * scale) v over the row's visible keys. Dead rows give zeros.
struct AttentionArgs {
  const float* qkv = nullptr;
  int64_t qkv_stride = 0;
  AttentionShape shape;
  AttentionRows rows;
  KvLayer cache;
  float* out = nullptr;
  int64_t out_stride = 0;
  DType round_to = DType::kFloat32;
};
/// `rows` for its bounds; `num_threads` of the host where kernels run there.
int64_t attention_scratch_bytes(const AttentionShape& shape, const AttentionRows& rows, int num_threads);
void paged_attention(const AttentionArgs& args, void* scratch, const Launcher& on);

}  // namespace helios
