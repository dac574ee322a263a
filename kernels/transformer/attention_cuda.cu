// Paged attention on CUDA: partitions of 256 absolute positions, a warp for each of a partition's eight KV blocks.
//
// One block a (tile of rows, KV head, split): the query heads that share the KV head, of the rows of one slot whose
// positions lie in one aligned group, go through its keys and values together; splits take every n-th partition, so
// that one long sequence fills the device. A warp scores its 32 positions (a lane a position, keys transposed: 128
// bytes a load), weighs the values (a lane some columns, up to 16 bytes each), from nothing; the block adds its warps'
// results in ascending order, and a second kernel the partitions in ascending order. So the order of operations depends
// on a row's position alone, in decode and prefill, whatever the tile, the splits and the batch (X1). Softmax in FP32.
// Positions that a query does not see are never multiplied into it. Bytes a (tile, KV head): 8 * head_dim * visible
// positions.
#include <algorithm>

#include "common/base/check.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/base/vector_access.cuh"
#include "kernels/transformer/attention.h"

namespace helios {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPartition = kWarps * kKvBlockSize;  // positions
constexpr int kMaxHeadDim = 256;
constexpr int kTogether = 4;  // queries whose warps' results lie in shared memory at once
static_assert(kKvBlockSize == kWarpSize, "a lane scores one position of a KV block");

constexpr int64_t kBlocksWanted = 4096;               // of a grid: enough to fill a device, cheap to leave empty
constexpr int64_t kMaxStateBytes = int64_t{1} << 28;  // of partitions' results; more rows take more passes

/// Results of partitions, for rows that see more than one: [pass rows, q_heads, partitions] of each.
struct Partitions {
  int32_t count = 0;                   // of a row that sees everything
  float* values = nullptr;             // [.., head_dim] sums of e^(score - max) * value
  float* maxima = nullptr;             // [..]
  float* masses = nullptr;             // [..] sums of e^(score - max)
  int64_t first_row = 0, end_row = 0;  // of this pass
  int32_t tile_rows = 1;
};

/// What a row sees.
struct Sight {
  int32_t first, last;  // positions
  __device__ Sight(const AttentionShape& s, int32_t position)
      : first(s.window > 0 && position >= s.window ? position - s.window + 1 : 0), last(position) {}
  __device__ int first_partition() const { return first / kPartition; }
  __device__ int last_partition() const { return last / kPartition; }
  /// Of KV block `index`: positions [begin, end) within the block; empty when begin >= end.
  __device__ int begin(int index) const { return max(first - index * kKvBlockSize, 0); }
  __device__ int end(int index) const { return min(last + 1 - index * kKvBlockSize, kKvBlockSize); }
};

__device__ inline float warp_max(float value) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}
__device__ inline float warp_sum(float value) {
  for (int step = kWarpSize / 2; step > 0; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
  return value;
}
/// Factor for what was summed under `own`; nothing was where it is -inf.
__device__ inline float rescale(float own, float common) { return own == -INFINITY ? 0.0f : expf(own - common); }

/// A block's dynamic shared memory.
struct Shared {
  float* queries;       // [kQueries, padded]
  float* work;          // weights [kWarps, kKvBlockSize, kQueries], then sums [kWarps, kTogether, padded]
  float* maxima;        // [kWarps, kQueries], and the partition's [kQueries]
  float* masses;        // the same
  float* factors;       // [kWarps, kQueries]
  int32_t* query_row;   // [kQueries] within the tile
  int32_t* query_head;  // [kQueries]
  int32_t* heads;       // [q_heads] those of this KV head
  int32_t* num_heads;   // [1]
};

constexpr int padded(int head_dim) { return (head_dim + 3) / 4 * 4; }
constexpr int work_floats(int queries, int head_dim) {
  const int weights = kWarps * kKvBlockSize * queries, sums = kWarps * kTogether * padded(head_dim);
  return weights > sums ? weights : sums;
}
constexpr size_t shared_bytes(int queries, int head_dim, int q_heads) {
  return sizeof(float) * (queries * padded(head_dim) + work_floats(queries, head_dim) + 2 * (kWarps + 1) * queries +
                          kWarps * queries + 2 * queries + q_heads + 1);
}
// Within what every device gives without asking.
constexpr int kMaxQueryHeads = 1024;
constexpr size_t kMaxSharedBytes = 48 << 10;
static_assert(shared_bytes(16, 128, kMaxQueryHeads) <= kMaxSharedBytes);
static_assert(shared_bytes(8, kMaxHeadDim, kMaxQueryHeads) <= kMaxSharedBytes);
template <int kQueries>
__device__ Shared share(float* base, const AttentionShape& s) {
  Shared out;
  out.queries = base;
  out.work = out.queries + kQueries * padded(s.head_dim);
  out.maxima = out.work + work_floats(kQueries, s.head_dim);
  out.masses = out.maxima + (kWarps + 1) * kQueries;
  out.factors = out.masses + (kWarps + 1) * kQueries;
  out.query_row = reinterpret_cast<int32_t*>(out.factors + kWarps * kQueries);
  out.query_head = out.query_row + kQueries;
  out.heads = out.query_head + kQueries;
  out.num_heads = out.heads + s.q_heads;
  return out;
}

/// Rows of the tile that begins at `row`; 0 where a row before it leads. A tile's rows are one slot's, at ascending
/// positions of one aligned group.
__device__ int rows_of_tile(const AttentionRows& rows, const Partitions& pass, int64_t row, int64_t end) {
  const int32_t slot = rows.slots[row], position = rows.positions[row];
  if (row > pass.first_row && position % pass.tile_rows != 0 && rows.slots[row - 1] == slot &&
      rows.positions[row - 1] == position - 1) {
    return 0;
  }
  int count = 1;
  while (row + count < end && (position + count) % pass.tile_rows != 0 && rows.slots[row + count] == slot &&
         rows.positions[row + count] == position + count) {
    ++count;
  }
  return count;
}

/// The query heads that read `kv`, ascending; by the first warp.
__device__ void list_heads(const AttentionShape& s, int kv, const Shared& shared) {
  if (threadIdx.x >= kWarpSize) return;
  int count = 0;
  for (int from = 0; from < s.q_heads; from += kWarpSize) {
    const int head = from + threadIdx.x;
    const bool mine = head < s.q_heads && s.kv_of_q[head] == kv;
    const unsigned all = __ballot_sync(~0u, mine);
    if (mine) shared.heads[count + __popc(all & ((1u << threadIdx.x) - 1))] = head;
    count += __popc(all);
  }
  if (threadIdx.x == 0) *shared.num_heads = count;
}

/// Queries [begin, begin + count) of the tile, row by row, into shared memory; zeros behind them.
template <int kQueries>
__device__ void load_queries(const AttentionArgs& a, int64_t row, int begin, int count, const Shared& shared) {
  const int dim = a.shape.head_dim, stride = padded(dim), num_heads = *shared.num_heads;
  if (threadIdx.x < kQueries) {
    const int query = min(begin + static_cast<int>(threadIdx.x), begin + count - 1);
    shared.query_row[threadIdx.x] = query / num_heads;
    shared.query_head[threadIdx.x] = shared.heads[query % num_heads];
  }
  __syncthreads();
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

/// The warps of a partition that hold what a query sees of it: [begin, end).
struct WarpRange {
  int begin, end;
  __device__ WarpRange(const Sight& sight, int partition)
      : begin(max(sight.first / kKvBlockSize - partition * kWarps, 0)),
        end(min(sight.last / kKvBlockSize - partition * kWarps + 1, kWarps)) {}
};

/// Each query's maximum and mass over the partition, and the factor of each warp. After weigh_block().
template <int kQueries>
__device__ void combine_warps(const AttentionShape& s, int partition, int32_t position, const Shared& shared) {
  for (int i = threadIdx.x; i < kWarps * kQueries; i += kThreads) {
    const int warp = i / kQueries, q = i % kQueries;
    const WarpRange range(Sight(s, position + shared.query_row[q]), partition);
    float highest = -INFINITY;
    for (int w = range.begin; w < range.end; ++w) highest = fmaxf(highest, shared.maxima[w * kQueries + q]);
    shared.factors[i] = warp >= range.begin && warp < range.end ? rescale(shared.maxima[i], highest) : 0.0f;
    if (warp != 0) continue;
    float mass = 0.0f;
    for (int w = range.begin; w < range.end; ++w) {
      mass = fmaf(shared.masses[w * kQueries + q], rescale(shared.maxima[w * kQueries + q], highest), mass);
    }
    shared.maxima[kWarps * kQueries + q] = highest;
    shared.masses[kWarps * kQueries + q] = mass;
  }
}

/// One element of a query's result over a partition: to the output where the query sees no other, else to the states.
template <int kQueries>
__device__ void write_element(const AttentionArgs& a, const Partitions& pass, int partition, int64_t row,
                              int32_t position, int q, int d, float sum, const Shared& shared) {
  const Sight sight(a.shape, position + shared.query_row[q]);
  const int64_t own_row = row + shared.query_row[q];
  const int head = shared.query_head[q], dim = a.shape.head_dim;
  const float mass = shared.masses[kWarps * kQueries + q];
  if (sight.first_partition() == sight.last_partition()) {
    const float value = sum / mass;
    a.out[own_row * a.out_stride + int64_t{head} * dim + d] = a.round_bf16 ? round_to_bf16(value) : value;
    return;
  }
  const int64_t state = ((own_row - pass.first_row) * a.shape.q_heads + head) * pass.count + partition;
  pass.values[state * dim + d] = sum;
  if (d == 0) {
    pass.maxima[state] = shared.maxima[kWarps * kQueries + q];
    pass.masses[state] = mass;
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
    for (int e = threadIdx.x; e < kTogether * dim; e += kThreads) {
      const int i = e / dim, d = e % dim, q = from + i;
      if (q >= count) break;
      const WarpRange range(Sight(a.shape, position + shared.query_row[q]), partition);
      if (range.begin >= range.end) continue;  // another row of the tile reaches into this partition
      float sum = 0.0f;
      for (int w = range.begin; w < range.end; ++w) {
        sum = fmaf(shared.factors[w * kQueries + q], shared.work[(w * kTogether + i) * stride + d], sum);
      }
      write_element<kQueries>(a, pass, partition, row, position, q, d, sum, shared);
    }
  }
}

template <int kQueries, int kCount, int kChunks>
__global__ void __launch_bounds__(kThreads, 2) paged_attention_kernel(AttentionArgs a, Partitions pass) {
  SIMT_DYN_SHARED(float, memory);
  const Shared shared = share<kQueries>(memory, a.shape);
  const int64_t row = pass.first_row + blockIdx.x, end_row = min(pass.end_row, int64_t{*a.rows.num_rows});
  const int kv = blockIdx.y, warp = threadIdx.x / kWarpSize;
  if (row >= end_row) return;
  const int32_t position = a.rows.positions[row];
  if (position < 0) return;
  const int tile = rows_of_tile(a.rows, pass, row, end_row);
  if (tile == 0) return;
  const int32_t first = Sight(a.shape, position).first, last = position + tile - 1;  // of the whole tile
  if (first / kPartition + static_cast<int>(blockIdx.z) > last / kPartition) return;
  const int32_t* table = a.rows.block_tables + static_cast<int64_t>(a.rows.slots[row]) * a.rows.max_blocks;
  list_heads(a.shape, kv, shared);
  __syncthreads();
  const int queries = tile * *shared.num_heads;
  for (int from = 0; from < queries; from += kQueries) {
    const int count = min(queries - from, kQueries);
    load_queries<kQueries>(a, row, from, count, shared);
    // The rows of these queries: what all of them see of a block decides whether anything must be guarded.
    const Sight earliest(a.shape, position + shared.query_row[0]);
    const Sight latest(a.shape, position + shared.query_row[count - 1]);
    for (int part = first / kPartition + blockIdx.z; part <= last / kPartition; part += gridDim.z) {
      const int index = part * kWarps + warp;
      const int begin = earliest.begin(index), end = latest.end(index);
      Chunk<float, kCount> sums[kQueries][kChunks] = {};
      if (begin < end) {
        const int64_t base = (int64_t{table[index]} * a.shape.kv_heads + kv) * a.shape.head_dim * kKvBlockSize;
        weigh_block<kQueries>(a, a.cache.keys + base, index, position, count, begin, end, shared);
        const float* values = a.cache.values + base;
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
    out[d] = a.round_bf16 ? round_to_bf16(value) : value;
  }
}

constexpr int kMergeThreads = 128;
constexpr int64_t kMaxPartitions = 12 * 1024;  // their factors fill the shared memory that every device has

int64_t state_bytes_a_row(const AttentionShape& s, int64_t partitions) {
  return partitions > 1 ? partitions * s.q_heads * (s.head_dim + 2) * static_cast<int64_t>(sizeof(float)) : 0;
}
int64_t partitions_of(const AttentionRows& rows) {
  return std::max<int64_t>((rows.max_blocks + kWarps - 1) / kWarps, 1);
}
int64_t rows_a_pass(const AttentionShape& s, const AttentionRows& rows) {
  const int64_t row_bytes = state_bytes_a_row(s, partitions_of(rows));
  return row_bytes == 0 ? rows.max_rows
                        : std::clamp<int64_t>(kMaxStateBytes / row_bytes, 1, std::max<int64_t>(rows.max_rows, 1));
}

template <int kQueries, int kCount, int kChunks>
void launch_passes(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const AttentionShape& s = args.shape;
  const int64_t partitions = partitions_of(args.rows), step = rows_a_pass(s, args.rows);
  const int64_t states = step * s.q_heads * partitions;
  const int64_t splits = std::clamp<int64_t>(kBlocksWanted / (step * s.kv_heads), 1, partitions);
  const int group = (s.q_heads + s.kv_heads - 1) / s.kv_heads;
  Partitions pass{static_cast<int32_t>(partitions), scratch, scratch + states * s.head_dim,
                  scratch + states * (s.head_dim + 1)};
  pass.tile_rows = std::max(kQueries / group, 1);
  for (int64_t first = 0; first < args.rows.max_rows; first += step) {
    pass.first_row = first, pass.end_row = std::min(first + step, args.rows.max_rows);
    const auto rows = static_cast<unsigned>(pass.end_row - first);
    simt::launch(paged_attention_kernel<kQueries, kCount, kChunks>,
                 dim3(rows, static_cast<unsigned>(s.kv_heads), static_cast<unsigned>(splits)), dim3(kThreads),
                 shared_bytes(kQueries, s.head_dim, s.q_heads), stream, args, pass);
    simt::launch(merge_partitions_kernel, dim3(rows, static_cast<unsigned>(s.q_heads)), dim3(kMergeThreads),
                 static_cast<size_t>(partitions) * sizeof(float), stream, args, pass);
  }
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

}  // namespace

int64_t attention_scratch_bytes(const AttentionShape& shape, const AttentionRows& rows, int) {
  return rows_a_pass(shape, rows) * state_bytes_a_row(shape, partitions_of(rows));
}

void paged_attention(const AttentionArgs& args, void* scratch, const Launcher& on) {
  const int dim = args.shape.head_dim;
  HELIOS_CHECK(dim >= 1 && dim <= kMaxHeadDim, dim);
  HELIOS_CHECK(args.shape.q_heads <= kMaxQueryHeads, args.shape.q_heads);
  HELIOS_CHECK(partitions_of(args.rows) <= kMaxPartitions, args.rows.max_blocks);
  if (args.rows.max_rows == 0 || args.shape.q_heads == 0 || args.shape.kv_heads == 0) return;
  const auto stream = static_cast<simt::Stream>(on.stream());
  auto* states = static_cast<float*>(scratch);
  if (dim == 256) return launch_queries<8, 4, 2>(args, states, stream);
  if (dim == 128) return launch_queries<16, 4, 1>(args, states, stream);
  if (dim == 64) return launch_queries<16, 2, 1>(args, states, stream);
  if (dim <= 32) return launch_queries<16, 1, 1>(args, states, stream);
  if (dim <= 128) return launch_queries<16, 1, 4>(args, states, stream);
  launch_queries<8, 1, 8>(args, states, stream);
}

}  // namespace helios
