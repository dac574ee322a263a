// Rotary embedding and cache writes on CUDA. One warp a (row, head), heads in the order q, k, v; a lane keeps both
// halves of its rotated pairs in registers. Bytes a row: 8 * (q_heads + 2 kv_heads) * head_dim, and 8 * kv_heads *
// head_dim into the cache (a half for BF16); a key's elements go 32 elements apart, because attention reads keys
// transposed. What fuses is written as fmaf.
#include "common/base/check.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/transformer/attention.h"

namespace helios {
namespace {

constexpr int kRopeThreads = 128;
constexpr int kRopeWarps = kRopeThreads / kWarpSize;

__device__ inline float nan_if_infinite(float value) { return fabsf(value) == INFINITY ? NAN : value; }

__device__ inline float sum_of_lanes(float value) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

/// Element `d` of a key or value head into its place in the cache.
__device__ inline void cache_element(const KvLayer& cache, int64_t base, int offset, int head_dim, bool is_value, int d,
                                     float x) {
  void* part = is_value ? cache.values : cache.keys;
  const int64_t at = base + (is_value ? static_cast<int64_t>(offset) * head_dim + d : d * kKvBlockSize + offset);
  if (cache.dtype == DType::kBFloat16) {
    static_cast<uint16_t*>(part)[at] = float_to_bf16(x);
  } else {
    static_cast<float*>(part)[at] = x;
  }
}

__global__ void rope_and_cache_kernel(RopeAndCacheArgs a) {
  const int64_t row = blockIdx.x;
  if (row >= *a.rows.num_rows) return;
  const AttentionShape& s = a.shape;
  const int head = blockIdx.y * kRopeWarps + threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int32_t position = a.rows.positions[row];
  if (position < 0 || head >= s.q_heads + 2 * s.kv_heads) return;
  const int dim = s.head_dim, half = dim / 2;
  float* x = a.qkv + row * a.qkv_stride + static_cast<int64_t>(head) * dim;
  const bool is_value = head >= s.q_heads + s.kv_heads;
  const float* norm = head < s.q_heads ? a.q_norm : is_value ? nullptr : a.k_norm;
  float scale = 1.0f;
  if (norm) {
    float sum = 0.0f;
    for (int d = lane; d < dim; d += kWarpSize) sum = fmaf(x[d], x[d], sum);
    scale = 1.0f / sqrtf(sum_of_lanes(sum) / static_cast<float>(dim) + a.norm_eps);
  }
  const float* cosines = a.rope.cos + static_cast<int64_t>(position) * half;
  const float* sines = a.rope.sin + static_cast<int64_t>(position) * half;
  const bool cached = head >= s.q_heads;
  const int kv = is_value ? head - s.q_heads - s.kv_heads : head - s.q_heads;
  const int offset = position % kKvBlockSize;
  int64_t base = 0;
  if (cached) {
    const int64_t table = static_cast<int64_t>(a.rows.slots[row]) * a.rows.max_blocks;
    base = (static_cast<int64_t>(a.rows.block_tables[table + position / kKvBlockSize]) * s.kv_heads + kv) * dim *
           kKvBlockSize;
  }
  for (int i = lane; i < half; i += kWarpSize) {
    float low = x[i], high = x[half + i];
    if (norm) low = low * scale * norm[i], high = high * scale * norm[half + i];
    if (!is_value) {
      const float rotated = fmaf(-high, sines[i], low * cosines[i]);
      high = fmaf(low, sines[i], high * cosines[i]);
      low = rotated;
    }
    low = round_to_dtype(a.round_to, low), high = round_to_dtype(a.round_to, high);
    if (a.round_to == DType::kFloat16 && cached && !is_value) low = nan_if_infinite(low), high = nan_if_infinite(high);
    x[i] = low, x[half + i] = high;
    if (!cached) continue;
    cache_element(a.cache, base, offset, dim, is_value, i, low);
    cache_element(a.cache, base, offset, dim, is_value, half + i, high);
  }
}

}  // namespace

void rope_and_cache(const RopeAndCacheArgs& args, const Launcher& on) {
  const int heads = args.shape.q_heads + 2 * args.shape.kv_heads;
  HELIOS_CHECK(args.shape.head_dim % 2 == 0, args.shape.head_dim);
  if (args.rows.max_rows == 0 || heads == 0) return;
  const dim3 grid(static_cast<unsigned>(args.rows.max_rows),
                  static_cast<unsigned>((heads + kRopeWarps - 1) / kRopeWarps));
  simt::launch(rope_and_cache_kernel, grid, dim3(kRopeThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
