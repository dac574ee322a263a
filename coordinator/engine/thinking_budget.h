// How long a sequence may think: counts the tokens of its reasoning, and forces the close when they are used up.
//
// The close is forced by a mask that leaves one id, so it depends on every token before it and its lanes are planned
// one by one, as a grammar's. A forced token has no logprob entry (R4). One owner and one thread at a time: the
// connection's until it is submitted, then the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/engine/next_tokens.h"

namespace helios {

class ThinkingBudgetMask final : public NextTokens {
 public:
  /// Takes from `sampling` what a mask settles (allowed_ids), and announces the masks there.
  ThinkingBudgetMask(const ThinkingBudget& budget, SamplingParams* sampling);

  /// Every id, or those that the request allows; at the end of the budget the closing one alone. No errors.
  Result<std::vector<uint32_t>> next(int32_t generated, int64_t vocab_size) override;
  /// Marks the token if it was forced, and takes its logprobs away. Errors: kInternal when another token came than the
  /// forced one.
  Status accept(TokenEvent& event) override;

 private:
  bool forces() const { return thinks_ && used_ >= budget_.tokens; }

  const ThinkingBudget budget_;
  const std::vector<TokenId> allowed_ids_;  // empty: every id
  bool thinks_;
  int64_t used_ = 0;
};

}  // namespace helios
