// Row-wise operations on CUDA. One block a row for what reduces over a row (rms_norm), one thread an element for the
// rest; every one reads and writes each element once, so all are bound by memory bandwidth.
#include "kernels/base/block_reduce.cuh"
#include "kernels/base/dtype.h"
#include "kernels/transformer/layers.h"

namespace helios {
namespace {

__device__ inline float maybe_round(float value, bool round_bf16) { return round_bf16 ? round_to_bf16(value) : value; }

__device__ inline float widen(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DType::kBFloat16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFloat16:
      return f16_to_float(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0f;
}

// Bytes a row: hidden * (stored + 4).
__global__ void embed_kernel(EmbedArgs a) {
  const int64_t row = blockIdx.x;
  const int32_t token = a.tokens[row];
  for (int64_t c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    a.out[row * a.hidden + c] =
        token < 0 ? 0.0f : maybe_round(widen(a.table, a.dtype, token * a.hidden + c), a.round_bf16);
  }
}

// Bytes a row: 12 * hidden, the second read of x from cache.
__global__ void rms_norm_kernel(RmsNormArgs a) {
  __shared__ float part[kBlockWarps];
  const float* x = a.x + blockIdx.x * a.x_stride;
  float* out = a.out + blockIdx.x * a.out_stride;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < a.hidden; c += kBlockThreads) sum = fmaf(x[c], x[c], sum);
  sum = block_reduce(sum, part, AddOp{});
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(a.hidden) + a.eps);
  for (int64_t c = threadIdx.x; c < a.hidden; c += kBlockThreads) {
    out[c] = maybe_round(x[c] * scale * a.weight[c], a.round_bf16);
  }
}

// The upper part of the row-parallel product's tree: ranks in pairs, then pairs of pairs.
__global__ void add_partials_kernel(AddPartialsArgs a) {
  const int64_t count = a.rows * a.hidden;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float level[8];
  for (int r = 0; r < a.world; ++r) level[r] = a.partials[r * count + i];
  for (int width = a.world; width > 1; width /= 2) {
    for (int r = 0; r < width / 2; ++r) level[r] = level[2 * r] + level[2 * r + 1];
  }
  const float sum = a.bias ? level[0] + a.bias[i % a.hidden] : level[0];
  a.residual[i] += sum;
}

__global__ void gated_mlp_kernel(GatedMlpArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.rows * a.inner) return;
  const int64_t row = i / a.inner, column = i % a.inner;
  const float gate = a.gate_up[row * 2 * a.inner + column];
  const float up = a.gate_up[row * 2 * a.inner + a.inner + column];
  a.out[i] = maybe_round(gate / (1.0f + expf(-gate)) * up, a.round_bf16);
}

unsigned blocks_for(int64_t count) { return static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads); }

}  // namespace

void embed(const EmbedArgs& args, const Launcher& on) {
  if (args.rows == 0) return;
  simt::launch(embed_kernel, dim3(static_cast<unsigned>(args.rows)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void rms_norm(const RmsNormArgs& args, const Launcher& on) {
  if (args.rows == 0) return;
  simt::launch(rms_norm_kernel, dim3(static_cast<unsigned>(args.rows)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void add_partials(const AddPartialsArgs& args, const Launcher& on) {
  if (args.rows == 0) return;
  simt::launch(add_partials_kernel, dim3(blocks_for(args.rows * args.hidden)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void gated_mlp(const GatedMlpArgs& args, const Launcher& on) {
  if (args.rows == 0 || args.inner == 0) return;
  simt::launch(gated_mlp_kernel, dim3(blocks_for(args.rows * args.inner)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
