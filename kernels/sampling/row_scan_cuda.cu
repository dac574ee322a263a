// The scan: one block a (tile, row), eight independent coalesced loads a thread, so that a row streams at the memory's
// speed; a transformed tile is made in shared memory and stored once. The summary: one block a row over 24 bytes a tile
// and, with top-k, a radix selection among the lane maxima.
#include "kernels/logprobs/lse_state.h"
#include "kernels/logprobs/sort_key.h"
#include "kernels/sampling/block_scan.cuh"
#include "kernels/sampling/row_scan.h"

namespace helios {
namespace {

constexpr int kThreadColumns = kTileWidth / kBlockThreads;
static_assert(kBlockThreads % kTileLanes == 0 && kWarpSize == 2 * kTileLanes);

// token_transforms.h's list on one tile: `made` [kTileWidth] of shared memory, then this row's scratch. Whole blocks.
__device__ void transform_tile(const ScanRowsArgs& a, const SamplingRow& row, const VocabTile& tile, const float* raw,
                               float* made) {
  const int thread = static_cast<int>(threadIdx.x);
  const SlotSampling& sampling = a.tables.sampling[row.slot];
  const SlotState& state = a.tables.slots[row.slot];
  const TokenId first_id = a.shard.first_id + tile.begin;
  const auto mine = [&](TokenId id) { return id >= first_id && id < first_id + tile.width; };
  for (int i = thread; i < tile.width; i += kBlockThreads) made[i] = raw[i];
  __syncthreads();
  const LogitBias* biases = a.tables.biases + int64_t{row.slot} * kMaxLogitBias;
  for (int32_t b = thread; b < sampling.num_biases; b += kBlockThreads) {  // distinct ids
    if (mine(biases[b].id)) made[biases[b].id - first_id] = rounded_sum(made[biases[b].id - first_id], biases[b].bias);
  }
  __syncthreads();
  if (may_not_stop(state, row.ahead)) {
    for (int32_t s = thread - 1; s < state.num_stop_ids; s += kBlockThreads) {
      const TokenId id = s < 0 ? state.eos_id : state.stop_ids[s];
      if (mine(id)) made[id - first_id] = kNegativeInfinity;  // several threads may write the same
    }
  }
  __syncthreads();
  const uint32_t* allowed = a.tables.allowed + int64_t{row.slot} * a.tables.mask_words;
  const uint32_t* prompt_ids = a.tables.prompt_ids + int64_t{row.slot} * a.tables.mask_words;
  const int32_t* counts = a.tables.token_counts + row.slot * a.tables.counts_stride + tile.begin;
  const bool masked = sampling.masked, penalizes = sampling.penalizes();
  float* scratch = a.scratch + row.scratch * a.stride + tile.begin;
  for (int i = thread; i < tile.width; i += kBlockThreads) {
    float logit = made[i];
    if (masked && !mask_holds(allowed, first_id + i)) logit = kNegativeInfinity;
    if (penalizes && (counts[i] > 0 || mask_holds(prompt_ids, first_id + i))) {
      logit = penalized(logit, sampling, counts[i]);
    }
    made[i] = scratch[i] = logit;  // read below by the thread that wrote it
  }
}

__global__ void __launch_bounds__(kBlockThreads) scan_rows_kernel(ScanRowsArgs a) {
  __shared__ float made[kTileWidth];
  __shared__ float part[kBlockWarps * kTileLanes];
  const int64_t r = blockIdx.y;
  if (r >= *a.num_rows || a.rows[r].slot < 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const SamplingRow& row = a.rows[r];
  const VocabTile tile = a.shard.tiles[blockIdx.x];
  const float* raw = a.logits + r * a.stride + tile.begin;
  const bool transformed = row.scratch >= 0;
  if (transformed) transform_tile(a, row, tile, raw, made);

  float logits[kThreadColumns];
  for (int k = 0; k < kThreadColumns; ++k) {
    const int i = thread + k * kBlockThreads;
    logits[k] = i < tile.width ? (transformed ? made[i] : raw[i]) : kNegativeInfinity;
  }
  float max = kNegativeInfinity;
  bool nan = false;
  for (int k = 0; k < kThreadColumns; ++k) {
    nan |= logits[k] != logits[k];
    if (logits[k] > max) max = logits[k];
  }
  max = fmaxf(max, __shfl_xor_sync(~0u, max, kTileLanes));
  if (thread % kWarpSize < kTileLanes) part[thread / kWarpSize * kTileLanes + thread % kWarpSize] = max;
  const bool has_nan = __syncthreads_or(nan);
  if (thread >= kWarpSize) return;
  const int lane = thread % kTileLanes;  // both halves of the warp alike
  for (int warp = 0; warp < kBlockWarps; ++warp) max = fmaxf(max, part[warp * kTileLanes + lane]);
  const int64_t item = r * a.shard.num_tiles + blockIdx.x;
  if (thread < kTileLanes) a.lane_max[item * kTileLanes + lane] = max;
  for (int step = kTileLanes / 2; step > 0; step >>= 1) max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
  if (thread == 0) a.scans[item] = {max, has_nan};
}

// The k-th largest of `values`, for every thread: eight bits of the ordered keys a round.
__device__ float kth_largest(const float* values, int count, uint32_t k, uint32_t* bins, uint64_t* part,
                             uint32_t* found) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bins[thread] = 0;
    __syncthreads();
    for (int i = thread; i < count; i += kBlockThreads) {
      const uint32_t key = ordered_bits(values[i]);
      if (shift == 24 || key >> (shift + 8) == prefix) atomicAdd(&bins[key >> shift & 255u], 1u);
    }
    __syncthreads();
    const uint32_t held = bins[255 - thread];  // from the top
    const auto sum = static_cast<uint32_t>(block_prefix_sum(held, part));
    if (sum >= k && sum - held < k) {
      found[0] = static_cast<uint32_t>(255 - thread);
      found[1] = k - (sum - held);
    }
    __syncthreads();
    prefix = prefix << 8 | found[0];
    k = found[1];
    __syncthreads();
  }
  return from_ordered_bits(prefix);
}

__global__ void __launch_bounds__(kBlockThreads) summarize_rows_kernel(SummarizeRowsArgs a) {
  __shared__ uint64_t part[kBlockWarps];
  __shared__ uint32_t bins[kBlockThreads];
  __shared__ uint32_t found[2];
  const int64_t r = blockIdx.x;
  if (r >= *a.num_rows || a.rows[r].slot < 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int num_tiles = a.shard.num_tiles;
  const TileScan* scans = a.scans + r * num_tiles;
  SamplingRow row = a.rows[r];

  bool broken = false;
  uint64_t best = 0;  // a tile's maximum above the complement of its number; 0: nothing above -inf
  for (int t = thread; t < num_tiles; t += kBlockThreads) {
    broken |= scans[t].has_nan || scans[t].max == std::numeric_limits<float>::infinity();
    if (!(scans[t].max > kNegativeInfinity)) continue;
    const uint64_t key = static_cast<uint64_t>(ordered_bits(scans[t].max)) << 32 | static_cast<uint32_t>(~t);
    if (key > best) best = key;
  }
  row.broken |= __syncthreads_or(broken) != 0;
  best = block_max(best, part);
  if (best != 0) {
    const int t = static_cast<int>(~static_cast<uint32_t>(best));
    const VocabTile tile = a.shard.tiles[t];
    row.max = scans[t].max;
    uint64_t first = 0;  // the complement of the smallest column
    for (int i = thread; i < tile.width; i += kBlockThreads) {
      if (row.logits[tile.begin + i] != row.max) continue;
      first = ~static_cast<uint64_t>(i);
      break;
    }
    first = block_max(first, part);
    row.arg_max = a.shard.first_id + tile.begin + static_cast<TokenId>(~first);
  }
  const int lanes = num_tiles * kTileLanes;
  if (row.top_k > 0 && row.top_k <= lanes) {
    row.count_bound =
        kth_largest(a.lane_max + r * lanes, lanes, static_cast<uint32_t>(row.top_k), bins, part, found);
  }
  if (thread != 0) return;
  a.rows[r] = row;
  if (row.filter >= 0) a.messages[row.filter] = {row.max, row.count_bound, row.broken, 0};
}

}  // namespace

void scan_rows(const ScanRowsArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(scan_rows_kernel,
               dim3(static_cast<unsigned>(args.shard.num_tiles), static_cast<unsigned>(args.max_rows)),
               dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

void summarize_rows(const SummarizeRowsArgs& args, const Launcher& on) {
  simt::launch(summarize_rows_kernel, dim3(static_cast<unsigned>(args.max_rows)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
