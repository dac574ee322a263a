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

  int64_t vocab_size() const override { return static_cast<int64_t>(flags_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  bool contains(TokenId id) const override { return (flags(id) & kExists) != 0; }
  bool is_special(TokenId id) const override { return (flags(id) & kSpecial) != 0; }
  std::string_view token_bytes(TokenId id) const override { return text(bytes_, id); }
  std::string_view piece(TokenId id) const override { return text(pieces_, id); }
  bool is_byte_fallback(TokenId id) const override { return (flags(id) & kByteFallback) != 0; }
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

  /// Texts by id, back to back: what a position's twenty alternatives are looked up in has to stay in the caches.
  struct Texts {
    std::string all;
    std::vector<uint32_t> begin;  // [vocab size + 1]
  };
  enum Flags : uint8_t { kExists = 1, kSpecial = 2, kByteFallback = 4 };

  bool defines(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < flags_.size(); }
  uint8_t flags(TokenId id) const { return defines(id) ? flags_[id] : 0; }
  std::string_view text(const Texts& texts, TokenId id) const {
    if (!defines(id)) return {};
    const uint32_t begin = texts.begin[id];
    return std::string_view(texts.all).substr(begin, texts.begin[id + 1] - begin);
  }
  Token token_of(const std::string& piece, bool special) const;
  void keep(const std::vector<Token>& tokens);
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
  std::vector<uint8_t> flags_;          // by id
  Texts bytes_, pieces_;
};

}  // namespace helios
