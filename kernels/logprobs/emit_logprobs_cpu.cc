#include "kernels/logprobs/emit_logprobs.h"

#include <limits>

#include "kernels/logprobs/best_keys.h"

namespace helios {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void emit_position(const EmitLogprobsArgs& args, int64_t p) {
  const LogprobPosition& position = args.positions[p];
  const float* row = args.logits + position.row * args.stride;
  const float normalizer = args.normalizers[p];
  const auto logprob = [&](TokenId id) {
    return id >= 0 && id < args.shard.width ? reported_logprob(row[id], normalizer) : kNaN;
  };
  store_pair(position.packed, 0, position.chosen, logprob(position.chosen));
  for (int i = 0; i < position.num_selected; ++i) {
    store_pair(position.packed, 1 + i, position.selected[i], logprob(position.selected[i]));
  }
  if (position.num_selected > 0 || args.alternatives == 0) return;  // keys were not asked for

  BestKeys best(args.alternatives);
  merge_tile_keys(args.keys, args.counts, p * args.shard.num_tiles, args.shard.num_tiles, best);
  for (int i = 0; i < args.alternatives; ++i) store_alternative(position.packed, i, best.at(i));
}

}  // namespace

void emit_logprobs(const EmitLogprobsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const EmitLogprobsArgs* launch = &args;
  pool.parallel_for(*args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) emit_position(*launch, p);
  });
  if (args.counters && args.alternatives > 0) {
    args.counters->logprob_logits_read += candidate_logits_read(args.counts, *args.num_positions, args.shard);
  }
}

}  // namespace helios
