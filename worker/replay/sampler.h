// Chooses each sampling row's next token on the sharded logits with small fixed exchanges (X3), as recorded launches.
//
// Order: the slot's own transformations (kernels/sampling/token_transforms.h), temperature, min-p, top-k, top-p, then
// Gumbel-max over the survivors with stateless Philox noise keyed by the slot's seed and counted by (position, token
// id). The result depends on the row alone: not on batch, order, or the number of shards. Temperature 0 (below 1e-5) is
// the arg max, the smaller id on ties. Filters keep whole ties: ids whose logits equal the k-th, or the one at which
// top-p is reached, all stay, wherever their shard lies. Raw logits are never written (R2, R18): a row that transforms
// lives in filtering scratch, the others are read where they are.
//
// sampler_words counts what the step's own rows need; an exchange that is captured on a GPU moves room for max_rows.
// Thread: the rank's compute stream.
#pragma once

#include <cstdint>

#include "common/base/vocab_range.h"
#include "kernels/base/step_counters.h"
#include "kernels/sampling/collect_rows.h"
#include "kernels/sampling/gumbel_draw.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/threshold_search.h"
#include "kernels/sampling/token_offers.h"
#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios {

/// All in device memory, fixed for life.
struct SamplerInputs {
  const float* logits = nullptr;  // [max_rows, logits_stride], this rank's shard
  int64_t logits_stride = 0;
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const int32_t* row_slots = nullptr;      // [max_rows]; -1: no row, its token becomes -1
  const int32_t* row_positions = nullptr;  // [max_rows] absolute position of the token being sampled
  const int32_t* row_tokens = nullptr;     // [max_rows] tokens that its slot samples in the step before it; null: none
  TransformTables tables;
};

class Sampler {
 public:
  /// Borrows all but `inputs`. `counters` in device memory. Throws DeviceError.
  Sampler(const SamplerInputs& inputs, const VocabLayout& layout, StepCounters* counters, Communicator& communicator,
          Backend& backend);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Records the launches, for steps of at most `max_rows` rows, itself at most the inputs'. The same tokens on every
  /// rank; a replay may throw CollectiveError. Graphs replay one after another: they share the workspace.
  void record(Stream& stream, int32_t max_rows) const;

  /// [max_rows]; -1 when the row is no distribution: a NaN, a +inf, or no finite logit. That request fails, the others
  /// do not.
  const TokenId* tokens() const { return memory_.as<TokenId>(); }

  int64_t workspace_bytes() const;

 private:
  struct Launches {
    CollectRowsArgs collect;
    ScanRowsArgs scan;
    SummarizeRowsArgs summarize;
    BeginSearchesArgs begin;
    SearchBinsArgs bins;
    DescendSearchesArgs descend;
    GumbelDrawArgs draw;
    OfferTokensArgs offer;
    ChooseTokensArgs choose;
  };
  int64_t place(std::byte* base, int32_t max_rows, Launches* launches) const;
  void exchange(Stream& stream, const void* mine, void* all, size_t row_bytes, const int32_t* num_rows,
                int64_t max_rows) const;

  const SamplerInputs inputs_;
  Communicator& communicator_;
  const int world_;
  const int64_t vocab_size_;
  StepCounters* const counters_;
  Memory tiles_;
  TilesView shard_;
  Memory scratch_;
  Memory memory_;  // what every graph finds in one place, then what each lays out for as many rows as it has
};

}  // namespace helios
