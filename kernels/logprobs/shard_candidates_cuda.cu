// shard_candidates: one block a position. emit_shard_logprobs: one warp a position, which merges a list of 32 keys a
// rank; the lists come over the wire and are sorted again rather than trusted.
#include "kernels/logprobs/shard_candidates.h"

#include "kernels/logprobs/position_blocks.cuh"

namespace helios {
namespace {

using namespace shard_candidates_word;

__global__ void __launch_bounds__(kBlockThreads) shard_candidates_kernel(ShardCandidatesArgs a) {
  __shared__ SortKey lists[kBlockWarps][kWarpSize];
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const LogprobPosition& position = a.positions[p];
  const float* row = a.logits + position.row * a.stride;
  int32_t* payload = a.payloads + p * kShardExchangeWords;
  for (int word = static_cast<int>(threadIdx.x); word < kShardExchangeWords; word += kBlockThreads) {
    const bool selected = word >= kBody && word < kBody + position.num_selected;
    int32_t bits = 0;
    if (word == kChosenLogit || selected) {
      const int64_t id = selected ? position.selected[word - kBody] : position.chosen;
      const int64_t column = id - a.shard.first_id;
      if (column >= 0 && column < a.shard.width) bits = float_bits(row[column]);
    }
    payload[word] = bits;
  }
  if (position.num_selected > 0) return;
  const int64_t first = p * a.shard.num_tiles;
  const SortKey key =  // its barriers order the words below behind the zeros above
      merge_tile_keys(a.keys + first * kKeptSortKeys, a.counts + first, a.shard, a.counters, lists);
  if (threadIdx.x >= kWarpSize) return;
  const unsigned kept = __ballot_sync(~0u, key != kNoKey);
  payload[kBody + 2 * threadIdx.x] = static_cast<int32_t>(key >> 32);
  payload[kBody + 2 * threadIdx.x + 1] = static_cast<int32_t>(key);
  if (threadIdx.x == 0) payload[kNumKeys] = __popc(kept);
}

__device__ inline float gathered_logprob(const EmitShardLogprobsArgs& a, int64_t p, TokenId id, int word) {
  if (id < 0 || id >= a.vocab_size) return std::numeric_limits<float>::quiet_NaN();
  const int64_t owner = id / a.shard_stride;
  return reported_logprob(bits_float(a.gathered[(owner * a.max_positions + p) * kShardExchangeWords + word]),
                          a.normalizers[p]);
}

__global__ void __launch_bounds__(kWarpSize) emit_shard_logprobs_kernel(EmitShardLogprobsArgs a) {
  const int64_t p = blockIdx.x;
  if (p >= *a.num_positions) return;
  const int lane = static_cast<int>(threadIdx.x);
  const LogprobPosition& position = a.positions[p];
  for (int i = lane; i <= position.num_selected; i += kWarpSize) {
    const TokenId id = i == 0 ? position.chosen : position.selected[i - 1];
    store_pair(position.packed, i, id, gathered_logprob(a, p, id, i == 0 ? kChosenLogit : kBody + i - 1));
  }
  if (position.num_selected > 0) return;
  WarpTopKeys<SortKey> best;
  for (int64_t rank = 0; rank < a.world_size; ++rank) {
    const int32_t* payload = a.gathered + (rank * a.max_positions + p) * kShardExchangeWords;
    const int32_t* words = payload + kBody + 2 * lane;
    const SortKey key =
        (static_cast<uint64_t>(static_cast<uint32_t>(words[0])) << 32) | static_cast<uint32_t>(words[1]);
    best.insert(lane < payload[kNumKeys] ? key : kNoKey);
  }
  if (lane < a.alternatives) store_alternative(position.packed, lane, best.best());
}

}  // namespace

void shard_candidates(const ShardCandidatesArgs& args, const Launcher& on) {
  simt::launch(shard_candidates_kernel, dim3(static_cast<unsigned>(args.max_positions)), dim3(kBlockThreads), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

void emit_shard_logprobs(const EmitShardLogprobsArgs& args, const Launcher& on) {
  simt::launch(emit_shard_logprobs_kernel, dim3(static_cast<unsigned>(args.max_positions)), dim3(kWarpSize), 0,
               static_cast<simt::Stream>(on.stream()), args);
}

}  // namespace helios
