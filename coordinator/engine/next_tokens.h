// What one sequence may say next, where that depends on the tokens before: a grammar's place, a budget of reasoning.
//
// Its lanes are planned one by one: RequestState waits for the token, everybody else runs ahead. The words go up with
// the lane. Each has one owner and one thread at a time: the connection's until it is submitted, then the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "coordinator/completion/token_event.h"

namespace helios {

class NextTokens {
 public:
  virtual ~NextTokens() = default;
  /// Lane::mask for the token after `generated` others. `vocab_size`: the core's. Asking changes nothing.
  /// Errors: kInvalidArgument, naming what leaves no token.
  virtual Result<std::vector<uint32_t>> next(int32_t generated, int64_t vocab_size) = 0;
  /// Goes on with a token that came; one that was the only one allowed by force is marked so (R4).
  /// Errors: kInternal when the mask before it had forbidden it.
  virtual Status accept(TokenEvent& event) = 0;
};

}  // namespace helios
