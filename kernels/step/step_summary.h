// The end of a step: what the ranks compare, and what this rank has counted, put where the read-back finds it.
//
// The digest covers the record words of the submission's lanes in the active frame, after every writer (R28: records,
// never payloads). Each record is digested on its own, then the records' digests in lane order, so that a GPU has one
// short chain. Counters are copied whole into the frame's summary: the next step already adds to them while this frame
// is on its way.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/launcher.h"
#include "kernels/base/step_counters.h"
#include "kernels/step/step_inputs.h"

namespace helios {

inline constexpr uint64_t kDigestSeed = 0x243f6a8885a308d3u;

HELIOS_HD inline uint64_t extend_digest(uint64_t digest, uint64_t word) {
  digest ^= word;
  digest *= 0x9e3779b97f4a7c15u;  // odd, so no word is lost
  return digest ^ (digest >> 29);
}

struct StepSummary {
  uint64_t digest = 0;
  StepCounters counters;
};

struct StepSummaryArgs {
  StepInputs inputs;
  const int64_t* records = nullptr;  // [2, capacity, 16 + T]: the frames
  int32_t capacity = 0;
  int32_t token_capacity = 0;
  uint64_t* lane_digests = nullptr;  // [capacity] scratch
  const StepCounters* counters = nullptr;
  StepSummary* summaries = nullptr;  // [2]; the active frame's is written
};
/// Of an admission, which has no lanes, the records of its slots in order.
void summarize_step(const StepSummaryArgs& args, const Launcher& on);

}  // namespace helios
