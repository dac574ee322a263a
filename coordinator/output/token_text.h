// The text an entry shows for a token: its bytes when they are UTF-8, else repaired from the tokens before it.
//
// A fragment that completes a character shows the whole character; one that does not shows nothing (wire formats, 2.5).
// Thread: its owner's.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/ids.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// A text that nearly always is a token's own: then it borrows it from the tokenizer, which outlives it; a repaired one
/// it owns.
class TokenText {
 public:
  TokenText() = default;
  TokenText(std::string own) : own_(std::make_shared<const std::string>(std::move(own))), view_(*own_) {}
  TokenText(const char* own) : TokenText(std::string(own)) {}
  static TokenText borrow(std::string_view text) {
    TokenText borrowed;
    borrowed.view_ = text;
    return borrowed;
  }

  std::string_view view() const { return view_; }
  operator std::string_view() const { return view_; }
  friend bool operator==(const TokenText& a, const std::convertible_to<std::string_view> auto& b) {
    return a.view_ == std::string_view(b);
  }

 private:
  std::shared_ptr<const std::string> own_;
  std::string_view view_;
};

/// How many tokens before a fragment are looked at.
inline constexpr size_t kContextTokens = 4;

class TokenTextContext {
 public:
  /// Tokens that `skip_special_tokens` hides from the text are no context either: the bytes around them are neighbours.
  TokenTextContext(const Tokenizer& tokenizer, bool skip_special_tokens, std::span<const TokenId> prompt);

  /// The text of `token`, or of an alternative to it, after the tokens so far. UTF-8.
  TokenText text(TokenId token) const;

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
