// Encode and decode over one vocabulary, read from a Hugging Face tokenizer.json. Immutable after load: shared by all
// connections.
//
// Exact or refused: whatever part of tokenizer.json this class cannot reproduce exactly is an error at load, with the
// reason. Byte-level BPE (Qwen, GPT, Llama 3 style) and SentencePiece-style BPE with byte fallback (Llama 2 style).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace helios {

class Tokenizer {
 public:
  /// Reads `model_dir`/tokenizer.json and tokenizer_config.json. Errors: kCorruptFile, kUnsupported, with path and
  /// reason.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& model_dir);
  virtual ~Tokenizer() = default;

  /// One past the largest token id.
  virtual int64_t vocab_size() const = 0;

  /// Special tokens spelled in the text become their ids. `add_special_tokens` applies the post-processor (BOS).
  /// Errors: kInvalidArgument when `text` is not valid UTF-8.
  virtual Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens) const = 0;

  /// As the tokenizer's own decoder: UTF-8, invalid bytes as U+FFFD. Ids out of range are skipped by the caller's
  /// check.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;

  virtual bool contains(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// The token's exact bytes in the middle of a text, before any UTF-8 replacement (R29): byte-level pieces mapped
  /// back, <0xNN> as one byte, U+2581 as a space, special tokens as their literal. Empty for ids without a token.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  /// The vocabulary's own spelling of the token (convert_ids_to_tokens). Empty for ids without a token.
  virtual std::string_view piece(TokenId id) const = 0;
  /// True when the token stands for one byte through byte fallback (<0xNN>): the decoder looks at a whole run of them.
  virtual bool is_byte_fallback(TokenId) const { return false; }
  /// True when the decoder strips one leading space from the whole result (SentencePiece style).
  virtual bool strips_leading_space() const = 0;

  virtual std::optional<TokenId> find_piece(std::string_view piece) const = 0;

  /// From tokenizer_config.json; empty when absent.
  virtual const std::string& bos_token() const = 0;
  virtual const std::string& eos_token() const = 0;
  virtual const std::string& pad_token() const = 0;
  virtual const std::string& chat_template() const = 0;
  virtual const std::string& tokenizer_class() const = 0;
};

}  // namespace helios
