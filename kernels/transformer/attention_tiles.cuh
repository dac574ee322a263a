// What the attention kernels on CUDA share: partitions of 256 absolute positions, the queries that go through them
// together, and the addition of warps' and partitions' results in one order.
//
// One block a (tile of rows, KV head, split): the query heads that share the KV head, of the rows of one slot whose
// positions lie in one aligned group, go through its keys and values together; splits take every n-th partition, so
// that one long sequence fills the device. A block looks for tiles at one row, of large steps at a few.
//
// Each of a partition's eight KV blocks has a warp, which starts from nothing; the block adds its warps' results in
// ascending order, and a second kernel the partitions in ascending order. So the order of operations depends on a row's
// position alone, in decode and prefill, whatever the tile, the splits and the batch (X1).
#pragma once

#include <algorithm>

#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/base/vector_access.cuh"
#include "kernels/transformer/attention.h"

namespace helios::attention {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kPartition = kWarps * kKvBlockSize;  // positions
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxQueryHeads = 1024;
inline constexpr size_t kMaxSharedBytes = 48 << 10;  // what every device gives without asking

/// Results of partitions, for rows that see more than one: [pass rows, q_heads, partitions] of each.
struct Partitions {
  int32_t count = 0;                   // of a row that sees everything
  float* values = nullptr;             // [.., head_dim] sums of e^(score - max) * value
  float* maxima = nullptr;             // [..]
  float* masses = nullptr;             // [..] sums of e^(score - max)
  int64_t first_row = 0, end_row = 0;  // of this pass
  int32_t tile_rows = 1;
  int32_t rows_a_block = 1;                // in which the tiles begin that a block takes
  int32_t above = 0, up_to = 0x7fffffff;   // queries of the tiles that a launch takes: in (above, up_to]
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
  float* queries;       // as the kernel lays them out
  float* work;          // the kernel's own, then sums [kWarps, together, padded]
  float* maxima;        // [kWarps, kQueries], and the partition's [kQueries]
  float* masses;        // the same
  float* factors;       // [kWarps, kQueries]
  int32_t* query_row;   // [kQueries] within the tile
  int32_t* query_head;  // [kQueries]
  int32_t* heads;       // [q_heads] those of this KV head
  int32_t* num_heads;   // [1]
};

constexpr int padded(int head_dim) { return (head_dim + 3) / 4 * 4; }
constexpr size_t shared_bytes(int queries, int query_floats, int work_floats, int q_heads) {
  return sizeof(float) *
         (query_floats + work_floats + 2 * (kWarps + 1) * queries + kWarps * queries + 2 * queries + q_heads + 1);
}
template <int kQueries>
__device__ Shared share(float* base, int query_floats, int work_floats, int q_heads) {
  Shared out;
  out.queries = base;
  out.work = out.queries + query_floats;
  out.maxima = out.work + work_floats;
  out.masses = out.maxima + (kWarps + 1) * kQueries;
  out.factors = out.masses + (kWarps + 1) * kQueries;
  out.query_row = reinterpret_cast<int32_t*>(out.factors + kWarps * kQueries);
  out.query_head = out.query_row + kQueries;
  out.heads = out.query_head + kQueries;
  out.num_heads = out.heads + q_heads;
  return out;
}

/// Rows of the tile that begins at `row`; 0 where a row before it leads. A tile's rows are one slot's, at ascending
/// positions of one aligned group.
__device__ inline int rows_of_tile(const AttentionRows& rows, const Partitions& pass, int64_t row, int64_t end) {
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
__device__ inline void list_heads(const AttentionShape& s, int kv, const Shared& shared) {
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

/// Which queries [begin, begin + count) of the tile are: rows and heads; those behind them repeat the last.
template <int kQueries>
__device__ void name_queries(int begin, int count, const Shared& shared) {
  const int num_heads = *shared.num_heads;
  if (threadIdx.x < kQueries) {
    const int query = min(begin + static_cast<int>(threadIdx.x), begin + count - 1);
    shared.query_row[threadIdx.x] = query / num_heads;
    shared.query_head[threadIdx.x] = shared.heads[query % num_heads];
  }
  __syncthreads();
}

/// The warps of a partition that hold what a query sees of it: [begin, end).
struct WarpRange {
  int begin, end;
  __device__ WarpRange(const Sight& sight, int partition)
      : begin(max(sight.first / kKvBlockSize - partition * kWarps, 0)),
        end(min(sight.last / kKvBlockSize - partition * kWarps + 1, kWarps)) {}
};

/// Each query's maximum and mass over the partition, and the factor of each warp. After the warps have written theirs.
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
    a.out[own_row * a.out_stride + int64_t{head} * dim + d] = round_to_dtype(a.round_to, value);
    return;
  }
  const int64_t state = ((own_row - pass.first_row) * a.shape.q_heads + head) * pass.count + partition;
  pass.values[state * dim + d] = sum;
  if (d == 0) {
    pass.maxima[state] = shared.maxima[kWarps * kQueries + q];
    pass.masses[state] = mass;
  }
}

/// Element by element, queries [from, from + kTogether): adds the warps' sums, which lie in shared.work, and writes.
template <int kQueries, int kTogether>
__device__ void add_and_write(const AttentionArgs& a, const Partitions& pass, int partition, int64_t row,
                              int32_t position, int from, int count, const Shared& shared) {
  const int dim = a.shape.head_dim, stride = padded(dim);
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

/// A block's work at a row: the tile of rows of one slot that begins there; nothing where count is 0.
struct Tile {
  int64_t row;
  int32_t position = 0;                // of the first row; the others follow
  int count = 0;                       // of rows
  int first_part = 0, last_part = 0;   // partitions that the tile sees
  const int32_t* table = nullptr;      // the slot's KV blocks
  __device__ Tile(const AttentionArgs& a, const Partitions& pass, int64_t at) : row(at) {
    const int64_t end_row = min(pass.end_row, int64_t{*a.rows.num_rows});
    if (row >= end_row) return;
    position = a.rows.positions[row];
    if (position < 0) return;
    const int rows = rows_of_tile(a.rows, pass, row, end_row);
    if (rows == 0) return;
    first_part = Sight(a.shape, position).first_partition();
    last_part = (position + rows - 1) / kPartition;
    if (first_part + static_cast<int>(blockIdx.z) > last_part) return;
    table = a.rows.block_tables + static_cast<int64_t>(a.rows.slots[row]) * a.rows.max_blocks;
    count = rows;
  }
};

// Host.
inline constexpr int64_t kBlocksWanted = 4096;               // of a grid: enough to fill a device, cheap to leave empty
inline constexpr int64_t kBlocksToFill = 1024;               // a grid of more has blocks look at several rows each
inline constexpr int64_t kMaxStateBytes = int64_t{1} << 28;  // of partitions' results; more rows take more passes

inline int64_t state_bytes_a_row(const AttentionShape& s, int64_t partitions) {
  return partitions > 1 ? partitions * s.q_heads * (s.head_dim + 2) * static_cast<int64_t>(sizeof(float)) : 0;
}
inline int64_t partitions_of(const AttentionRows& rows) {
  return std::max<int64_t>((rows.max_blocks + kWarps - 1) / kWarps, 1);
}
inline int64_t rows_a_pass(const AttentionShape& s, const AttentionRows& rows) {
  const int64_t row_bytes = state_bytes_a_row(s, partitions_of(rows));
  return row_bytes == 0 ? rows.max_rows
                        : std::clamp<int64_t>(kMaxStateBytes / row_bytes, 1, std::max<int64_t>(rows.max_rows, 1));
}

/// One block a (row, query head): dead rows to zero, and partitions' results added in ascending order.
void merge_partitions(const AttentionArgs& args, const Partitions& pass, simt::Stream stream);

/// Calls launch(grid, pass) and merges the partitions' results, for as many rows at a time as fit `scratch`; a tile has
/// `queries`.
template <class Launch>
void for_each_pass(const AttentionArgs& args, float* scratch, int queries, simt::Stream stream, const Launch& launch) {
  const AttentionShape& s = args.shape;
  const int64_t partitions = partitions_of(args.rows), step = rows_a_pass(s, args.rows);
  const int64_t states = step * s.q_heads * partitions;
  const int group = (s.q_heads + s.kv_heads - 1) / s.kv_heads;
  Partitions pass{static_cast<int32_t>(partitions), scratch, scratch + states * s.head_dim,
                  scratch + states * (s.head_dim + 1)};
  pass.tile_rows = std::max(queries / group, 1);
  const int64_t rows_a_block = std::clamp<int64_t>(step * s.kv_heads / kBlocksToFill, 1, pass.tile_rows);
  pass.rows_a_block = static_cast<int32_t>(rows_a_block);
  const int64_t blocks = (step + rows_a_block - 1) / rows_a_block * s.kv_heads;
  const int64_t splits = std::clamp<int64_t>(kBlocksWanted / blocks, 1, partitions);
  for (int64_t first = 0; first < args.rows.max_rows; first += step) {
    pass.first_row = first, pass.end_row = std::min(first + step, args.rows.max_rows);
    launch(dim3(static_cast<unsigned>((pass.end_row - first + rows_a_block - 1) / rows_a_block),
                static_cast<unsigned>(s.kv_heads), static_cast<unsigned>(splits)),
           pass);
    merge_partitions(args, pass, stream);
  }
}

/// On tensor cores.
void attend(const AttentionArgs& args, float* scratch, simt::Stream stream);

}  // namespace helios::attention
