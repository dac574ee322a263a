// Paged attention on CUDA over a BF16 cache, on tensor cores; how the work is cut: attention_tiles.cuh.
//
// The cache alone is BF16. A query and a softmax weight are FP32: each goes as three BF16 pieces whose sum it is
// exactly, smallest first, into one FP32 accumulator, so that every product is the FP32 one's. (A query that was
// rounded to BF16 is its first piece.) Softmax in FP32.
//
// A warp takes 16 queries through its 32 positions without shared memory: which positions and columns a fragment's
// indices stand for is free, so lane (g, t) of the warp loads 8 bytes of four neighbours at a time, keys 4g to 4g + 3
// of four columns, values' columns 4g to 4g + 3 of four positions, and the scores that come out in a lane are the
// weights that it has to bring. Bytes a (tile, KV head): 4 * head_dim * visible positions.
//
// A query meets the same instructions in the same order wherever its row is and whatever the rows beside it (X1): a row
// of a product does not read another row's, and unseen positions have weight zero. Zero times infinity or NaN would be
// NaN: such values are left out of a block that some query of the tile does not see all of, and the sums of those that
// do see them are made NaN.
#include "kernels/base/tensor_core.cuh"
#include "kernels/transformer/attention_tiles.cuh"

namespace helios::attention {
namespace {

constexpr int kQueries = 16;                 // rows of a fragment
constexpr int kStep = 16;                    // columns that one instruction adds up
constexpr int kPieces = 3;                   // of an FP32 number
constexpr int kGroup = 32;                   // columns of values: four fragments of eight
constexpr int kWordsAStep = kPieces * kWarpSize * 4;

constexpr int steps_of(int head_dim) { return (head_dim + kStep - 1) / kStep; }
constexpr int together_of(int groups) { return groups > 4 ? 2 : 4; }  // queries whose sums lie in shared memory at once
constexpr int sum_floats(int groups) { return kWarps * together_of(groups) * groups * kGroup; }
constexpr size_t tensor_shared_bytes(int groups, int head_dim, int q_heads) {
  return shared_bytes(kQueries, steps_of(head_dim) * kWordsAStep, sum_floats(groups), q_heads);
}
static_assert(tensor_shared_bytes(8, kMaxHeadDim, kMaxQueryHeads) <= kMaxSharedBytes);

/// Two numbers' pieces, the smallest first; with the others in order they add up to them exactly.
__device__ inline void split(float low, float high, uint32_t (&pieces)[kPieces]) {
#pragma unroll
  for (int p = kPieces - 1; p >= 0; --p) {
    pieces[p] = pack_bf16(low, high);
    low -= __uint_as_float(pieces[p] << 16);
    high -= __uint_as_float(pieces[p] & 0xffff0000u);
  }
}

/// Queries [begin, begin + count) of the tile into shared memory as fragments [steps, kPieces, lanes, 4 words]; zeros
/// behind them. Word w of lane (g, t): columns 4t + (w / 2) * 2 and the next of query g + (w % 2) * 8.
__device__ inline void load_fragments(const AttentionArgs& a, int64_t row, int begin, int count, const Shared& shared) {
  const int dim = a.shape.head_dim;
  name_queries<kQueries>(begin, count, shared);
  uint32_t* words = reinterpret_cast<uint32_t*>(shared.queries);
  for (int i = threadIdx.x; i < steps_of(dim) * kWarpSize * 4; i += kThreads) {
    const int step = i / (kWarpSize * 4), lane = i / 4 % kWarpSize, word = i % 4;
    const int q = lane / 4 + word % 2 * 8, d = step * kStep + lane % 4 * 4 + word / 2 * 2;
    const float* from = a.qkv + (row + shared.query_row[q]) * a.qkv_stride + int64_t{shared.query_head[q]} * dim;
    uint32_t pieces[kPieces];
    split(q < count && d < dim ? from[d] : 0.0f, q < count && d + 1 < dim ? from[d + 1] : 0.0f, pieces);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) words[((step * kPieces + p) * kWarpSize + lane) * 4 + word] = pieces[p];
  }
  __syncthreads();
}

/// Four neighbours of each of four lines, as fragments b0 and b1 of four products: product n has neighbour n.
struct Lines {
  Chunk<uint16_t, 4> at[4];
  __device__ uint32_t word(int n, int half) const {
    return at[2 * half].at[n] | static_cast<uint32_t>(at[2 * half + 1].at[n]) << 16;
  }
};

/// Elements [column, column + 4) of a line of `width`; zeros behind its end, or all where not `read`.
__device__ inline Chunk<uint16_t, 4> load_four(const uint16_t* line, int column, int width, bool read) {
  Chunk<uint16_t, 4> four = {};
  if (!read || column >= width) return four;
  if (width % 4 == 0) return load_chunk<4>(line + column);
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = column + i < width ? line[column + i] : uint16_t{0};
  return four;
}

/// Positions 8t + 4 * step to 8t + 4 * step + 3 of a block's values, as far as they lie in [begin, end).
__device__ inline Lines load_values(const uint16_t* values, int dim, int group, int step, int begin, int end) {
  const int lane = threadIdx.x % kWarpSize, first = lane % 4 * 8 + step * 4, column = group * kGroup + lane / 4 * 4;
  Lines lines;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = first + i;
    lines.at[i] = load_four(values + j * dim, column, dim, j >= begin && j < end);
  }
  return lines;
}

__device__ inline bool is_finite(uint16_t bf16) { return (bf16 & 0x7f80u) != 0x7f80u; }

__device__ inline void keep_finite(Lines& lines) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int n = 0; n < 4; ++n) lines.at[i].at[n] = is_finite(lines.at[i].at[n]) ? lines.at[i].at[n] : uint16_t{0};
  }
}

/// The queries of this lane: rows g and g + 8 of the fragments.
struct LaneQuery {
  int index, row;
  bool live;
  __device__ LaneQuery(int upper, int count, const Shared& shared)
      : index(threadIdx.x % kWarpSize / 4 + upper * 8), row(shared.query_row[index]), live(index < count) {}
};

/// scores[n][c]: of positions 8t + (c % 2) * 4 + n of the warp's KV block, and query g + (c / 2) * 8; unscaled.
__device__ inline void score_block(const AttentionArgs& a, const uint16_t* keys, int begin, int end,
                                   const Shared& shared, float (&scores)[4][4]) {
  const int lane = threadIdx.x % kWarpSize, dim = a.shape.head_dim, first = lane / 4 * 4;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(shared.queries);
  const bool read = first < end && first + 4 > begin;  // what of the four nobody sees, no score is made of
#pragma unroll 2
  for (int step = 0; step < steps_of(dim); ++step) {
    const int column = step * kStep + lane % 4 * 4;
    Lines lines;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lines.at[i] = load_four(keys + (column + i) * kKvBlockSize, first, kKvBlockSize, read && column + i < dim);
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (a.round_to == DType::kBFloat16 && p < kPieces - 1) continue;  // zeros
      const Chunk<uint32_t, 4> query = load_chunk<4>(words + ((step * kPieces + p) * kWarpSize + lane) * 4);
#pragma unroll
      for (int n = 0; n < 4; ++n) multiply_add_bf16(scores[n], query.at, lines.word(n, 0), lines.word(n, 1));
    }
  }
}

/// Scores to weights e^(score - max), in place, with each query's maximum and mass into shared memory.
__device__ inline void weigh_block(const AttentionArgs& a, int index, int32_t position, int count, const Shared& shared,
                                   float (&scores)[4][4]) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const LaneQuery query(upper, count, shared);
    const Sight sight(a.shape, position + query.row);
    const int begin = sight.begin(index), end = sight.end(index);
    float highest = -INFINITY, mass = 0.0f;
#pragma unroll
    for (int c = 2 * upper; c < 2 * upper + 2; ++c) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int j = lane % 4 * 8 + c % 2 * 4 + n;
        scores[n][c] = query.live && j >= begin && j < end ? scores[n][c] * a.shape.scale : -INFINITY;
        highest = fmaxf(highest, scores[n][c]);
      }
    }
    for (int step = 1; step < 4; step <<= 1) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
#pragma unroll
    for (int c = 2 * upper; c < 2 * upper + 2; ++c) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        scores[n][c] = scores[n][c] == -INFINITY ? 0.0f : expf(scores[n][c] - highest);
        mass += scores[n][c];
      }
    }
    for (int step = 1; step < 4; step <<= 1) mass += __shfl_xor_sync(~0u, mass, step);
    if (lane % 4 == 0) {
      shared.maxima[warp * kQueries + query.index] = highest;
      shared.masses[warp * kQueries + query.index] = mass;
    }
  }
}

/// sums += weights * values over positions [begin, end) of the warp's KV block; `finite`: without values that are not.
/// sums[n][c] of a group: its column 8t + (c % 2) * 4 + n, query g + (c / 2) * 8.
template <int kGroups>
__device__ void add_values(const uint16_t* values, int dim, int begin, int end, bool finite,
                           const float (&weights)[4][4], float (&sums)[kGroups][4][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t pieces[4][kPieces];  // of the words of a fragment
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int n = w / 2 * 2, c = step + w % 2 * 2;
      split(weights[n][c], weights[n + 1][c], pieces[w]);
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * kGroup >= dim) break;
      Lines lines = load_values(values, dim, group, step, begin, end);
      if (finite) keep_finite(lines);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const uint32_t a[4] = {pieces[0][p], pieces[1][p], pieces[2][p], pieces[3][p]};
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply_add_bf16(sums[group][n], a, lines.word(n, 0), lines.word(n, 1));
      }
    }
  }
}

/// Whether the values in [begin, end) are finite. The same for every lane.
__device__ inline bool all_finite(const uint16_t* values, int dim, int begin, int end) {
  bool finite = true;
  for (int i = begin * dim + threadIdx.x % kWarpSize; i < end * dim; i += kWarpSize) finite &= is_finite(values[i]);
  return __all_sync(~0u, finite);
}

/// NaN to the sums of queries that see a value of their column which is not finite.
template <int kGroups>
__device__ void spoil_sums(const AttentionArgs& a, const uint16_t* values, int index, int32_t position, int count,
                           const Shared& shared, float (&sums)[kGroups][4][4]) {
  const int lane = threadIdx.x % kWarpSize, dim = a.shape.head_dim;
  const Sight low(a.shape, position + LaneQuery(0, count, shared).row);
  const Sight high(a.shape, position + LaneQuery(1, count, shared).row);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    unsigned spoilt[2] = {};  // of the lower query's sums and the upper's: bit c % 2 * 4 + n
#pragma unroll 1
    for (int j = 0; j < kKvBlockSize; ++j) {
      const bool seen[2] = {j >= low.begin(index) && j < low.end(index), j >= high.begin(index) && j < high.end(index)};
      const int column = group * kGroup + lane % 4 * 8;
      unsigned found = 0;
      for (int i = 0; i < 8 && (seen[0] || seen[1]); ++i) {
        if (column + i < dim && !is_finite(values[j * dim + column + i])) found |= 1u << i;
      }
      for (int upper = 0; upper < 2; ++upper) spoilt[upper] |= seen[upper] ? found : 0u;
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (spoilt[c / 2] >> (c % 2 * 4 + n) & 1) sums[group][n][c] = NAN;
      }
    }
  }
}

/// Adds the warps' sums in ascending order, a few queries at a time, and writes the results.
template <int kGroups>
__device__ void add_warps(const AttentionArgs& a, const Partitions& pass, int partition, int64_t row, int32_t position,
                          int count, const Shared& shared, const float (&sums)[kGroups][4][4]) {
  constexpr int kTogether = together_of(kGroups);
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int dim = a.shape.head_dim, stride = padded(dim);
#pragma unroll
  for (int from = 0; from < kQueries; from += kTogether) {
    if (from >= count) break;
    __syncthreads();  // the queries before these are done with
    const int q = lane / 4 + from / 8 * 8, upper = from / 8;
    if (q >= from && q < from + kTogether) {
      float* to = shared.work + (warp * kTogether + q - from) * stride;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int column = group * kGroup + lane % 4 * 8 + c * 4;
          if (column >= dim) continue;
          const auto sum = [&](int n) { return upper ? sums[group][n][2 + c] : sums[group][n][c]; };
          store_chunk<4>(to + column, Chunk<float, 4>{{sum(0), sum(1), sum(2), sum(3)}});
        }
      }
    }
    __syncthreads();
    add_and_write<kQueries, kTogether>(a, pass, partition, row, position, from, count, shared);
  }
}

// Sums of 256 columns take 128 registers: one block of them fits a multiprocessor, two of the others.
template <int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups > 4 ? 1 : 2) tensor_attention_kernel(AttentionArgs a,
                                                                                         Partitions pass) {
  SIMT_DYN_SHARED(float, memory);
  const int dim = a.shape.head_dim, kv = blockIdx.y, warp = threadIdx.x / kWarpSize;
  const Shared shared = share<kQueries>(memory, steps_of(dim) * kWordsAStep, sum_floats(kGroups), a.shape.q_heads);
  const Tile tile(a, pass);
  if (tile.count == 0) return;
  list_heads(a.shape, kv, shared);
  __syncthreads();
  const int queries = tile.count * *shared.num_heads;
  for (int from = 0; from < queries; from += kQueries) {
    const int count = min(queries - from, kQueries);
    load_fragments(a, tile.row, from, count, shared);
    const Sight earliest(a.shape, tile.position + shared.query_row[0]);
    const Sight latest(a.shape, tile.position + shared.query_row[count - 1]);
    for (int part = tile.first_part + blockIdx.z; part <= tile.last_part; part += gridDim.z) {
      const int index = part * kWarps + warp;
      const int begin = earliest.begin(index), end = latest.end(index);
      float sums[kGroups][4][4] = {};
      if (begin < end) {
        const int64_t base = (int64_t{tile.table[index]} * a.shape.kv_heads + kv) * dim * kKvBlockSize;
        const uint16_t* values = static_cast<const uint16_t*>(a.cache.values) + base;
        float weights[4][4] = {};
        score_block(a, static_cast<const uint16_t*>(a.cache.keys) + base, begin, end, shared, weights);
        weigh_block(a, index, tile.position, count, shared, weights);
        const bool all_see_all = latest.begin(index) == begin && earliest.end(index) == end;
        const bool spoils = !all_see_all && !all_finite(values, dim, begin, end);
        add_values(values, dim, begin, end, spoils, weights, sums);
        if (spoils) spoil_sums(a, values, index, tile.position, count, shared, sums);
      }
      __syncthreads();
      combine_warps<kQueries>(a.shape, part, tile.position, shared);
      add_warps(a, pass, part, tile.row, tile.position, count, shared, sums);
      __syncthreads();
    }
  }
}

template <int kGroups>
void launch_tensor(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const size_t shared = tensor_shared_bytes(kGroups, args.shape.head_dim, args.shape.q_heads);
  for_each_pass(args, scratch, kQueries, stream, [&](dim3 grid, const Partitions& pass) {
    simt::launch(tensor_attention_kernel<kGroups>, grid, dim3(kThreads), shared, stream, args, pass);
  });
}

}  // namespace

void attend_bf16(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const int dim = args.shape.head_dim;
  if (dim <= 32) return launch_tensor<1>(args, scratch, stream);
  if (dim <= 64) return launch_tensor<2>(args, scratch, stream);
  if (dim <= 128) return launch_tensor<4>(args, scratch, stream);
  launch_tensor<8>(args, scratch, stream);
}

}  // namespace helios::attention
