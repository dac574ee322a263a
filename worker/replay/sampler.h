// Chooses each sampling row's next token on the sharded logits with small fixed exchanges (X3).
//
// Order of transformations: temperature, min-p, top-k, top-p, then Gumbel-max over the survivors with stateless Philox
// noise keyed by the slot's seed and counted by (position, token id). The result depends on the row alone: not on
// batch, order, or the number of shards. Temperature 0 (below 1e-5) is the arg max, the smaller id on ties. Filters
// keep whole ties: ids whose logits equal the k-th, or the one at which top-p is reached, all stay, wherever their
// shard lies. Raw logits are never written (R2, R18). Thread: rank.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/vocab_range.h"
#include "kernels/base/launcher.h"
#include "kernels/step/slot_sampling.h"
#include "worker/collective/communicator.h"

namespace helios {

struct SamplerArgs {
  const float* logits = nullptr;  // [rows, logits_stride], this rank's shard
  int64_t logits_stride = 0;
  int64_t rows = 0;
  const int32_t* row_slots = nullptr;      // [rows]; -1: no row, its token becomes -1
  const int32_t* row_positions = nullptr;  // [rows] absolute position of the token being sampled
  const SlotSampling* slots = nullptr;     // [capacity]
  int32_t* tokens = nullptr;               // [rows] out; -1 when the row is no distribution: a NaN, a +inf, or no
                                           // finite logit. That request fails, the others do not
};

class Sampler {
 public:
  Sampler(const VocabLayout& layout, int max_rows, Communicator& communicator, int num_threads);
  ~Sampler();

  /// Same tokens on every rank. Throws CollectiveError.
  void run(const SamplerArgs& args, const Launcher& on);

  int64_t workspace_bytes() const;

  struct Counters {
    int64_t words_exchanged = 0;  // sent by this rank, 32-bit words
    int64_t rows = 0;
  };
  const Counters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
