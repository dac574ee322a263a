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
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  TilesView shard;
  const SortKey* keys = nullptr;     // [max_positions, tiles, 32]
  const int32_t* counts = nullptr;   // [max_positions, tiles]
  int32_t* payloads = nullptr;       // [max_positions, 256] out
  StepCounters* counters = nullptr;  // adds the logits that launch 4 read; null: counts nothing
};

void shard_candidates(const ShardCandidatesArgs& args, const Launcher& on);

struct EmitShardLogprobsArgs {
  const LogprobPosition* positions = nullptr;
  const int32_t* num_positions = nullptr;  // of this step, at most max_positions
  int64_t max_positions = 0;               // bounds the grid
  int alternatives = 0;                    // K, 0..20
  int64_t vocab_size = 0;
  int64_t shard_stride = 0;  // ids a rank: id's owner is id / shard_stride
  int world_size = 1;
  const float* normalizers = nullptr;  // [max_positions]
  const int32_t* gathered = nullptr;   // [world_size, max_positions, 256]
};

void emit_shard_logprobs(const EmitShardLogprobsArgs& args, const Launcher& on);

}  // namespace helios
