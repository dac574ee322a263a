// A record and a kilobyte a position, of the lanes of one submission: one thread.
#include "kernels/step/role_merge.h"

#include <algorithm>

#include "common/contract/completion_layout.h"

namespace helios {

void merge_roles(const RoleMergeArgs& a, const Launcher&) {
  const StepHeader& header = *a.inputs.header;
  const int64_t words = record_words(a.token_capacity), slot_words = int64_t{a.token_capacity} * a.packed_words;
  for (int32_t i = 0; i < header.num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    const int64_t from = int64_t{lane.decodes != 0} * a.capacity + lane.slot;
    const int64_t to = int64_t{header.frame} * a.capacity + lane.slot;
    const int64_t* record = a.role_records + from * words;
    std::copy_n(record, words, a.records + to * words);
    ++a.counters->merged_records;
    if (!a.packed || a.requested[lane.slot] == 0) continue;
    const int64_t emitted = record[record_word::kEmitted];
    std::copy_n(a.role_packed + from * slot_words, emitted * a.packed_words, a.packed + to * slot_words);
    a.counters->merged_positions += emitted;
  }
}

}  // namespace helios
