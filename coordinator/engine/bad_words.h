// Words that a text may not spell, as the token sequences that spell them.
//
// A word of one token may never come; of a longer one the last token may not, behind the others. What the prompt ends
// with does not count. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace helios {

/// The last few generated tokens, as many as the longest sequence could need.
class RecentTokens {
 public:
  explicit RecentTokens(size_t most) : most_(most) {}
  void push(TokenId token);
  std::span<const TokenId> view() const;

 private:
  size_t most_;
  std::vector<TokenId> tokens_;  // at most twice as many
};

class BadWords {
 public:
  /// `sequences`: none empty.
  explicit BadWords(std::span<const std::vector<TokenId>> sequences);

  /// Tokens before the last of the longest sequence.
  size_t context() const { return context_; }

  /// Clears the bits of the tokens that would end a sequence behind `recent`. Ids outside of the words change nothing.
  void forbid(std::span<const TokenId> recent, std::span<uint32_t> words) const;
  /// Whether `token` ends one.
  bool ends_with(std::span<const TokenId> recent, TokenId token) const;

 private:
  struct Ending {
    std::vector<TokenId> before;  // its other tokens, not empty
    TokenId last;
  };
  template <class Visit>
  void visit_endings(std::span<const TokenId> recent, const Visit& visit) const;

  std::vector<TokenId> alone_;                                  // sequences of one token
  std::unordered_map<TokenId, std::vector<Ending>> by_before_;  // by the last but one
  size_t context_ = 0;
};

}  // namespace helios
