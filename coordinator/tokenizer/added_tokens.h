// Cuts added tokens out of text: leftmost match first, the longest of those that begin there.
//
// A trie walked from each position; the length of the longest token bounds the work for a byte. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace helios {

inline constexpr size_t kMaxAddedTokenBytes = 512;

class AddedTokenMatcher {
 public:
  AddedTokenMatcher();

  /// `content` is not empty, at most kMaxAddedTokenBytes, and new. lstrip and rstrip take the white space beside the
  /// token.
  void add(std::string_view content, TokenId id, bool lstrip, bool rstrip);

  /// A piece of the text: an added token, or a stretch (id -1, never empty) between them.
  struct Piece {
    std::string_view text;
    TokenId id = -1;
  };
  /// Appends the pieces of `text` in order.
  void split(std::string_view text, std::vector<Piece>* pieces) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    uint8_t byte = 0;
    int32_t token = -1;  // index into tokens_
    int32_t first_child = -1;
    int32_t next_sibling = -1;
  };
  struct Token {
    TokenId id;
    bool lstrip;
    bool rstrip;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  /// Length of the longest token that `text` begins with, 0 when none; its index in `token`.
  size_t longest(std::string_view text, int32_t* token) const;

  std::vector<Node> nodes_;  // [0] is the root
  std::array<int32_t, 256> root_children_;
  std::vector<Token> tokens_;
};

}  // namespace helios
