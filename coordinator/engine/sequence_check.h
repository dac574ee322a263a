// The last look at a sequence before it may reach ranks. Thread: any.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/contract/core_manifest.h"
#include "coordinator/scheduler/request_state.h"

namespace helios {

/// The protocol has checked all of this with the client's own words. Here it keeps ranks from a fault, which would cost
/// everybody, over what slipped through or what a newly loaded core no longer offers.
/// Errors: kInvalidArgument, naming what is out of range and what the core offers.
Status check_sequence(const Capabilities& core, const RequestSpec& spec, int32_t num_logprobs,
                      int32_t num_prompt_logprobs);

}  // namespace helios
