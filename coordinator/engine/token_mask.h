// What one sequence may say next, where that depends on the tokens before: reasoning that has a budget, a grammar's
// place behind it, words that may not be spelled, within what else its request allows.
//
// A mask depends on every token before it, so a masked sequence's lanes are planned one by one: RequestState waits for
// the token, everybody else runs ahead. The words go up with the lane. Each has one owner and one thread at a time: the
// connection's until it is submitted, then the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/result.h"
#include "common/contract/sampling_params.h"
#include "coordinator/completion/token_event.h"
#include "coordinator/engine/bad_words.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/grammar/compiled_grammar.h"

namespace helios {

class TokenMask {
 public:
  /// What the mask follows; at least one is there.
  struct Rules {
    std::shared_ptr<const CompiledGrammar> grammar;  // null: any text
    std::optional<Thinking> thinking;
    std::vector<std::vector<TokenId>> bad_words;  // SequenceRequest's
    bool any() const { return grammar || thinking || !bad_words.empty(); }
  };

  /// Takes from `sampling` what a mask settles (allowed_ids), and announces the masks there.
  TokenMask(Rules rules, SamplingParams* sampling);

  /// Lane::mask for the token after `generated` others. At the end of a budget the closing token alone. Inside
  /// reasoning whatever does not end the text before its grammar has begun; else what the grammar allows, and where the
  /// text may end, EOS and the request's stop ids. Of that what allowed_ids lists and no bad word ends with.
  /// `vocab_size`: the core's. Asking changes nothing; the time is bounded. Errors: kInvalidArgument, naming what
  /// leaves no token: the grammar, allowed_token_ids, bad_words or min_tokens.
  Result<std::vector<uint32_t>> next(int32_t generated, int64_t vocab_size);

  /// Goes on with a token that came; a forced one is marked, and loses its logprobs (R4).
  /// Errors: kInternal when the mask before it had forbidden it.
  Status accept(TokenEvent& event);

 private:
  bool forces_close() const { return thinks_ && rules_.thinking->budget && used_ >= *rules_.thinking->budget; }
  Status fill(int32_t generated, std::vector<uint32_t>& words);
  Status keep_allowed(int32_t generated, std::vector<uint32_t>& words) const;
  Status check_min_tokens(int32_t generated, const std::vector<uint32_t>& words) const;
  bool follow_reasoning(TokenId token);

  const Rules rules_;
  std::optional<GrammarMatcher> matcher_;
  const BadWords bad_words_;
  const std::vector<TokenId> allowed_ids_;  // empty: every id
  const std::vector<TokenId> stop_ids_;     // what ends the text besides the model's own
  const TokenId eos_id_;
  const int32_t min_tokens_;
  bool thinks_ = false;
  bool may_open_ = false;  // nothing has come yet, and the grammar's text may have reasoning before it
  int64_t used_ = 0;       // tokens of reasoning
  RecentTokens recent_;    // what a bad word's last token is looked for behind
};

}  // namespace helios
