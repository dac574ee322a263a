#include "kernels/logprobs/emit_logprobs.h"

#include <algorithm>
#include <limits>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/best_keys.h"

namespace helios {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void emit_position(const EmitLogprobsArgs& args, int64_t p) {
  const LogprobPosition& position = args.positions[p];
  const float* row = args.logits + position.row * args.stride;
  const float normalizer = args.normalizers[p];
  const auto logprob = [&](TokenId id) {
    return id >= 0 && id < args.shard->width ? reported_logprob(row[id], normalizer) : kNaN;
  };
  store_pair(position.packed, 0, position.chosen, logprob(position.chosen));
  for (int i = 0; i < position.num_selected; ++i) {
    store_pair(position.packed, 1 + i, position.selected[i], logprob(position.selected[i]));
  }
  if (position.num_selected > 0 || args.alternatives == 0) return;  // keys were not asked for

  BestKeys best(args.alternatives);
  const int num_tiles = args.shard->num_tiles();
  for (int64_t tile = p * num_tiles; tile < (p + 1) * num_tiles; ++tile) {
    const SortKey* keys = args.keys + tile * kKeptSortKeys;
    for (int i = 0; i < args.counts[tile]; ++i) best.insert(keys[i]);
  }
  store_alternatives(position.packed, args.alternatives, best.keys());
}

}  // namespace

void store_pair(int32_t* packed, int pair, TokenId id, float logprob) {
  packed[kPairWords * pair] = id;
  packed[kPairWords * pair + 1] = float_bits(logprob);
}

void store_alternatives(int32_t* packed, int alternatives, std::span<const SortKey> keys) {
  const int found = std::min<int>(alternatives, static_cast<int>(keys.size()));
  for (int i = 0; i < found; ++i) store_pair(packed, 1 + i, key_id(keys[i]), key_value(keys[i]));
  for (int i = found; i < alternatives; ++i) store_pair(packed, 1 + i, -1, kNaN);
}

void emit_logprobs(const EmitLogprobsArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const EmitLogprobsArgs* launch = &args;
  pool.parallel_for(args.num_positions, 4, [launch](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) emit_position(*launch, p);
  });
}

}  // namespace helios
