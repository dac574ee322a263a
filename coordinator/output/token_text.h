// The text an entry shows for a token: its bytes when they are UTF-8, else repaired from the tokens before it.
//
// A fragment that completes a character shows the whole character; one that does not shows nothing (wire formats, 2.5).
// Thread: its owner's.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// How many tokens before a fragment are looked at.
inline constexpr size_t kContextTokens = 4;

class TokenTextContext {
 public:
  /// Tokens that `skip_special_tokens` hides from the text are no context either: the bytes around them are neighbours.
  TokenTextContext(const Tokenizer& tokenizer, bool skip_special_tokens, std::span<const TokenId> prompt);

  /// The text of `token`, or of an alternative to it, after the tokens so far. UTF-8.
  std::string text(TokenId token) const;

  /// `token` becomes the latest token; a special one only where it is `shown`.
  void push(TokenId token, bool shown = false);

 private:
  /// The unfinished character at the end of the context, at most three bytes.
  std::string unfinished() const;

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::array<TokenId, kContextTokens> recent_{};  // a ring
  size_t count_ = 0;                              // ever pushed
};

}  // namespace helios
