// Encode: added tokens out of the raw text, normalize, added tokens again, cut, merge. Decode: bytes, then one rule for
// what is not UTF-8.
#include "coordinator/tokenizer/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

// A run of byte-fallback tokens is text only as a whole; otherwise each of its bytes is replaced.
void append_byte_run(std::string* run, std::string* out) {
  if (valid_utf8(*run)) {
    out->append(*run);
  } else {
    for (size_t i = 0; i < run->size(); ++i) out->append(kReplacementCharacter);
  }
  run->clear();
}

}  // namespace

BpeTokenizer::BpeTokenizer(TokenizerSpec spec, TokenizerConfig config)
    : config_(std::move(config)),
      normalizer_(std::move(spec.normalizer)),
      vocabulary_(std::move(spec.vocabulary)),
      prefix_(std::move(spec.prefix)),
      suffix_(std::move(spec.suffix)),
      decoder_(std::move(spec.decoder)),
      pre_tokenizer_(std::move(spec.pre_tokenizer)),
      model_(vocabulary_, spec.merges, spec.model) {
  std::vector<Token> tokens;
  const auto define = [&](TokenId id, const std::string& piece, bool special) {
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = token_of(piece, special);
  };
  for (const auto& [piece, id] : vocabulary_) define(id, piece, false);
  for (const AddedTokenSpec& added : spec.added_tokens) {
    define(added.id, added.content, added.special);
    added_ids_.emplace(added.content, added.id);
    if (!added.normalized) {
      raw_added_.add(added.content, added.id, added.lstrip, added.rstrip);
    } else if (const std::string spelled = normalize(normalizer_, added.content); !spelled.empty()) {
      normalized_added_.add(spelled, added.id, added.lstrip, added.rstrip);
    }
  }
  keep(tokens);
}

BpeTokenizer::Token BpeTokenizer::token_of(const std::string& piece, bool special) const {
  Token token{piece, piece, true, special, false};
  if (decoder_.byte_level) {
    if (std::optional<std::string> bytes = byte_level_bytes(piece)) token.bytes = std::move(*bytes);
    return token;
  }
  for (const ReplaceStep& step : decoder_.replacements) {
    token.bytes = replace_all(token.bytes, step.pattern, step.content);
  }
  if (!decoder_.byte_fallback) return token;
  if (const std::optional<uint8_t> byte = byte_fallback_byte(token.bytes)) {
    token.bytes.assign(1, static_cast<char>(*byte));
    token.byte_fallback = true;
  }
  return token;
}

void BpeTokenizer::keep(const std::vector<Token>& tokens) {
  flags_.reserve(tokens.size());
  for (Texts* texts : {&bytes_, &pieces_}) {
    texts->begin.reserve(tokens.size() + 1);
    texts->begin.push_back(0);
  }
  const auto append = [](Texts& texts, const std::string& text) {
    texts.all += text;
    texts.begin.push_back(static_cast<uint32_t>(texts.all.size()));  // of a file of at most kMaxFileBytes
  };
  for (const Token& token : tokens) {
    flags_.push_back(static_cast<uint8_t>((token.exists ? kExists : 0) | (token.special ? kSpecial : 0) |
                                          (token.byte_fallback ? kByteFallback : 0)));
    append(bytes_, token.bytes);
    append(pieces_, token.piece);
  }
}

Result<std::vector<TokenId>> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (!valid_utf8(text)) return Error{Errc::kInvalidArgument, "text is not valid UTF-8"};
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special_tokens) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  std::vector<AddedTokenMatcher::Piece> pieces;
  raw_added_.split(text, &pieces);
  for (const AddedTokenMatcher::Piece& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else if (Status status = encode_stretch(piece.text, &ids); !status.ok()) {
      return status.error();
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

Status BpeTokenizer::encode_stretch(std::string_view text, std::vector<TokenId>* ids) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = normalize(normalizer_, text);
    text = normalized;
  }
  if (normalized_added_.empty()) return text.empty() ? Status(Ok{}) : encode_normalized(text, ids);
  std::vector<AddedTokenMatcher::Piece> pieces;
  normalized_added_.split(text, &pieces);
  for (const AddedTokenMatcher::Piece& piece : pieces) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
    } else if (Status status = encode_normalized(piece.text, ids); !status.ok()) {
      return status;
    }
  }
  return Ok{};
}

Status BpeTokenizer::encode_normalized(std::string_view text, std::vector<TokenId>* ids) const {
  PreTokenizer::Words words;
  if (Status status = pre_tokenizer_.split(text, &words); !status.ok()) return status;
  model_.encode_words(words.words, ids);
  return Ok{};
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string out;
  std::string pending;  // byte-level: all bytes; otherwise the current run of byte-fallback tokens
  for (const TokenId id : ids) {
    if (!contains(id) || (skip_special_tokens && is_special(id))) continue;
    if (decoder_.byte_level || is_byte_fallback(id)) {
      pending += token_bytes(id);
    } else {
      append_byte_run(&pending, &out);
      out += token_bytes(id);
    }
  }
  if (decoder_.byte_level) {
    if (append_lossy(pending, &out) > 0) out += kReplacementCharacter;
  } else {
    append_byte_run(&pending, &out);
  }
  if (decoder_.strip_leading_space && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::optional<TokenId> BpeTokenizer::find_piece(std::string_view piece) const {
  const std::string key(piece);
  for (const Vocabulary* pieces : {&added_ids_, &vocabulary_}) {
    if (const auto it = pieces->find(key); it != pieces->end()) return it->second;
  }
  return std::nullopt;
}

Result<std::vector<std::string>> BpeTokenizer::words(std::string_view text) const {
  const std::string normalized = normalize(normalizer_, text);
  std::vector<std::string> out;
  if (normalized.empty()) return out;
  PreTokenizer::Words words;
  if (Status status = pre_tokenizer_.split(normalized, &words); !status.ok()) return status.error();
  out.assign(words.words.begin(), words.words.end());
  return out;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  Result<std::string> text = read_text_file(path, kMaxFileBytes);
  if (!text.ok()) return Error{Errc::kCorruptFile, text.error().message};
  Result<TokenizerSpec> spec = parse_tokenizer_json(*text, path);
  if (!spec.ok()) return spec.error();

  TokenizerConfig config;
  const std::string config_path = model_dir + "/tokenizer_config.json";
  Result<std::string> config_text = read_text_file(config_path, kMaxFileBytes);
  if (config_text.ok()) {
    Result<TokenizerConfig> parsed = parse_tokenizer_config(*config_text, config_path);
    if (!parsed.ok()) return parsed.error();
    config = std::move(parsed).value();
  } else if (config_text.error().code != Errc::kNotFound) {
    return config_text.error();
  }
  // Newer exports keep the template in a file of its own, which then counts.
  Result<std::string> chat_template = read_text_file(model_dir + "/chat_template.jinja", kMaxFileBytes);
  if (chat_template.ok()) config.chat_template = std::move(chat_template).value();
  return std::shared_ptr<const Tokenizer>(std::make_shared<BpeTokenizer>(std::move(spec).value(), std::move(config)));
}

}  // namespace helios
