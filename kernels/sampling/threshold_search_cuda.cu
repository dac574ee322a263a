// Histograms: one block a (tile, search), shared-memory bins of native 32-bit atomics. A tile's mass is below 2^52, so
// a bin is two words, twenty bits of each weight in the lower; the many ids of the rest bin never leave registers
// before a warp has added them. Blocks meet in 64-bit integer atomics, where order cannot matter. Rounds that find no
// active search end at once, as does a tile below the range.
#include "kernels/logprobs/lse_state.h"
#include "kernels/sampling/block_scan.cuh"
#include "kernels/sampling/threshold_search.h"

namespace helios {
namespace {

constexpr int kSearchColumns = kTileWidth / kBlockThreads;
constexpr int kLowBits = 20;
static_assert(kSearchBins == kBlockThreads);

// One warp, a filtered row a lane.
__global__ void begin_searches_kernel(BeginSearchesArgs a) {
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t count = *a.num_filtered;
  int32_t active = 0;
  for (int32_t first = 0; first < count; first += kWarpSize) {
    const int32_t f = first + lane;
    const bool searches = f < count && begin_search(a, f);
    const unsigned lanes = __ballot_sync(~0u, searches);
    if (searches) a.active[active + __popc(lanes & ((1u << lane) - 1))] = f;
    active += __popc(lanes);
  }
  if (lane != 0) return;
  *a.num_active = active;
  if (a.world > 1) a.counters->sampler_words += count * int64_t{sizeof(RowMessage) / 4};
}

__device__ inline void add_to(uint64_t* bin, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(bin), static_cast<unsigned long long>(value));
}

__global__ void __launch_bounds__(kBlockThreads) search_bins_kernel(SearchBinsArgs a) {
  __shared__ uint32_t low_words[kSearchBins], high_words[kSearchBins];
  const int64_t position = blockIdx.y;
  if (position >= *a.num_active) return;
  const int thread = static_cast<int>(threadIdx.x);
  const ThresholdSearch search = a.searches[a.active[position]];
  const SamplingRow& row = a.rows[search.row];
  const float low = from_ordered_bits(search.low), high = from_ordered_bits(search.high);
  if (!(a.scans[int64_t{search.row} * a.shard.num_tiles + blockIdx.x].max >= low)) return;
  low_words[thread] = high_words[thread] = 0;
  __syncthreads();

  const VocabTile tile = a.shard.tiles[blockIdx.x];
  const float* columns = row.logits + tile.begin;
  float logits[kSearchColumns];
  for (int k = 0; k < kSearchColumns; ++k) {
    const int i = thread + k * kBlockThreads;
    logits[k] = i < tile.width ? columns[i] : kNegativeInfinity;
  }
  const bool linear = search.window > 0.0f;
  const LinearBins steps(search.high, linear ? search.window : 1.0f);
  const int shift = search.shift();
  const float max = row.max, inverse = 1.0f / row.temperature;
  uint64_t rest = 0;
  for (int k = 0; k < kSearchColumns; ++k) {
    const float logit = logits[k];
    if (!(logit >= low && logit <= high)) continue;
    int bin;
    if (linear) {
      bin = steps.of(logit);
    } else {
      const uint32_t key = ordered_bits(logit);
      if (key < search.low || key > search.high) continue;  // a range that ends between the zeros compares as one zero
      bin = static_cast<int>((key - search.low) >> shift);
    }
    const uint64_t value = search.by_mass ? mass_of(exp_nonpositive(rounded_product(logit - max, inverse))) : 1;
    if (linear && bin == kRestBin) {
      rest += value;
      continue;
    }
    atomicAdd(&low_words[bin], static_cast<uint32_t>(value & ((1u << kLowBits) - 1)));
    if (value >> kLowBits) atomicAdd(&high_words[bin], static_cast<uint32_t>(value >> kLowBits));
  }
  uint64_t* bins = a.bins + position * kSearchBins;
  for (int step = kWarpSize / 2; step > 0; step >>= 1) rest += __shfl_xor_sync(~0u, rest, step);
  if (thread % kWarpSize == 0 && rest != 0) add_to(bins + kRestBin, rest);
  __syncthreads();
  const uint64_t held = (static_cast<uint64_t>(high_words[thread]) << kLowBits) + low_words[thread];
  if (held != 0) add_to(bins + thread, held);
}

// One search of one block; thread 0 carries the descent out. Returns, to thread 0, whether the row goes on.
__device__ bool descend(const DescendSearchesArgs& a, int64_t position, int32_t f) {
  alignas(ThresholdSearch) __shared__ unsigned char storage[sizeof(ThresholdSearch)];  // not constructed
  __shared__ uint64_t bins[kSearchBins];
  __shared__ uint64_t part[kBlockWarps];
  __shared__ uint64_t hit_before;
  __shared__ int hit_step;
  ThresholdSearch& search = *reinterpret_cast<ThresholdSearch*>(storage);
  const int thread = static_cast<int>(threadIdx.x);
  uint64_t sum = 0;
  for (int r = 0; r < a.world; ++r) sum += a.bins[(int64_t{r} * a.max_rows + position) * kSearchBins + thread];
  a.own[position * kSearchBins + thread] = 0;
  bins[thread] = sum;
  if (thread == 0) {
    search = a.searches[f];
    hit_step = -1;
  }
  const uint64_t total = block_prefix_sum(sum, part);
  if (thread == kBlockThreads - 1) search.set_total(total);
  __syncthreads();
  const bool within = thread < search.num_steps();
  const uint64_t held = within ? bins[search.bin_at(thread)] : 0;
  const uint64_t reached = search.above + block_prefix_sum(held, part);
  if (within && reached >= search.target && reached - held < search.target) {
    hit_step = thread;
    hit_before = reached - held;
  }
  if (thread == kBlockThreads - 1) bins[0] = reached;  // by all steps; the bins have been read
  __syncthreads();
  if (thread != 0) return false;
  const bool ended = hit_step >= 0 ? search.enter(hit_step, hit_before) : search.pass_over(bins[0]);
  const bool goes_on = !ended || begin_next_search(a.rows[search.row], search);
  a.searches[f] = search;
  return goes_on;
}

// Grid: every place that a search could have. The block that ends last closes the gaps in the list.
__global__ void __launch_bounds__(kBlockThreads) descend_searches_kernel(DescendSearchesArgs a) {
  __shared__ bool last;
  const int64_t position = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t count = *a.num_active;
  if (position < count) {
    const int32_t f = a.active[position];
    const bool goes_on = descend(a, position, f);
    if (lane == 0 && !goes_on) a.active[position] = -1;
  }
  if (lane == 0) {
    __threadfence();
    last = atomicAdd(a.finished_blocks, 1) == static_cast<int32_t>(gridDim.x) - 1;
  }
  __syncthreads();
  if (!last || lane >= kWarpSize) return;
  __threadfence();
  int32_t left = 0;
  for (int32_t first = 0; first < count; first += kWarpSize) {
    // Atomically: this block may hold the others' places in its cache as they were.
    const int32_t f = first + lane < count ? atomicMax(a.active + first + lane, -1) : -1;
    const unsigned lanes = __ballot_sync(~0u, f >= 0);
    if (f >= 0) a.active[left + __popc(lanes & ((1u << lane) - 1))] = f;
    left += __popc(lanes);
  }
  if (lane != 0) return;
  *a.num_active = left;
  *a.finished_blocks = 0;
  if (a.world > 1) a.counters->sampler_words += count * int64_t{2 * kSearchBins};
}

}  // namespace

void begin_searches(const BeginSearchesArgs& args, const Launcher& on) {
  simt::launch(begin_searches_kernel, dim3(1), dim3(kWarpSize), 0, static_cast<simt::Stream>(on.stream()), args);
}

void search_bins(const SearchBinsArgs& args, const Launcher& on) {
  if (args.shard.num_tiles == 0) return;
  simt::launch(search_bins_kernel,
               dim3(static_cast<unsigned>(args.shard.num_tiles), static_cast<unsigned>(args.max_rows)),
               dim3(kBlockThreads), 0, static_cast<simt::Stream>(on.stream()), args);
}

void descend_searches(const DescendSearchesArgs& args, const Launcher& on) {
  simt::launch(descend_searches_kernel, dim3(static_cast<unsigned>(args.max_rows)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
