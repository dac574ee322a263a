// Row-wise operations on CUDA. One block a row for what reduces over a row (rms_norm), else blocks of a row's elements;
// every one reads and writes each element once, so all are bound by memory bandwidth: 16 bytes a lane where rows allow
// it. Grids are as large as the largest step; blocks past *num_rows leave at once.
#include "common/base/check.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/base/vector_access.cuh"
#include "kernels/transformer/layers.h"

namespace helios {
namespace {

constexpr int kWide = 4;  // floats a lane

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
__device__ inline float widen(float value) { return value; }
__device__ inline float widen(BF16 value) { return bf16_to_float(value.bits); }
__device__ inline float widen(F16 value) { return f16_to_float(value.bits); }

// One block a row. Bytes a row: hidden * (stored + 4).
template <class T, int kCount>
__global__ void embed_kernel(EmbedArgs a) {
  const int64_t row = blockIdx.x;
  if (row >= *a.num_rows) return;
  const int32_t token = a.tokens[row];
  const T* from = static_cast<const T*>(a.table) + token * a.hidden;
  for (int64_t c = threadIdx.x * kCount; c < a.hidden; c += kBlockThreads * kCount) {
    Chunk<float, kCount> out = {};
    if (token >= 0) {
      const Chunk<T, kCount> stored = load_chunk<kCount>(from + c);
      for (int i = 0; i < kCount; ++i) out.at[i] = round_to_dtype(a.round_to, widen(stored.at[i]));
    }
    store_chunk<kCount>(a.out + row * a.hidden + c, out);
  }
}

// One block a row. Bytes a row: 12 * hidden, the second read of x from cache.
template <int kCount>
__global__ void rms_norm_kernel(RmsNormArgs a) {
  __shared__ float part[kBlockWarps];
  const int64_t row = blockIdx.x;
  if (row >= *a.num_rows) return;
  const float* x = a.x + (a.row_index ? a.row_index[row] : row) * a.x_stride;
  float* out = a.out + row * a.out_stride;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x * kCount; c < a.hidden; c += kBlockThreads * kCount) {
    const Chunk<float, kCount> value = load_chunk<kCount>(x + c);
    for (int i = 0; i < kCount; ++i) sum = fmaf(value.at[i], value.at[i], sum);
  }
  sum = block_reduce(sum, part, AddOp{});
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(a.hidden) + a.eps);
  for (int64_t c = threadIdx.x * kCount; c < a.hidden; c += kBlockThreads * kCount) {
    Chunk<float, kCount> value = load_chunk<kCount>(x + c);
    const Chunk<float, kCount> weight = load_chunk<kCount>(a.weight + c);
    for (int i = 0; i < kCount; ++i) value.at[i] = round_to_dtype(a.round_to, value.at[i] * scale * weight.at[i]);
    store_chunk<kCount>(out + c, value);
  }
}

// Blocks of one row's elements. The upper part of the row-parallel product's tree: ranks in pairs, then pairs of pairs.
// Bytes a row: 4 * hidden * (world + 2).
template <int kWorld, int kCount>
__global__ void add_partials_kernel(AddPartialsArgs a) {
  const int64_t row = blockIdx.x, rows = *a.num_rows;
  if (kWorld > 1 && a.counters && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    a.counters->partial_sum_words += rows * a.hidden;
  }
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x) * kCount;
  if (row >= rows || column >= a.hidden) return;
  Chunk<float, kCount> level[kWorld];
  for (int r = 0; r < kWorld; ++r) {
    level[r] = load_chunk<kCount>(a.partials + (r * a.max_rows + row) * a.hidden + column);
  }
  for (int width = kWorld; width > 1; width /= 2) {
    for (int r = 0; r < width / 2; ++r) {
      for (int i = 0; i < kCount; ++i) level[r].at[i] = level[2 * r].at[i] + level[2 * r + 1].at[i];
    }
  }
  if (a.bias) {
    const Chunk<float, kCount> bias = load_chunk<kCount>(a.bias + column);
    for (int i = 0; i < kCount; ++i) level[0].at[i] += bias.at[i];
  }
  float* residual = a.residual + row * a.hidden + column;
  Chunk<float, kCount> sum = load_chunk<kCount>(residual);
  for (int i = 0; i < kCount; ++i) sum.at[i] += level[0].at[i];
  store_chunk<kCount>(residual, sum);
}

// Blocks of one row's elements. Bytes a row: 12 * inner.
template <int kCount>
__global__ void gated_mlp_kernel(GatedMlpArgs a) {
  const int64_t row = blockIdx.x;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x) * kCount;
  if (row >= *a.num_rows || column >= a.inner) return;
  const Chunk<float, kCount> gate = load_chunk<kCount>(a.gate_up + row * 2 * a.inner + column);
  const Chunk<float, kCount> up = load_chunk<kCount>(a.gate_up + row * 2 * a.inner + a.inner + column);
  Chunk<float, kCount> out;
  for (int i = 0; i < kCount; ++i) {
    out.at[i] = round_to_dtype(a.round_to, gate.at[i] / (1.0f + expf(-gate.at[i])) * up.at[i]);
  }
  store_chunk<kCount>(a.out + row * a.inner + column, out);
}

simt::Stream stream_of(const Launcher& on) { return static_cast<simt::Stream>(on.stream()); }

dim3 one_block_a_row(int64_t max_rows) { return dim3(static_cast<unsigned>(max_rows)); }

dim3 blocks_of_rows(int64_t max_rows, int64_t columns, int count) {
  const int64_t block_columns = int64_t{kBlockThreads} * count;
  return dim3(static_cast<unsigned>(max_rows), static_cast<unsigned>((columns + block_columns - 1) / block_columns));
}

template <class T>
void launch_embed(const EmbedArgs& args, simt::Stream stream) {
  const bool wide =
      in_chunks<kWide>(static_cast<const T*>(args.table), args.hidden) && in_chunks<kWide>(args.out, args.hidden);
  simt::launch(wide ? embed_kernel<T, kWide> : embed_kernel<T, 1>, one_block_a_row(args.max_rows), dim3(kBlockThreads),
               0, stream, args);
}

template <int kWorld>
void launch_add_partials(const AddPartialsArgs& args, simt::Stream stream) {
  const bool wide = in_chunks<kWide>(args.partials, args.hidden) && in_chunks<kWide>(args.residual, args.hidden) &&
                    in_chunks<kWide>(args.bias, args.hidden);
  simt::launch(wide ? add_partials_kernel<kWorld, kWide> : add_partials_kernel<kWorld, 1>,
               blocks_of_rows(args.max_rows, args.hidden, wide ? kWide : 1), dim3(kBlockThreads), 0, stream, args);
}

}  // namespace

void embed(const EmbedArgs& args, const Launcher& on) {
  if (args.max_rows == 0) return;
  switch (args.dtype) {
    case DType::kFloat32:
      return launch_embed<float>(args, stream_of(on));
    case DType::kBFloat16:
      return launch_embed<BF16>(args, stream_of(on));
    case DType::kFloat16:
      return launch_embed<F16>(args, stream_of(on));
    case DType::kInt8:
    case DType::kFloat8E4M3:
      break;  // no embedding is quantised
  }
}

void rms_norm(const RmsNormArgs& args, const Launcher& on) {
  if (args.max_rows == 0) return;
  const bool wide = args.hidden % kWide == 0 && in_chunks<kWide>(args.x, args.x_stride) &&
                    in_chunks<kWide>(args.out, args.out_stride) && in_chunks<kWide>(args.weight, args.hidden);
  simt::launch(wide ? rms_norm_kernel<kWide> : rms_norm_kernel<1>, one_block_a_row(args.max_rows), dim3(kBlockThreads),
               0, stream_of(on), args);
}

void add_partials(const AddPartialsArgs& args, const Launcher& on) {
  if (args.max_rows == 0) return;
  switch (args.world) {
    case 1:
      return launch_add_partials<1>(args, stream_of(on));
    case 2:
      return launch_add_partials<2>(args, stream_of(on));
    case 4:
      return launch_add_partials<4>(args, stream_of(on));
    case 8:
      return launch_add_partials<8>(args, stream_of(on));
  }
  HELIOS_CHECK(false, args.world);
}

void gated_mlp(const GatedMlpArgs& args, const Launcher& on) {
  if (args.max_rows == 0 || args.inner == 0) return;
  const bool wide = in_chunks<kWide>(args.gate_up, args.inner) && in_chunks<kWide>(args.out, args.inner);
  simt::launch(wide ? gated_mlp_kernel<kWide> : gated_mlp_kernel<1>,
               blocks_of_rows(args.max_rows, args.inner, wide ? kWide : 1), dim3(kBlockThreads), 0, stream_of(on),
               args);
}

}  // namespace helios
