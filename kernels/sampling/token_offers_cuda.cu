// An offer: one warp a row over its tiles' winners, 16 bytes each. The choice: one thread a row.
#include "kernels/base/block_reduce.cuh"
#include "kernels/sampling/token_offers.h"

namespace helios {
namespace {

__global__ void offer_tokens_kernel(OfferTokensArgs a) {
  const int64_t r = blockIdx.x;
  if (r >= *a.num_rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const SamplingRow& row = a.rows[r];
  SampledToken best;
  if (row.draws()) {
    for (int32_t t = lane; t < a.num_tiles; t += kWarpSize) {
      const SampledToken token = a.tile_best[r * a.num_tiles + t];
      if (token.beats(best)) best = token;
    }
    for (int step = kWarpSize / 2; step > 0; step >>= 1) {
      const SampledToken other{__shfl_xor_sync(~0u, best.score, step), __shfl_xor_sync(~0u, best.id, step)};
      if (other.beats(best)) best = other;
    }
  } else if (row.greedy && row.arg_max >= 0) {
    best = {static_cast<double>(row.max), row.arg_max};
  }
  if (lane == 0) a.offers[r] = {best.score, best.id, row.broken};
}

__global__ void choose_tokens_kernel(ChooseTokensArgs a) {
  const int32_t count = *a.num_rows;
  const auto row = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < count) a.tokens[row] = chosen_token(a, row);
  if (row == 0 && a.world > 1) a.counters->sampler_words += count * int64_t{sizeof(OfferMessage) / 4};
}

}  // namespace

void offer_tokens(const OfferTokensArgs& args, const Launcher& on) {
  simt::launch(offer_tokens_kernel, dim3(static_cast<unsigned>(args.max_rows)), dim3(kWarpSize), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void choose_tokens(const ChooseTokensArgs& args, const Launcher& on) {
  simt::launch(choose_tokens_kernel, dim3(static_cast<unsigned>(args.max_rows + kWarpSize - 1) / kWarpSize),
               dim3(kWarpSize), 0, static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
