// Paged attention on CUDA: where it begins, and the addition of partitions' results. How the work is cut:
// attention_tiles.cuh; what goes through a tile: attention_tensor_cuda.cu.
#include "common/base/check.h"
#include "kernels/transformer/attention_tiles.cuh"

namespace helios::attention {
namespace {

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
  attention::attend(args, states, stream);
}

}  // namespace helios
