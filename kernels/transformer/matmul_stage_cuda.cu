// Before and after a library's matrix product. One block a row and a range of its elements, or all of a row's segment
// where that has a scale; neighbouring lanes read and write neighbouring elements. Bytes: stage 4 + 2 * pieces an input
// element; finish 4 * segments * pieces + 4 an output.
#include "common/base/check.h"
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/transformer/matmul_stage.h"

namespace helios {
namespace {

// Grid: padded rows, blocks of segment_k, segments.
__global__ void stage_inputs_kernel(StageInputsArgs a) {
  const int64_t row = blockIdx.x, i = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  const int64_t segment = blockIdx.z;
  if (i >= a.w.segment_k) return;
  const int64_t begin = a.w.segments[segment], end = a.w.segments[segment + 1];
  const bool live = row < a.rows && a.first_row + row < *a.num_rows && begin + i < end;
  float rest = live ? a.x[row * a.x_stride + begin + i] : 0.0f;
  for (int piece = 0; piece < a.pieces; ++piece) {
    const int64_t at = ((segment * a.pieces + piece) * a.padded_rows + row) * a.w.segment_k + i;
    if (a.w.dtype == DType::kFloat32) {
      static_cast<float*>(a.staged)[at] = rest;
      continue;
    }
    if (a.w.dtype == DType::kFloat16) {  // which x holds, or what it is rounded to
      static_cast<uint16_t*>(a.staged)[at] = float_to_f16(rest);
      continue;
    }
    // Cut, not rounded, where more pieces follow: nothing overflows, and each difference is exact. Infinity and NaN are
    // whole in the first piece.
    const bool finite = (__float_as_uint(rest) & 0x7f800000u) != 0x7f800000u;
    const uint16_t bits =
        finite && a.pieces > 1 ? static_cast<uint16_t>(__float_as_uint(rest) >> 16) : float_to_bf16(rest);
    static_cast<uint16_t*>(a.staged)[at] = bits;
    rest = finite ? rest - bf16_to_float(bits) : 0.0f;
  }
}

// Grid: padded rows, segments. A block reads its row's part twice, the second time from the cache.
__global__ void stage_scaled_kernel(StageInputsArgs a) {
  __shared__ float part[kBlockWarps];
  const int64_t row = blockIdx.x, segment = blockIdx.y;
  const int64_t begin = a.w.segments[segment], width = a.w.segments[segment + 1] - begin;
  const bool live = row < a.rows && a.first_row + row < *a.num_rows;
  const float* x = a.x + row * a.x_stride + begin;
  float largest = 0.0f;
  for (int64_t i = threadIdx.x; live && i < width; i += kBlockThreads) {
    const float magnitude = fabsf(x[i]);
    if (magnitude < INFINITY) largest = fmaxf(largest, magnitude);  // nor is NaN
  }
  largest = block_reduce(largest, part, MaxOp{});
  const int exponent = largest > 0.0f ? kF16Exponent - ilogbf(largest) : 0;
  if (threadIdx.x == 0) a.exponents[segment * a.padded_rows + row] = exponent;
  for (int64_t i = threadIdx.x; i < a.w.segment_k; i += kBlockThreads) {
    float rest = live && i < width ? x[i] : 0.0f;
    const bool finite = fabsf(rest) < INFINITY;  // else it is whole in the first piece
    if (finite) rest = ldexpf(rest, exponent);
    for (int piece = 0; piece < a.pieces; ++piece) {
      const uint16_t bits = float_to_f16(rest);
      static_cast<uint16_t*>(a.staged)[((segment * a.pieces + piece) * a.padded_rows + row) * a.w.segment_k + i] = bits;
      rest = finite ? (rest - f16_to_float(bits)) * (1 << kF16PieceBits) : 0.0f;  // exact, both
    }
  }
}

// Grid: rows, blocks of n.
template <int kSegments>
__global__ void finish_products_kernel(FinishProductsArgs a) {
  const int64_t row = blockIdx.x, column = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (a.first_row + row >= *a.num_rows || column >= a.w.n) return;
  const bool scaled = scales_pieces(a.w.dtype, a.pieces);
  const float unit = scaled ? 1.0f / (1 << kF16PieceBits) : 1.0f;
  float level[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int64_t piece_words = a.padded_rows * a.w.padded_n;
    const float* products = a.products + s * a.pieces * piece_words + row * a.w.padded_n + column;
    float sum = products[(a.pieces - 1) * piece_words];
    for (int piece = a.pieces - 2; piece >= 0; --piece) sum = products[piece * piece_words] + sum * unit;
    level[s] = scaled ? ldexpf(sum, -a.exponents[s * a.padded_rows + row]) : sum;
  }
#pragma unroll
  for (int width = kSegments; width > 1; width /= 2) {
#pragma unroll
    for (int s = 0; s < width / 2; ++s) level[s] = level[2 * s] + level[2 * s + 1];
  }
  a.out[row * a.out_stride + column] = a.bias ? level[0] + a.bias[column] : level[0];
}

unsigned blocks_for(int64_t elements) { return static_cast<unsigned>((elements + kBlockThreads - 1) / kBlockThreads); }

template <int kSegments>
void launch_finish(const FinishProductsArgs& args, simt::Stream stream) {
  simt::launch(finish_products_kernel<kSegments>, dim3(static_cast<unsigned>(args.rows), blocks_for(args.w.n)),
               dim3(kBlockThreads), 0, stream, args);
}

}  // namespace

void stage_inputs(const StageInputsArgs& args, const Launcher& on) {
  HELIOS_CHECK(args.pieces >= 1 && args.pieces <= kMostPieces, args.pieces);
  HELIOS_CHECK(args.rows <= args.padded_rows, args.rows, args.padded_rows);
  if (args.rows == 0 || args.w.segment_k == 0) return;
  const auto stream = static_cast<simt::Stream>(on.stream());
  if (scales_pieces(args.w.dtype, args.pieces)) {
    HELIOS_CHECK(args.exponents != nullptr);
    const dim3 rows(static_cast<unsigned>(args.padded_rows), static_cast<unsigned>(args.w.num_segments));
    return simt::launch(stage_scaled_kernel, rows, dim3(kBlockThreads), 0, stream, args);
  }
  const dim3 grid(static_cast<unsigned>(args.padded_rows), blocks_for(args.w.segment_k),
                  static_cast<unsigned>(args.w.num_segments));
  simt::launch(stage_inputs_kernel, grid, dim3(kBlockThreads), 0, stream, args);
}

void finish_products(const FinishProductsArgs& args, const Launcher& on) {
  if (args.rows == 0 || args.w.n == 0) return;
  const auto stream = static_cast<simt::Stream>(on.stream());
  switch (args.w.num_segments) {
    case 1:
      return launch_finish<1>(args, stream);
    case 2:
      return launch_finish<2>(args, stream);
    case 4:
      return launch_finish<4>(args, stream);
    case 8:
      return launch_finish<8>(args, stream);
    case 16:
      return launch_finish<16>(args, stream);
  }
  HELIOS_CHECK(false, args.w.num_segments);
}

}  // namespace helios
