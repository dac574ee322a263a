// Rotary embedding, cache writes and paged attention on CUDA.
//
// Attention maps one block to a (row, query head). Each KV block of 32 positions is one step: every warp scores the 32
// positions (a lane a position, keys transposed so that lanes read consecutive words) over its share of head_dim, warp
// 0 folds the shares in ascending order into the running softmax, and each thread accumulates its columns of v. The
// order of operations depends on the row's position alone (X1). Bytes a (row, head): 8 * head_dim * visible positions.
#include "common/base/check.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/transformer/attention.h"

namespace helios {
namespace {

constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / kWarpSize;
constexpr int kMaxHeadDim = 256;
constexpr int kColumnsPerThread = kMaxHeadDim / kAttentionThreads;
static_assert(kKvBlockSize == kWarpSize, "a lane scores one position of a KV block");

__device__ inline float round_if(float value, bool round_bf16) { return round_bf16 ? round_to_bf16(value) : value; }

// One warp a (row, head): q heads, then k heads, then v heads.
__global__ void rope_and_cache_kernel(RopeAndCacheArgs a) {
  SIMT_DYN_SHARED(float, rotated);  // [head_dim]
  const int64_t row = blockIdx.x;
  if (row >= *a.rows.num_rows) return;
  const int head = blockIdx.y, lane = threadIdx.x;
  const int32_t position = a.rows.positions[row];
  if (position < 0) return;
  const AttentionShape& s = a.shape;
  const int half = s.head_dim / 2;
  float* x = a.qkv + row * a.qkv_stride + static_cast<int64_t>(head) * s.head_dim;
  const bool is_value = head >= s.q_heads + s.kv_heads;
  const float* norm = head < s.q_heads ? a.q_norm : is_value ? nullptr : a.k_norm;

  float scale = 1.0f;
  if (norm) {
    float sum = 0.0f;
    for (int d = lane; d < s.head_dim; d += kWarpSize) sum = fmaf(x[d], x[d], sum);
    for (int step = kWarpSize / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    scale = 1.0f / sqrtf(sum / static_cast<float>(s.head_dim) + a.norm_eps);
  }
  for (int d = lane; d < s.head_dim; d += kWarpSize) rotated[d] = norm ? x[d] * scale * norm[d] : x[d];
  __syncwarp();
  for (int d = lane; d < s.head_dim; d += kWarpSize) {
    float value = rotated[d];
    if (!is_value) {
      const int i = d < half ? d : d - half;
      const float cosine = a.rope.cos[static_cast<int64_t>(position) * half + i];
      const float sine = a.rope.sin[static_cast<int64_t>(position) * half + i];
      value =
          d < half ? rotated[d] * cosine - rotated[d + half] * sine : rotated[d] * cosine + rotated[d - half] * sine;
    }
    x[d] = round_if(value, a.round_bf16);
  }
  if (head < s.q_heads) return;
  const int kv = is_value ? head - s.q_heads - s.kv_heads : head - s.q_heads;
  const int64_t block =
      a.rows.block_tables[static_cast<int64_t>(a.rows.slots[row]) * a.rows.max_blocks + position / kKvBlockSize];
  const int offset = position % kKvBlockSize;
  const int64_t base = (block * s.kv_heads + kv) * s.head_dim * kKvBlockSize;
  for (int d = lane; d < s.head_dim; d += kWarpSize) {
    if (is_value) {
      a.cache.values[base + static_cast<int64_t>(offset) * s.head_dim + d] = x[d];
    } else {
      a.cache.keys[base + static_cast<int64_t>(d) * kKvBlockSize + offset] = x[d];
    }
  }
}

__global__ void paged_attention_kernel(AttentionArgs a) {
  __shared__ float query[kMaxHeadDim];
  __shared__ float shares[kAttentionWarps][kWarpSize];
  __shared__ float weights[kWarpSize];
  __shared__ float rescale, total;
  const int64_t row = blockIdx.x;
  if (row >= *a.rows.num_rows) return;
  const int head = blockIdx.y, thread = threadIdx.x, warp = thread / kWarpSize, lane = thread % kWarpSize;
  const AttentionShape& s = a.shape;
  const int32_t position = a.rows.positions[row];
  float* out = a.out + row * a.out_stride + static_cast<int64_t>(head) * s.head_dim;
  if (position < 0) {
    for (int d = thread; d < s.head_dim; d += kAttentionThreads) out[d] = 0.0f;
    return;
  }
  const float* q = a.qkv + row * a.qkv_stride + static_cast<int64_t>(head) * s.head_dim;
  for (int d = thread; d < s.head_dim; d += kAttentionThreads) query[d] = q[d];
  __syncthreads();

  const int kv = s.kv_of_q[head];
  const int32_t first = s.window > 0 && position >= s.window ? position - s.window + 1 : 0;
  const int per_warp = (s.head_dim + kAttentionWarps - 1) / kAttentionWarps;
  const int begin = min(warp * per_warp, s.head_dim), end = min(begin + per_warp, s.head_dim);
  const int32_t* table = a.rows.block_tables + static_cast<int64_t>(a.rows.slots[row]) * a.rows.max_blocks;
  float running_max = -INFINITY, running_sum = 0.0f;  // warp 0's, the same in all of its lanes
  float columns[kColumnsPerThread] = {};

  for (int32_t index = first / kKvBlockSize; index <= position / kKvBlockSize; ++index) {
    const int64_t base = (static_cast<int64_t>(table[index]) * s.kv_heads + kv) * s.head_dim * kKvBlockSize;
    const int32_t key = index * kKvBlockSize + lane;
    const bool visible = key >= first && key <= position;
    float share = 0.0f;
    for (int d = begin; d < end; ++d) {
      share =
          fmaf(query[d], visible ? a.cache.keys[base + static_cast<int64_t>(d) * kKvBlockSize + lane] : 0.0f, share);
    }
    shares[warp][lane] = share;
    __syncthreads();
    if (warp == 0) {
      float score = 0.0f;
      for (int w = 0; w < kAttentionWarps; ++w) score += shares[w][lane];
      score = visible ? score * s.scale : -INFINITY;
      float block_max = score;
      for (int step = kWarpSize / 2; step > 0; step >>= 1)
        block_max = fmaxf(block_max, __shfl_xor_sync(~0u, block_max, step));
      const float new_max = fmaxf(running_max, block_max);
      const float weight = visible ? expf(score - new_max) : 0.0f;
      float block_sum = weight;
      for (int step = kWarpSize / 2; step > 0; step >>= 1) block_sum += __shfl_xor_sync(~0u, block_sum, step);
      const float factor = expf(running_max - new_max);  // 0 at the first block
      running_sum = running_sum * factor + block_sum;
      running_max = new_max;
      weights[lane] = weight;
      if (lane == 0) rescale = factor, total = running_sum;
    }
    __syncthreads();
    const float factor = rescale;
    const int low = max(first - index * kKvBlockSize, 0), high = min(position - index * kKvBlockSize + 1, kKvBlockSize);
    for (int c = 0, d = thread; d < s.head_dim; ++c, d += kAttentionThreads) {
      float sum = columns[c] * factor;
      for (int j = low; j < high; ++j)
        sum = fmaf(weights[j], a.cache.values[base + static_cast<int64_t>(j) * s.head_dim + d], sum);
      columns[c] = sum;
    }
    __syncthreads();
  }
  const float inverse = 1.0f / total;
  for (int c = 0, d = thread; d < s.head_dim; ++c, d += kAttentionThreads)
    out[d] = round_if(columns[c] * inverse, a.round_bf16);
}

}  // namespace

void rope_and_cache(const RopeAndCacheArgs& args, const Launcher& on) {
  const int heads = args.shape.q_heads + 2 * args.shape.kv_heads;
  if (args.rows.max_rows == 0 || heads == 0) return;
  simt::launch(rope_and_cache_kernel, dim3(static_cast<unsigned>(args.rows.max_rows), static_cast<unsigned>(heads)),
               dim3(kWarpSize), args.shape.head_dim * sizeof(float), static_cast<simt::Stream>(on.stream()), args);
}

int64_t attention_scratch_bytes(const AttentionShape&, const AttentionRows&, int) { return 0; }

void paged_attention(const AttentionArgs& args, void*, const Launcher& on) {
  HELIOS_CHECK(args.shape.head_dim <= kMaxHeadDim, args.shape.head_dim);
  if (args.rows.max_rows == 0 || args.shape.q_heads == 0) return;
  simt::launch(paged_attention_kernel,
               dim3(static_cast<unsigned>(args.rows.max_rows), static_cast<unsigned>(args.shape.q_heads)),
               dim3(kAttentionThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
