// Paged attention on CUDA, on tensor cores; how the work is cut: attention_tiles.cuh.
//
// The tensor cores multiply BF16. An FP32 number goes as three BF16 pieces whose sum it is exactly (down to 2^-110 in
// size; what is beyond BF16's largest, 3.39e38, is taken for infinite), one of a BF16 cache as itself. The second piece
// is at most 2^-8 of the number and the third 2^-17, so of the nine products of two numbers' pieces the three smallest
// add up to 2^-24 of the whole at most, FP32's rounding of one product: they are left out. The other six, or all three
// over a BF16 cache, are added over 16 neighbours from zero inside the tensor core, smallest first, since what it adds
// it cuts; such sums of 16 are added in FP32, rounded. Softmax in FP32. So the distance to float64 is no more than that
// of FP32 multiply-adds, which round 16 times where this is cut about twice and rounded once.
//
// A warp takes 16 queries, or 32, through its 32 positions without shared memory: which positions and columns a
// fragment's indices stand for is free, so lane (g, t) of the warp loads four neighbours at a time, keys 4g to 4g + 3
// of four columns, values' columns 4g to 4g + 3 of four positions, and the scores that come out in a lane are the
// weights that it has to bring. Bytes a (tile, KV head): 8 * head_dim * visible positions, of a BF16 cache half.
//
// A query meets the same instructions in the same order wherever its row is and whatever the rows beside it (X1): a row
// of a product does not read another row's, and unseen positions have weight zero. Zero times infinity or NaN would be
// NaN: such values are left out of a block that some query of the tile does not see all of, and the sums of those that
// do see them are made NaN.
#include "kernels/base/tensor_core.cuh"
#include "kernels/transformer/attention_tiles.cuh"

namespace helios::attention {
namespace {

constexpr int kRows = 16;                    // of a fragment: queries
constexpr int kStep = 16;                    // columns that one instruction adds up
constexpr int kPieces = 3;                   // of an FP32 number
constexpr int kGroup = 32;                   // columns of values: four fragments of eight
constexpr int kWordsAStep = kPieces * kWarpSize * 4;

constexpr int steps_of(int head_dim) { return (head_dim + kStep - 1) / kStep; }
constexpr int together_of(int groups) { return groups > 4 ? 2 : 4; }  // queries whose sums lie in shared memory at once
constexpr int sum_floats(int groups) { return kWarps * together_of(groups) * groups * kGroup; }
constexpr size_t tensor_shared_bytes(int fragments, int groups, int head_dim, int q_heads) {
  return shared_bytes(fragments * kRows, fragments * steps_of(head_dim) * kWordsAStep, sum_floats(groups), q_heads);
}
static_assert(tensor_shared_bytes(1, 8, kMaxHeadDim, kMaxQueryHeads) <= kMaxSharedBytes);
static_assert(tensor_shared_bytes(2, 4, 128, kMaxQueryHeads) <= kMaxSharedBytes);

/// Two numbers' pieces, the largest first; they add up to them exactly.
__device__ inline void split(float low, float high, uint32_t (&pieces)[kPieces]) {
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    pieces[p] = pack_bf16(low, high);
    low -= __uint_as_float(pieces[p] << 16);
    high -= __uint_as_float(pieces[p] & 0xffff0000u);
  }
}

/// Queries [begin, begin + count) of the tile into shared memory as fragments [kFragments, steps, kPieces, lanes, 4
/// words]; zeros behind them. Word w of lane (g, t): columns 4t + (w / 2) * 2 and the next of query g + (w % 2) * 8.
template <int kFragments>
__device__ void load_fragments(const AttentionArgs& a, int64_t row, int begin, int count, const Shared& shared) {
  const int dim = a.shape.head_dim;
  name_queries<kFragments * kRows>(begin, count, shared);
  uint32_t* words = reinterpret_cast<uint32_t*>(shared.queries);
  for (int i = threadIdx.x; i < kFragments * steps_of(dim) * kWarpSize * 4; i += kThreads) {
    const int step = i / (kWarpSize * 4), lane = i / 4 % kWarpSize, word = i % 4;  // the steps of all fragments
    const int q = step / steps_of(dim) * kRows + lane / 4 + word % 2 * 8;
    const int d = step % steps_of(dim) * kStep + lane % 4 * 4 + word / 2 * 2;
    const float* from = a.qkv + (row + shared.query_row[q]) * a.qkv_stride + int64_t{shared.query_head[q]} * dim;
    uint32_t pieces[kPieces];
    split(q < count && d < dim ? from[d] : 0.0f, q < count && d + 1 < dim ? from[d + 1] : 0.0f, pieces);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) words[((step * kPieces + p) * kWarpSize + lane) * 4 + word] = pieces[p];
  }
  __syncthreads();
}

/// A number of the cache: its pieces, and whether they are finite.
template <class T>
struct Cached;
template <>
struct Cached<uint16_t> {
  static constexpr int kPieces = 1;
  __device__ static bool is_finite(uint16_t x) { return (x & 0x7f80u) != 0x7f80u; }
  __device__ static void split(uint16_t low, uint16_t high, uint32_t (&pieces)[1]) {
    pieces[0] = low | static_cast<uint32_t>(high) << 16;
  }
};
template <>
struct Cached<float> {
  static constexpr int kPieces = attention::kPieces;
  __device__ static bool is_finite(float x) { return (__float_as_uint(x) & 0x7fffffffu) < 0x7f7f8000u; }
  __device__ static void split(float low, float high, uint32_t (&pieces)[kPieces]) {
    attention::split(low, high, pieces);
  }
};

/// Four neighbours of each of four lines, as the right side of four products: product n has neighbour n.
template <class T>
struct Lines {
  Chunk<T, 4> at[4];
};

/// Neighbours as fragments b0 and b1 of right sides, in pieces.
template <class T>
struct RightSides {
  uint32_t words[4][2][Cached<T>::kPieces];
  __device__ explicit RightSides(const Lines<T>& lines) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Cached<T>::split(lines.at[2 * half].at[n], lines.at[2 * half + 1].at[n], words[n][half]);
      }
    }
  }
};

/// sums[n] += left * right side n, a step. `whole`: the left side is its first piece.
template <class T>
__device__ inline void add_products(const uint32_t (&left)[kPieces][4], const RightSides<T>& right, bool whole,
                                    float (&sums)[4][4]) {
  float step[4][4];
#pragma unroll
  for (int behind = kPieces - 1; behind >= 0; --behind) {  // by so many times 2^-8
#pragma unroll
    for (int l = behind; l >= 0; --l) {
      const int r = behind - l;
      if (r >= Cached<T>::kPieces || (whole && l > 0 && l < kPieces - 1)) continue;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (l < kPieces - 1) {
          multiply_add_bf16(step[n], left[l], right.words[n][0][r], right.words[n][1][r]);
        } else if (!whole) {
          multiply_bf16(step[n], left[l], right.words[n][0][r], right.words[n][1][r]);
        } else {
          for (float& sum : step[n]) sum = 0.0f;
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[n][c] += step[n][c];
  }
}

/// Elements [column, column + 4) of a line of `width`; zeros behind its end, or all where not `read`.
template <class T>
__device__ inline Chunk<T, 4> load_four(const T* line, int column, int width, bool read) {
  Chunk<T, 4> four = {};
  if (!read || column >= width) return four;
  if (width % 4 == 0) return load_chunk<4>(line + column);
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = column + i < width ? line[column + i] : T{0};
  return four;
}

/// Positions 8t + 4 * step to 8t + 4 * step + 3 of a block's values, as far as they lie in [begin, end).
template <class T>
__device__ inline Lines<T> load_values(const T* values, int dim, int group, int step, int begin, int end) {
  const int lane = threadIdx.x % kWarpSize, first = lane % 4 * 8 + step * 4, column = group * kGroup + lane / 4 * 4;
  Lines<T> lines;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = first + i;
    lines.at[i] = load_four(values + j * dim, column, dim, j >= begin && j < end);
  }
  return lines;
}

template <class T>
__device__ inline void keep_finite(Lines<T>& lines) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int n = 0; n < 4; ++n) lines.at[i].at[n] = Cached<T>::is_finite(lines.at[i].at[n]) ? lines.at[i].at[n] : T{0};
  }
}

/// The queries of this lane: rows g and g + 8 of a fragment.
struct LaneQuery {
  int index, row;
  bool live;
  __device__ LaneQuery(int fragment, int upper, int count, const Shared& shared)
      : index(fragment * kRows + threadIdx.x % kWarpSize / 4 + upper * 8),
        row(shared.query_row[index]),
        live(index < count) {}
};

/// Columns 4t to 4t + 3 of a step of a block's keys, positions 4g to 4g + 3; zeros behind the last column.
template <class T>
__device__ inline Lines<T> load_keys(const T* keys, int dim, int step, bool read) {
  const int lane = threadIdx.x % kWarpSize, column = step * kStep + lane % 4 * 4;
  Lines<T> lines;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    lines.at[i] =
        load_four(keys + (column + i) * kKvBlockSize, lane / 4 * 4, kKvBlockSize, read && column + i < dim);
  }
  return lines;
}

/// scores[n][c] of a fragment: of positions 8t + (c % 2) * 4 + n of the warp's KV block, and query g + (c / 2) * 8;
/// unscaled.
template <class T, int kFragments>
__device__ void score_block(const AttentionArgs& a, const T* keys, int begin, int end, const Shared& shared,
                            float (&scores)[kFragments][4][4]) {
  const int lane = threadIdx.x % kWarpSize, dim = a.shape.head_dim, first = lane / 4 * 4;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(shared.queries);
  const bool read = first < end && first + 4 > begin;  // what of the four nobody sees, no score is made of
  const bool whole = a.round_to == DType::kBFloat16;   // the queries' other pieces are zeros
  Lines<T> next = load_keys(keys, dim, 0, read);
#pragma unroll 1
  for (int step = 0; step < steps_of(dim); ++step) {
    const Lines<T> lines = next;
    next = load_keys(keys, dim, step + 1, read);  // on their way while these are multiplied
    const RightSides<T> right(lines);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      uint32_t query[kPieces][4];
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int at = (f * steps_of(dim) + step) * kPieces + p;
        const Chunk<uint32_t, 4> piece = load_chunk<4>(words + (at * kWarpSize + lane) * 4);
#pragma unroll
        for (int w = 0; w < 4; ++w) query[p][w] = piece.at[w];
      }
      add_products(query, right, whole, scores[f]);
    }
  }
}

/// A fragment's scores to weights e^(score - max), in place, with each query's maximum and mass into shared memory,
/// where a warp has `queries`.
__device__ inline void weigh_block(const AttentionArgs& a, int index, int32_t position, int fragment, int count,
                                   int queries, const Shared& shared, float (&scores)[4][4]) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const LaneQuery query(fragment, upper, count, shared);
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
      shared.maxima[warp * queries + query.index] = highest;
      shared.masses[warp * queries + query.index] = mass;
    }
  }
}

/// Pieces of a fragment's weights of positions 8t + 4 * step to 8t + 4 * step + 3, as a left side.
__device__ inline void split_weights(const float (&weights)[4][4], int step, uint32_t (&left)[kPieces][4]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int n = w / 2 * 2, c = step + w % 2 * 2;
    uint32_t pieces[kPieces];
    split(weights[n][c], weights[n + 1][c], pieces);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) left[p][w] = pieces[p];
  }
}

/// sums += weights * values over positions [begin, end) of the warp's KV block; `finite`: without values that are not.
/// sums[n][c] of a fragment's group: its column 8t + (c % 2) * 4 + n, query g + (c / 2) * 8.
template <class T, int kFragments, int kGroups>
__device__ void add_values(const T* values, int dim, int begin, int end, bool finite,
                           const float (&weights)[kFragments][4][4], float (&sums)[kFragments][kGroups][4][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t left[kFragments][kPieces][4];
#pragma unroll
    for (int f = 0; f < kFragments; ++f) split_weights(weights[f], step, left[f]);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * kGroup >= dim) break;
      Lines<T> lines = load_values(values, dim, group, step, begin, end);
      if (finite) keep_finite(lines);
      const RightSides<T> right(lines);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) add_products(left[f], right, false, sums[f][group]);
    }
  }
}

/// Whether the values in [begin, end) are finite. The same for every lane.
template <class T>
__device__ inline bool all_finite(const T* values, int dim, int begin, int end) {
  bool finite = true;
  for (int i = begin * dim + threadIdx.x % kWarpSize; i < end * dim; i += kWarpSize) {
    finite &= Cached<T>::is_finite(values[i]);
  }
  return __all_sync(~0u, finite);
}

/// NaN to the sums of a fragment's queries that see a value of their column which is not finite.
template <class T, int kGroups>
__device__ void spoil_sums(const AttentionArgs& a, const T* values, int index, int32_t position, int fragment,
                           int count, const Shared& shared, float (&sums)[kGroups][4][4]) {
  const int lane = threadIdx.x % kWarpSize, dim = a.shape.head_dim;
  const Sight low(a.shape, position + LaneQuery(fragment, 0, count, shared).row);
  const Sight high(a.shape, position + LaneQuery(fragment, 1, count, shared).row);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    unsigned spoilt[2] = {};  // of the lower query's sums and the upper's: bit c % 2 * 4 + n
#pragma unroll 1
    for (int j = 0; j < kKvBlockSize; ++j) {
      const bool seen[2] = {j >= low.begin(index) && j < low.end(index), j >= high.begin(index) && j < high.end(index)};
      const int column = group * kGroup + lane % 4 * 8;
      unsigned found = 0;
      for (int i = 0; i < 8 && (seen[0] || seen[1]); ++i) {
        if (column + i < dim && !Cached<T>::is_finite(values[j * dim + column + i])) found |= 1u << i;
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
template <int kFragments, int kGroups>
__device__ void add_warps(const AttentionArgs& a, const Partitions& pass, int partition, int64_t row, int32_t position,
                          int count, const Shared& shared, const float (&sums)[kFragments][kGroups][4][4]) {
  constexpr int kTogether = together_of(kGroups), kQueries = kFragments * kRows;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int dim = a.shape.head_dim, stride = padded(dim);
#pragma unroll
  for (int from = 0; from < kQueries; from += kTogether) {
    if (from >= count) break;
    __syncthreads();  // the queries before these are done with
    const int q = lane / 4 + from / 8 * 8, fragment = from / kRows, upper = from % kRows / 8;
    if (q >= from && q < from + kTogether) {
      float* to = shared.work + (warp * kTogether + q - from) * stride;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int column = group * kGroup + lane % 4 * 8 + c * 4;
          if (column >= dim) continue;
          const auto sum = [&](int n) { return sums[fragment][group][n][2 * upper + c]; };
          store_chunk<4>(to + column, Chunk<float, 4>{{sum(0), sum(1), sum(2), sum(3)}});
        }
      }
    }
    __syncthreads();
    add_and_write<kQueries, kTogether>(a, pass, partition, row, position, from, count, shared);
  }
}

/// Queries of a tile, all of them together, through its partitions.
template <class T, int kGroups, int kFragments>
__device__ void attend_tile(const AttentionArgs& a, const Partitions& pass, const Tile& tile, const Shared& shared) {
  constexpr int kQueries = kFragments * kRows;
  const int dim = a.shape.head_dim, kv = blockIdx.y, warp = threadIdx.x / kWarpSize;
  const int queries = tile.count * *shared.num_heads;
  for (int from = 0; from < queries; from += kQueries) {
    const int count = min(queries - from, kQueries);
    load_fragments<kFragments>(a, tile.row, from, count, shared);
    const Sight earliest(a.shape, tile.position + shared.query_row[0]);
    const Sight latest(a.shape, tile.position + shared.query_row[count - 1]);
    for (int part = tile.first_part + blockIdx.z; part <= tile.last_part; part += gridDim.z) {
      const int index = part * kWarps + warp;
      const int begin = earliest.begin(index), end = latest.end(index);
      float sums[kFragments][kGroups][4][4] = {};
      if (begin < end) {
        const int64_t base = (int64_t{tile.table[index]} * a.shape.kv_heads + kv) * dim * kKvBlockSize;
        const T* values = static_cast<const T*>(a.cache.values) + base;
        float weights[kFragments][4][4] = {};
        score_block(a, static_cast<const T*>(a.cache.keys) + base, begin, end, shared, weights);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          weigh_block(a, index, tile.position, f, count, kQueries, shared, weights[f]);
        }
        const bool all_see_all = latest.begin(index) == begin && earliest.end(index) == end;
        const bool spoils = !all_see_all && !all_finite(values, dim, begin, end);
        add_values(values, dim, begin, end, spoils, weights, sums);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          if (spoils) spoil_sums(a, values, index, tile.position, f, count, shared, sums[f]);
        }
      }
      __syncthreads();
      combine_warps<kQueries>(a.shape, part, tile.position, shared);
      add_warps(a, pass, part, tile.row, tile.position, count, shared, sums);
      __syncthreads();
    }
  }
}

// Two blocks fit a multiprocessor; one where the sums of 256 columns or of two fragments want the registers.
template <class T, int kGroups, int kFragments>
__global__ void __launch_bounds__(kThreads, kGroups > 4 || kFragments > 1 ? 1 : 2)
    tensor_attention_kernel(AttentionArgs a, Partitions pass) {
  SIMT_DYN_SHARED(float, memory);
  const Shared shared = share<kFragments * kRows>(memory, kFragments * steps_of(a.shape.head_dim) * kWordsAStep,
                                                  sum_floats(kGroups), a.shape.q_heads);
  bool listed = false;
  const int64_t begin = pass.first_row + int64_t{blockIdx.x} * pass.rows_a_block;
  for (int64_t row = begin; row < begin + pass.rows_a_block; ++row) {
    const Tile tile(a, pass, row);
    if (tile.count == 0) continue;
    if (!listed) list_heads(a.shape, blockIdx.y, shared);
    if (!listed) __syncthreads();
    listed = true;
    const int queries = tile.count * *shared.num_heads;
    if (queries <= pass.above || queries > pass.up_to) continue;
    attend_tile<T, kGroups, kFragments>(a, pass, tile, shared);
  }
}

template <class T, int kGroups, int kFragments>
void launch_attention(const AttentionArgs& args, dim3 grid, const Partitions& pass, simt::Stream stream) {
  const size_t shared = tensor_shared_bytes(kFragments, kGroups, args.shape.head_dim, args.shape.q_heads);
  simt::launch(tensor_attention_kernel<T, kGroups, kFragments>, grid, dim3(kThreads), shared, stream, args, pass);
}

/// Where a step has many rows, many of them may be of one slot: tiles of up to two fragments, which read the cache once
/// for both. A tile that fills one alone (a decoded row's) goes as it does in small steps; the bits are the same.
template <class T, int kGroups>
void launch_passes(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  constexpr int64_t kFewRows = 64;
  const bool large = kGroups <= 4 && args.rows.max_rows > kFewRows;
  for_each_pass(args, scratch, large ? 2 * kRows : kRows, stream, [&](dim3 grid, Partitions pass) {
    if constexpr (kGroups <= 4) {
      if (large) {
        pass.up_to = kRows;
        launch_attention<T, kGroups, 1>(args, grid, pass, stream);
        pass.above = kRows, pass.up_to = Partitions().up_to;
        return launch_attention<T, kGroups, 2>(args, grid, pass, stream);
      }
    }
    launch_attention<T, kGroups, 1>(args, grid, pass, stream);
  });
}

template <class T>
void attend_over(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  const int dim = args.shape.head_dim;
  if (dim <= 32) return launch_passes<T, 1>(args, scratch, stream);
  if (dim <= 64) return launch_passes<T, 2>(args, scratch, stream);
  if (dim <= 128) return launch_passes<T, 4>(args, scratch, stream);
  launch_passes<T, 8>(args, scratch, stream);
}

}  // namespace

void attend(const AttentionArgs& args, float* scratch, simt::Stream stream) {
  if (args.cache.dtype == DType::kBFloat16) return attend_over<uint16_t>(args, scratch, stream);
  attend_over<float>(args, scratch, stream);
}

}  // namespace helios::attention
