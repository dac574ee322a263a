// Paged attention on CUDA over an FP32 cache, in FP32 multiply-adds; how the work is cut: attention_tiles.cuh.
//
// A warp scores its 32 positions (a lane a position, keys transposed: 128 bytes a load) and weighs the values (a lane
// some columns, up to 16 bytes each). Softmax in FP32. Positions that a query does not see are never multiplied into
// it. Bytes a (tile, KV head): 8 * head_dim * visible positions.
#include "common/base/check.h"
#include "kernels/transformer/attention_tiles.cuh"

namespace helios::attention {
namespace {

constexpr int kTogether = 4;  // queries whose warps' results lie in shared memory at once
static_assert(kKvBlockSize == kWarpSize, "a lane scores one position of a KV block");

// Weights [kWarps, kKvBlockSize, kQueries], then sums [kWarps, kTogether, padded].
constexpr int work_floats(int queries, int head_dim) {
  const int weights = kWarps * kKvBlockSize * queries, sums = kWarps * kTogether * padded(head_dim);
  return weights > sums ? weights : sums;
}
constexpr size_t fp32_shared_bytes(int queries, int head_dim, int q_heads) {
  return shared_bytes(queries, queries * padded(head_dim), work_floats(queries, head_dim), q_heads);
}
static_assert(fp32_shared_bytes(16, 128, kMaxQueryHeads) <= kMaxSharedBytes);
static_assert(fp32_shared_bytes(8, kMaxHeadDim, kMaxQueryHeads) <= kMaxSharedBytes);

/// Queries [begin, begin + count) of the tile, row by row, into shared memory [kQueries, padded]; zeros behind them.
template <int kQueries>
__device__ void load_queries(const AttentionArgs& a, int64_t row, int begin, int count, const Shared& shared) {
  const int dim = a.shape.head_dim, stride = padded(dim);
  name_queries<kQueries>(begin, count, shared);
  for (int i = threadIdx.x; i < kQueries * stride; i += kThreads) {
    const int q = i / stride, d = i % stride;
    const float* from = a.qkv + (row + shared.query_row[q]) * a.qkv_stride + int64_t{shared.query_head[q]} * dim;
    shared.queries[i] = q < count && d < dim ? from[d] : 0.0f;
  }
  __syncthreads();
}

/// Scores of a warp's KV block to weights e^(score - max) in shared memory, with each query's maximum and mass.
/// `keys` is the block's; what no query of the tile sees is not read.
template <int kQueries>
__device__ void weigh_block(const AttentionArgs& a, const float* keys, int index, int32_t position, int count,
                            int begin, int end, const Shared& shared) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int dim = a.shape.head_dim, stride = padded(dim);
  const bool read = lane >= begin && lane < end;
  float scores[kQueries] = {};
#pragma unroll 4
  for (int d = 0; d < dim; d += 4) {
    float key[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) key[i] = read && d + i < dim ? keys[(d + i) * kKvBlockSize + lane] : 0.0f;
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      const Chunk<float, 4> query = load_chunk<4>(shared.queries + q * stride + d);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[q] = fmaf(query.at[i], key[i], scores[q]);
    }
  }
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    const Sight sight(a.shape, position + shared.query_row[q]);
    const bool seen = q < count && lane >= sight.begin(index) && lane < sight.end(index);
    const float score = seen ? scores[q] * a.shape.scale : -INFINITY;
    const float highest = warp_max(score);
    scores[q] = score == -INFINITY ? 0.0f : expf(score - highest);
    const float mass = warp_sum(scores[q]);
    if (lane == 0) {
      shared.maxima[warp * kQueries + q] = highest;
      shared.masses[warp * kQueries + q] = mass;
    }
  }
#pragma unroll
  for (int q = 0; q < kQueries; q += 4) {
    const Chunk<float, 4> four = {{scores[q], scores[q + 1], scores[q + 2], scores[q + 3]}};
    store_chunk<4>(shared.work + (warp * kKvBlockSize + lane) * kQueries + q, four);
  }
  __syncwarp();
}

/// sums[q] += weight * value over positions [begin, end) of a warp's KV block. kGuarded: queries see different parts.
template <bool kGuarded, int kQueries, int kCount, int kChunks>
__device__ void add_values(const AttentionArgs& a, const float* values, int index, int32_t position, int begin, int end,
                           const Shared& shared, Chunk<float, kCount> (&sums)[kQueries][kChunks]) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize, dim = a.shape.head_dim;
#pragma unroll 4
  for (int j = begin; j < end; ++j) {
    Chunk<float, kCount> value[kChunks] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kWarpSize + lane) * kCount;
      if (column < dim) value[c] = load_chunk<kCount>(values + j * dim + column);
    }
#pragma unroll
    for (int q = 0; q < kQueries; q += 4) {
      const Chunk<float, 4> weights = load_chunk<4>(shared.work + (warp * kKvBlockSize + j) * kQueries + q);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (kGuarded) {
          const Sight sight(a.shape, position + shared.query_row[q + i]);
          if (j < sight.begin(index) || j >= sight.end(index)) continue;
        }
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            sums[q + i][c].at[e] = fmaf(weights.at[i], value[c].at[e], sums[q + i][c].at[e]);
          }
        }
      }
    }
  }
}

/// Adds the warps' sums in ascending order, kTogether queries at a time, and writes the results.
template <int kQueries, int kCount, int kChunks>
__device__ void add_warps(const AttentionArgs& a, const Partitions& pass, int partition, int64_t row, int32_t position,
                          int count, const Shared& shared, const Chunk<float, kCount> (&sums)[kQueries][kChunks]) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int dim = a.shape.head_dim, stride = padded(dim);
#pragma unroll
  for (int from = 0; from < kQueries; from += kTogether) {
    if (from >= count) break;
    __syncthreads();  // the weights, or the queries before these, are done with
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int column = (c * kWarpSize + lane) * kCount;
        if (column < dim)
          store_chunk<kCount>(shared.work + (warp * kTogether + i) * stride + column, sums[from + i][c]);
      }
    }
    __syncthreads();
    add_and_write<kQueries, kTogether>(a, pass, partition, row, position, from, count, shared);
  }
}

template <int kQueries, int kCount, int kChunks>
__global__ void __launch_bounds__(kThreads, 2) paged_attention_kernel(AttentionArgs a, Partitions pass) {
  SIMT_DYN_SHARED(float, memory);
  const int dim = a.shape.head_dim, kv = blockIdx.y, warp = threadIdx.x / kWarpSize;
  const Shared shared =
      share<kQueries>(memory, kQueries * padded(dim), work_floats(kQueries, dim), a.shape.q_heads);
  const Tile tile(a, pass);
  if (tile.count == 0) return;
  const int64_t row = tile.row;
  const int32_t position = tile.position;
  list_heads(a.shape, kv, shared);
  __syncthreads();
  const int queries = tile.count * *shared.num_heads;
  for (int from = 0; from < queries; from += kQueries) {
    const int count = min(queries - from, kQueries);
    load_queries<kQueries>(a, row, from, count, shared);
    // The rows of these queries: what all of them see of a block decides whether anything must be guarded.
    const Sight earliest(a.shape, position + shared.query_row[0]);
    const Sight latest(a.shape, position + shared.query_row[count - 1]);
    for (int part = tile.first_part + blockIdx.z; part <= tile.last_part; part += gridDim.z) {
      const int index = part * kWarps + warp;
      const int begin = earliest.begin(index), end = latest.end(index);
      Chunk<float, kCount> sums[kQueries][kChunks] = {};
      if (begin < end) {
        const int64_t base = (int64_t{tile.table[index]} * a.shape.kv_heads + kv) * dim * kKvBlockSize;
        const float* keys = static_cast<const float*>(a.cache.keys) + base;
        weigh_block<kQueries>(a, keys, index, position, count, begin, end, shared);
        const float* values = static_cast<const float*>(a.cache.values) + base;
        if (latest.begin(index) == begin && earliest.end(index) == end) {
          add_values<false>(a, values, index, position, begin, end, shared, sums);
        } else {
          add_values<true>(a, values, index, position, begin, end, shared, sums);
        }
      }
      __syncthreads();
      combine_warps<kQueries>(a.shape, part, position, shared);
      add_warps(a, pass, part, row, position, count, shared, sums);
      __syncthreads();
    }
  }
}

/// One block a (row, query head): dead rows to zero, and partitions' results added in ascending order.
__global__ void merge_partitions_kernel(AttentionArgs a, Partitions pass) {
  SIMT_DYN_SHARED(float, factors);  // [partitions]
  const int64_t row = pass.first_row + blockIdx.x;
  if (row >= min(pass.end_row, int64_t{*a.rows.num_rows})) return;
  const int head = blockIdx.y, dim = a.shape.head_dim, lane = threadIdx.x % kWarpSize;
  const int32_t position = a.rows.positions[row];
  float* out = a.out + row * a.out_stride + int64_t{head} * dim;
  if (position < 0) {
    for (int d = threadIdx.x; d < dim; d += blockDim.x) out[d] = 0.0f;
    return;
  }
  const Sight sight(a.shape, position);
  const int first = sight.first_partition(), last = sight.last_partition();
  if (first == last) return;  // written by the kernel before
  const int64_t states = (blockIdx.x * int64_t{a.shape.q_heads} + head) * pass.count;
  float highest = -INFINITY;
  for (int p = first + lane; p <= last; p += kWarpSize) highest = fmaxf(highest, pass.maxima[states + p]);
  highest = warp_max(highest);
  for (int p = first + threadIdx.x; p <= last; p += blockDim.x) factors[p] = rescale(pass.maxima[states + p], highest);
  __syncthreads();
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float sum = 0.0f, mass = 0.0f;
#pragma unroll 4
    for (int p = first; p <= last; ++p) {
      sum = fmaf(factors[p], pass.values[(states + p) * dim + d], sum);
      mass = fmaf(factors[p], pass.masses[states + p], mass);
    }
    const float value = sum / mass;
    out[d] = round_to_dtype(a.round_to, value);
  }
}

constexpr int kMergeThreads = 128;
constexpr int64_t kMaxPartitions = 12 * 1024;  // their factors fill the shared memory that every device has

template <int kQueries, int kCount, int kChunks>
void launch_passes(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const size_t shared = fp32_shared_bytes(kQueries, args.shape.head_dim, args.shape.q_heads);
  for_each_pass(args, scratch, kQueries, stream, [&](dim3 grid, const Partitions& pass) {
    simt::launch(paged_attention_kernel<kQueries, kCount, kChunks>, grid, dim3(kThreads), shared, stream, args, pass);
  });
}

/// Few queries where a step's rows are few and so hardly ever of one slot; the bits are the same.
template <int kMostQueries, int kCount, int kChunks>
void launch_queries(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  constexpr int64_t kFewRows = 64;
  if (args.rows.max_rows <= kFewRows && args.shape.q_heads <= 4 * args.shape.kv_heads) {
    return launch_passes<4, kCount, kChunks>(args, scratch, stream);
  }
  launch_passes<kMostQueries, kCount, kChunks>(args, scratch, stream);
}

void attend_fp32(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const int dim = args.shape.head_dim;
  if (dim == 256) return launch_queries<8, 4, 2>(args, scratch, stream);
  if (dim == 128) return launch_queries<16, 4, 1>(args, scratch, stream);
  if (dim == 64) return launch_queries<16, 2, 1>(args, scratch, stream);
  if (dim <= 32) return launch_queries<16, 1, 1>(args, scratch, stream);
  if (dim <= 128) return launch_queries<16, 1, 4>(args, scratch, stream);
  launch_queries<8, 1, 8>(args, scratch, stream);
}

}  // namespace

void merge_partitions(const AttentionArgs& args, const Partitions& pass, simt::Stream stream) {
  simt::launch(merge_partitions_kernel,
               dim3(static_cast<unsigned>(pass.end_row - pass.first_row), static_cast<unsigned>(args.shape.q_heads)),
               dim3(kMergeThreads), static_cast<size_t>(pass.count) * sizeof(float), stream, args, pass);
}

}  // namespace helios::attention

namespace helios {

int64_t attention_scratch_bytes(const AttentionShape& shape, const AttentionRows& rows, int) {
  return attention::rows_a_pass(shape, rows) * attention::state_bytes_a_row(shape, attention::partitions_of(rows));
}

void paged_attention(const AttentionArgs& args, void* scratch, const Launcher& on) {
  const int dim = args.shape.head_dim;
  HELIOS_CHECK(dim >= 1 && dim <= attention::kMaxHeadDim, dim);
  HELIOS_CHECK(args.shape.q_heads <= attention::kMaxQueryHeads, args.shape.q_heads);
  HELIOS_CHECK(attention::partitions_of(args.rows) <= attention::kMaxPartitions, args.rows.max_blocks);
  if (args.rows.max_rows == 0 || args.shape.q_heads == 0 || args.shape.kv_heads == 0) return;
  const auto stream = static_cast<simt::Stream>(on.stream());
  auto* states = static_cast<float*>(scratch);
  if (args.cache.dtype == DType::kBFloat16) return attention::attend_bf16(args, states, stream);
  attention::attend_fp32(args, states, stream);
}

}  // namespace helios
