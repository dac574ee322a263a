// From prompt scores to the entries of a prompt: token texts and where each token starts in the echoed text.
//
// Keeps nothing but the last few tokens: a chunk becomes entries and is gone (R32). Thread: the connection's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/completion/token_event.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/output/token_text.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// Where each prompt token starts in `echo`, the prompt's text as the client sees it: code points, one a token.
///
/// The first `hidden_front` and last `hidden_back` tokens are not in that text (a BOS that the tokenizer added). Where
/// the tokenizer normalises, the text that its tokens spell can be longer than what was sent: offsets end with `echo`.
std::vector<int64_t> prompt_text_offsets(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                                         std::string_view echo, size_t hidden_front = 0, size_t hidden_back = 0);

class PromptOutput {
 public:
  /// `text_offsets`: one a token, or empty when nobody reads them. All but the flag are borrowed.
  PromptOutput(const Tokenizer& tokenizer, bool tokens_as_token_ids, std::span<const TokenId> prompt,
               std::span<const int64_t> text_offsets);

  /// Position zero, which has no value, unless it is out already.
  void begin(std::vector<OutputEntry>* out);

  /// The entries of the chunk's positions, position zero before the first. `scores.first` follows the chunk before.
  void push(const PromptScores& scores, std::vector<OutputEntry>* out);

 private:
  OutputEntry next_entry();
  TokenText shown_text(TokenId id) const;

  const Tokenizer* tokenizer_;
  bool tokens_as_token_ids_;
  std::span<const TokenId> prompt_;
  std::span<const int64_t> offsets_;
  TokenTextContext context_;
  size_t next_ = 0;  // position
};

}  // namespace helios
