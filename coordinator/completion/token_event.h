// What the rest of the coordinator sees of a generated token, and of a scored prompt.
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

/// One prompt token, given all tokens before it.
struct PromptScore {
  TokenId token = -1;
  float logprob = 0.0f;                    // nats
  int32_t rank = 0;                        // 1 + values over the vocabulary that are strictly greater
  std::vector<TokenLogprob> alternatives;  // natural ones, as many as the request asked for
  friend bool operator==(const PromptScore&, const PromptScore&) = default;
};

/// Scores of the prompt positions [first, first + scores.size()); none at a position without a target, inside an image.
/// Position zero has nothing before it, so a prompt's first chunk begins with position 1; the chunks follow each other
/// without gaps and repeats, before the first token (R40). `finish` other than kNone: nothing is generated, and this is
/// the sequence's last event.
struct PromptScores {
  int32_t first = 1;
  std::vector<std::optional<PromptScore>> scores;
  FinishCode finish = FinishCode::kNone;
};

/// A sequence's stream: prompt scores if asked for, tokens, then perhaps an Error, which ends it.
using SequenceEvent = std::variant<TokenEvent, PromptScores, Error>;

}  // namespace helios
