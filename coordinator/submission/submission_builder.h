// The scheduler's decision as the message that every rank gets.
//
// R13: the flag and count vectors go whole on every submission, zero for slots that do not ask; selected ids only as
// the prefixes of slots that select. R38: a scored prefill carries each prompt row's target. Pure. Thread: engine.
#pragma once

#include "common/base/ids.h"
#include "common/contract/core_manifest.h"
#include "common/contract/submission.h"
#include "coordinator/scheduler/batch_planner.h"

namespace helios {

/// A lane's flag is set only where it samples: a prompt chunk that emits nothing has nothing to report. A core without
/// the logprob buffers (K = 0) never gets a flag.
bool lane_requests_logprobs(const PlannedLane& lane, const Capabilities& capabilities);

Submission build_submission(const Decision& decision, const Capabilities& capabilities, uint32_t incarnation,
                            Sequence sequence, FrameIndex frame);

}  // namespace helios
