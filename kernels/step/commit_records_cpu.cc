// Lane after lane on one thread: a few cache lines each.
#include "kernels/step/commit_records.h"

#include "kernels/step/commit_lane.h"

namespace helios {

void commit_records(const CommitArgs& args, const Launcher&) {
  const StepHeader& header = *args.inputs.header;
  for (int32_t i = 0; i < header.num_lanes; ++i) args.counters->emitted += commit_lane(args, i);
  for (int32_t i = 0; header.num_lanes == 0 && i < header.num_admissions; ++i) {
    const AdmissionInput& a = args.inputs.admissions[i];
    begin_record(args, header.frame, a.slot, a.state.epoch);
  }
}

}  // namespace helios
