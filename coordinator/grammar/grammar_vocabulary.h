// A vocabulary as grammars see it: the bytes of every token that stands for text, as a tree of common beginnings, and
// the tokens that stop a generation.
//
// Built once for a model. Tokens without bytes and special tokens are no text: no grammar allows them, stop tokens
// excepted. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace helios {

class Tokenizer;

class GrammarVocabulary {
 public:
  /// `token_bytes[id]`: the token's exact bytes, empty when it is no text. `stop_ids` are never text.
  /// Errors: kInvalidArgument for a stop id outside of the vocabulary.
  static Result<std::shared_ptr<const GrammarVocabulary>> make(std::vector<std::string> token_bytes,
                                                               std::vector<TokenId> stop_ids);
  /// The tokenizer's tokens that are not special, in a vocabulary of `vocab_size` (the model's; ids that the tokenizer
  /// does not know are no text).
  static Result<std::shared_ptr<const GrammarVocabulary>> from_tokenizer(const Tokenizer& tokenizer, int64_t vocab_size,
                                                                         std::vector<TokenId> stop_ids);

  int64_t vocab_size() const { return static_cast<int64_t>(token_bytes_.size()); }
  size_t mask_words() const { return (token_bytes_.size() + 31) / 32; }
  /// Empty when the token is no text.
  std::string_view token_bytes(TokenId id) const { return token_bytes_[static_cast<size_t>(id)]; }
  std::span<const TokenId> stop_ids() const { return stop_ids_; }
  bool is_stop(TokenId id) const;

  /// The tree in preorder. Node 0 is the root (no byte).
  struct Node {
    uint32_t end;          // one past the node's subtree
    uint32_t first_token;  // into tokens(): those that end here, up to the next node's; the subtree's, up to end's
    uint16_t depth;
    uint8_t byte;
  };
  /// One more than there are nodes: the last holds the end of tokens().
  std::span<const Node> nodes() const { return nodes_; }
  uint32_t num_nodes() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  /// Token ids in the order of their bytes.
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  GrammarVocabulary() = default;
  void build_tree();

  std::vector<std::string> token_bytes_;
  std::vector<TokenId> stop_ids_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
};

}  // namespace helios
