// What one sequence may say next: its grammar's place, within what else its request allows.
//
// A mask depends on every token before it, so a masked sequence's lanes are planned one by one: RequestState waits for
// the token, everybody else runs ahead. The words go up with the lane. Each has one owner and one thread at a time: the
// connection's until it is submitted, then the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "common/contract/sampling_params.h"
#include "coordinator/completion/token_event.h"
#include "coordinator/engine/next_tokens.h"
#include "coordinator/grammar/compiled_grammar.h"

namespace helios {

class TokenMask final : public NextTokens {
 public:
  /// Takes from `sampling` what a mask settles (allowed_ids), and announces the masks there.
  TokenMask(std::shared_ptr<const CompiledGrammar> grammar, SamplingParams* sampling);

  /// Lane::mask for the token after `generated` others: what the grammar allows, and of that what allowed_ids lists;
  /// where the text may end, EOS and the request's stop ids. `vocab_size`: the core's. The time is bounded.
  /// Errors: kInvalidArgument, naming what leaves no token: the grammar, allowed_token_ids, or min_tokens.
  Result<std::vector<uint32_t>> next(int32_t generated, int64_t vocab_size) override;

  /// Goes on with a token that came. Errors: kInternal when the mask before it had forbidden it.
  Status accept(TokenEvent& event) override;

 private:
  GrammarMatcher matcher_;
  const int64_t grammar_vocab_size_;
  const std::vector<TokenId> allowed_ids_;  // empty: every id
  const std::vector<TokenId> stop_ids_;     // what ends the text besides the model's own
  const TokenId eos_id_;
  const int32_t min_tokens_;
};

}  // namespace helios
