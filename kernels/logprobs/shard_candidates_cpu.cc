#include "kernels/logprobs/shard_candidates.h"

#include <algorithm>
#include <limits>

#include "kernels/logprobs/best_keys.h"

namespace helios {
namespace {

using namespace shard_candidates_word;

void fill_payload(const ShardCandidatesArgs& args, int64_t p) {
  const LogprobPosition& position = args.positions[p];
  const TilesView& shard = args.shard;
  const float* row = args.logits + position.row * args.stride;
  const auto owned_logit_bits = [&](TokenId id) {
    const int64_t column = static_cast<int64_t>(id) - shard.first_id;
    return column >= 0 && column < shard.width ? float_bits(row[column]) : 0;
  };
  int32_t* payload = args.payloads + p * kShardExchangeWords;
  std::fill(payload, payload + kShardExchangeWords, 0);
  payload[kChosenLogit] = owned_logit_bits(position.chosen);
  for (int i = 0; i < position.num_selected; ++i) payload[kBody + i] = owned_logit_bits(position.selected[i]);
  if (position.num_selected > 0) return;

  BestKeys best(kKeptSortKeys);
  merge_tile_keys(args.keys, args.counts, p * shard.num_tiles, shard.num_tiles, best);
  int at = kBody;
  for (const SortKey key : best.keys()) {
    payload[at++] = static_cast<int32_t>(key >> 32);
    payload[at++] = static_cast<int32_t>(key);
  }
  payload[kNumKeys] = static_cast<int32_t>(best.keys().size());
}

SortKey read_key(const int32_t* words) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(words[0])) << 32) | static_cast<uint32_t>(words[1]);
}

void emit_position(const EmitShardLogprobsArgs& args, int64_t p) {
  const LogprobPosition& position = args.positions[p];
  const auto payload_of = [&](int64_t rank) {
    return args.gathered + (rank * args.max_positions + p) * kShardExchangeWords;
  };
  const auto logprob = [&](TokenId id, int word) {
    if (id < 0 || id >= args.vocab_size) return std::numeric_limits<float>::quiet_NaN();
    return reported_logprob(bits_float(payload_of(id / args.shard_stride)[word]), args.normalizers[p]);
  };
  store_pair(position.packed, 0, position.chosen, logprob(position.chosen, kChosenLogit));
  for (int i = 0; i < position.num_selected; ++i) {
    store_pair(position.packed, 1 + i, position.selected[i], logprob(position.selected[i], kBody + i));
  }
  if (position.num_selected > 0) return;

  BestKeys best(args.alternatives);
  for (int rank = 0; rank < args.world_size; ++rank) {
    const int32_t* payload = payload_of(rank);
    const int count = std::clamp(payload[kNumKeys], 0, kKeptSortKeys);  // a peer's word: never past the payload
    for (int i = 0; i < count; ++i) best.insert(read_key(payload + kBody + 2 * i));
  }
  for (int i = 0; i < args.alternatives; ++i) store_alternative(position.packed, i, best.at(i));
}

}  // namespace

void shard_candidates(const ShardCandidatesArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const ShardCandidatesArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) fill_payload(*launch, p);
  });
  if (args.counters)
    args.counters->logprob_logits_read += candidate_logits_read(args.counts, *args.num_positions, args.shard);
}

void emit_shard_logprobs(const EmitShardLogprobsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const EmitShardLogprobsArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) emit_position(*launch, p);
  });
}

}  // namespace helios
