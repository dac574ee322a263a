// What a slot asks to be done to its logits before the filters. In this order, and only in filtering scratch (R2, R18):
//
//   1. logit bias: added to the listed ids
//   2. allowed ids: the others become -inf. A step's grammar is such a mask too
//   3. min tokens: EOS and stop ids become -inf while the slot has not generated enough
//   4. repetition penalty: ids that prompt or output hold are divided by it when positive, else multiplied
//   5. frequency penalty times the times that an id was generated, then the presence penalty if it was, are subtracted
//
// Temperature, min-p, top-k, top-p and the draw follow (sampling_row.h). vLLM documents allowed ids, min tokens, logit
// bias, then penalties in this order: the same logits, since a bias is finite and nothing lifts -inf. FP32, each step
// rounded once, with the same bits on every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/contract/sampling_params.h"
#include "kernels/base/host_device.h"
#include "kernels/step/slot_sampling.h"
#include "kernels/step/slot_state.h"

namespace helios {

/// All in device memory, [capacity, ...].
struct TransformTables {
  const SlotSampling* sampling = nullptr;
  const SlotState* slots = nullptr;
  const LogitBias* biases = nullptr;      // [capacity, kMaxLogitBias]
  const uint32_t* allowed = nullptr;      // [capacity, mask_words] bit i % 32 of word i / 32: id i may be sampled
  const uint32_t* prompt_ids = nullptr;   // [capacity, mask_words] the prompt holds the id
  const int32_t* token_counts = nullptr;  // [capacity, counts_stride] times generated, this rank's columns
  int64_t counts_stride = 0;
  int32_t mask_words = 0;  // ceil(V / 32)
};

HELIOS_HD inline bool may_not_stop(const SlotState& slot) {
  return slot.generated < slot.min_tokens && (slot.eos_id >= 0 || slot.num_stop_ids > 0);
}

HELIOS_HD inline bool transforms(const SlotSampling& sampling, const SlotState& slot) {
  return sampling.num_biases > 0 || sampling.masked || sampling.penalizes() || may_not_stop(slot);
}

HELIOS_HD inline bool mask_holds(const uint32_t* words, TokenId id) { return words[id / 32] >> (id % 32) & 1; }

/// Penalties of an id that the prompt or the output holds; `count`: times generated.
HELIOS_HD inline float penalized(float logit, const SlotSampling& sampling, int32_t count) {
  logit = logit > 0.0f ? logit / sampling.repetition_penalty : rounded_product(logit, sampling.repetition_penalty);
  logit = std::fma(-sampling.frequency_penalty, static_cast<float>(count), logit);
  return count > 0 ? rounded_sum(logit, -sampling.presence_penalty) : logit;
}

}  // namespace helios
