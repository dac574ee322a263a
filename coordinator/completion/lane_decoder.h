// One lane of a decoded frame: its record and payload become token events, in generation order.
//
// Only events with all their data leave here. An error ends the lane: the events before it stand, later tokens of the
// same record are suppressed (R27). Thread: engine.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/contract/completion.h"
#include "coordinator/completion/logprob_decoder.h"
#include "coordinator/completion/record_reader.h"
#include "coordinator/completion/token_event.h"

namespace helios {

struct ExpectedLane {
  ExpectedRecord record;
  bool samples = true;      // false: a prompt chunk that must emit nothing
  bool requested = false;   // the slot's flag was set in this submission
  LogprobRequest logprobs;  // read when requested
  TokenId eos_id = -1;      // which token a silent EOS is
  int32_t tokens_left = 0;  // of max_tokens; the record may not emit more
  std::span<const TokenId> proposals;  // that the lane brought
};

struct DecodedLane {
  std::vector<TokenEvent> events;
  int32_t accepted = 0;        // of these, tokens that were proposed: the first so many
  std::optional<Error> error;  // kInternal: for the client it is our fault
};

/// `lane` is the lane's place in the submission and so in `completion.records`; its payload is found by slot.
DecodedLane decode_lane(const Completion& completion, size_t lane, const ExpectedLane& expected);

}  // namespace helios
