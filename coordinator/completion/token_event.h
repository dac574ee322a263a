// What the rest of the coordinator sees of a generated token.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/contract/completion_layout.h"

namespace helios {

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0f;  // nats
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// One position's decoded payload: the chosen token's logprob, and the alternatives in packed order.
struct PositionLogprobs {
  float chosen = 0.0f;
  std::vector<TokenLogprob> alternatives;
  friend bool operator==(const PositionLogprobs&, const PositionLogprobs&) = default;
};

/// One generated token in generation order. `finish` other than kNone: it is the sequence's last event; for kEos and
/// kStopId the token is the terminating one.
struct TokenEvent {
  TokenId token = -1;
  std::optional<PositionLogprobs> logprobs;  // present exactly when the request asked and the token was not forced
  bool forced = false;
  bool silent_eos = false;  // an EOS that ignore_eos let pass
  FinishCode finish = FinishCode::kNone;
};

/// A sequence's stream: tokens, then perhaps an Error, which ends it.
using SequenceEvent = std::variant<TokenEvent, Error>;

}  // namespace helios
