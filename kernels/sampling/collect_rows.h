// The first launch: which rows sample, how, and which of them need filtering scratch or filters.
//
// Follows from slot states alone, so every rank numbers scratch rows and filtered rows alike. One thread (a warp) does
// it: a row is 100 bytes.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/sampling/sampling_row.h"
#include "kernels/sampling/token_transforms.h"

namespace helios {

struct CollectRowsArgs {
  const float* logits = nullptr;  // [max_rows, stride] raw, this rank's columns
  int64_t stride = 0;
  const float* scratch = nullptr;  // [max_rows, stride] filtering scratch
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const int32_t* row_slots = nullptr;      // [max_rows]; -1: no row
  const int32_t* row_positions = nullptr;  // [max_rows] absolute, of the token being sampled
  const int32_t* row_tokens = nullptr;     // [max_rows] how many the slot samples before it; null: none
  TransformTables tables;
  int64_t vocab_size = 0;
  SamplingRow* rows = nullptr;       // [max_rows] out
  int32_t* filtered = nullptr;       // [max_rows] out: the rows with filters, ascending
  int32_t* num_filtered = nullptr;   // out
  StepCounters* counters = nullptr;  // sampler_rows_filtered
};

/// A slot's parameters, normalised; greedy rows have no filters. `logits`, `scratch` and `filter` are left.
HELIOS_HD inline SamplingRow make_sampling_row(const SlotSampling& sampling, int32_t slot, int32_t position,
                                               int64_t vocab_size) {
  const auto within = [](float value) { return value < 0.0f ? 0.0f : 1.0f < value ? 1.0f : value; };
  SamplingRow row;
  row.slot = slot;
  row.noise = {sampling.seed, position};
  row.greedy = !(sampling.temperature >= kGreedyTemperature);
  if (row.greedy) return row;
  row.temperature = sampling.temperature < 1e10f ? sampling.temperature : 1e10f;  // beyond it all is uniform anyway
  row.min_p = within(sampling.min_p);
  row.top_k = sampling.top_k > 0 && sampling.top_k < vocab_size ? sampling.top_k : 0;
  row.top_p = within(sampling.top_p);
  return row;
}

void collect_rows(const CollectRowsArgs& args, const Launcher& on);

}  // namespace helios
