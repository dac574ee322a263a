// Launches 5 and 6 at TP > 1: this shard's tiles to one payload of keys or raw logits, and every shard's payload to the
// packed position. Between them lies the second exchange. (Launch 4 is tile_candidates.h on the shard.)
//
// The packed output is that of emit_logprobs.h, bit for bit. One item is one position.
#pragma once

#include "kernels/logprobs/emit_logprobs.h"
#include "kernels/logprobs/shard_exchange.h"

namespace helios {

struct ShardCandidatesArgs {
  const float* logits = nullptr;  // [rows, stride], this shard
  int64_t stride = 0;
  const LogprobPosition* positions = nullptr;
  int num_positions = 0;
  const ShardTiles* shard = nullptr;
  const SortKey* keys = nullptr;    // [num_positions, tiles, 32]
  const int32_t* counts = nullptr;  // [num_positions, tiles]
  int32_t* payloads = nullptr;      // [num_positions, 256] out
};

void shard_candidates(const ShardCandidatesArgs& args, const Launcher& on);

struct EmitShardLogprobsArgs {
  const LogprobPosition* positions = nullptr;
  int num_positions = 0;
  int alternatives = 0;  // K, 0..20
  int64_t vocab_size = 0;
  int64_t shard_stride = 0;  // ids a rank: id's owner is id / shard_stride
  int world_size = 1;
  const float* normalizers = nullptr;  // [num_positions]
  const int32_t* gathered = nullptr;   // [world_size, num_positions, 256]
};

void emit_shard_logprobs(const EmitShardLogprobsArgs& args, const Launcher& on);

}  // namespace helios
