// Lane after lane on one thread.
#include "kernels/step/step_summary.h"

#include "common/contract/completion_layout.h"

namespace helios {

void summarize_step(const StepSummaryArgs& a, const Launcher&) {
  const StepHeader& header = *a.inputs.header;
  const int words = record_words(a.token_capacity);
  const int32_t count = header.num_lanes > 0 ? header.num_lanes : header.num_admissions;
  uint64_t digest = kDigestSeed;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t slot = header.num_lanes > 0 ? a.inputs.lanes[i].slot : a.inputs.admissions[i].slot;
    const int64_t* record = a.records + (int64_t{header.frame} * a.capacity + slot) * words;
    uint64_t lane = kDigestSeed;
    for (int w = 0; w < words; ++w) lane = extend_digest(lane, static_cast<uint64_t>(record[w]));
    digest = extend_digest(digest, lane);
  }
  a.summaries[header.frame] = {.digest = digest, .counters = *a.counters};
}

}  // namespace helios
