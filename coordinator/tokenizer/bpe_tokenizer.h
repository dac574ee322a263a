// The one implementation of Tokenizer: BPE, byte-level or SentencePiece style, from a parsed tokenizer.json.
//
// Exposed apart from Tokenizer::load() so that tests can build one from JSON text. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/bpe_model.h"
#include "coordinator/tokenizer/pre_tokenizer.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_json.h"

namespace helios {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, TokenizerConfig config);

  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  bool contains(TokenId id) const override { return token(id).exists; }
  bool is_special(TokenId id) const override { return token(id).special; }
  std::string_view token_bytes(TokenId id) const override { return token(id).bytes; }
  std::string_view piece(TokenId id) const override { return token(id).piece; }
  bool is_byte_fallback(TokenId id) const override { return token(id).byte_fallback; }
  bool strips_leading_space() const override { return decoder_.strip_leading_space; }
  std::optional<TokenId> find_piece(std::string_view piece) const override;

  const std::string& bos_token() const override { return config_.bos_token; }
  const std::string& eos_token() const override { return config_.eos_token; }
  const std::string& pad_token() const override { return config_.pad_token; }
  const std::string& chat_template() const override { return config_.chat_template; }
  const std::string& tokenizer_class() const override { return config_.tokenizer_class; }

  /// Where the pre-tokenizer cuts, added tokens aside. For tests.
  Result<std::vector<std::string>> words(std::string_view text) const;

 private:
  struct Token {
    std::string piece;
    std::string bytes;
    bool exists = false;
    bool special = false;
    bool byte_fallback = false;
  };

  const Token& token(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() ? tokens_[id] : no_token_;
  }
  void define(TokenId id, const std::string& piece, bool special);
  Status encode_stretch(std::string_view text, std::vector<TokenId>* ids) const;
  Status encode_normalized(std::string_view text, std::vector<TokenId>* ids) const;

  const TokenizerConfig config_;
  const std::vector<NormalizerStep> normalizer_;
  const Vocabulary vocabulary_;
  Vocabulary added_ids_;
  const std::vector<TokenId> prefix_;
  const std::vector<TokenId> suffix_;
  const DecoderSpec decoder_;
  const PreTokenizer pre_tokenizer_;
  const BpeModel model_;                // borrows vocabulary_
  AddedTokenMatcher raw_added_;         // looked for in the raw text
  AddedTokenMatcher normalized_added_;  // then in what the normalizer made of each stretch between
  std::vector<Token> tokens_;           // by id
  const Token no_token_;
};

}  // namespace helios
