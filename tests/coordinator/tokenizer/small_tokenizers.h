// Two small vocabularies with every awkward kind of token, and a slow, plain statement of what decoding means.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/tokenizer/bpe_tokenizer.h"
#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios::testing {

inline std::shared_ptr<const Tokenizer> build_tokenizer(const std::string& json_text) {
  Result<TokenizerSpec> spec = parse_tokenizer_json(json_text, "tokenizer.json");
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return std::make_shared<BpeTokenizer>(std::move(spec).value(), TokenizerConfig{});
}

inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

inline std::string byte_level_piece(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) append_utf8(byte_level_code_point(static_cast<uint8_t>(c)), &piece);
  return piece;
}

/// Ids 0 to 255 are the bytes; then `words`; then <s> (special), <x> (added, not special), <e> (special).
inline std::shared_ptr<const Tokenizer> byte_level_tokenizer(const std::vector<std::string>& words) {
  std::string vocab;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab += (id ? "," : "") + json_string(byte_level_piece({&c, 1})) + ":" + std::to_string(id);
    ++id;
  }
  for (const std::string& word : words) vocab += "," + json_string(byte_level_piece(word)) + ":" + std::to_string(id++);
  const auto added = [&](const char* content, bool special) {
    return std::string("{\"id\":") + std::to_string(id++) + ",\"content\":\"" + content +
           "\",\"normalized\":false,\"special\":" + (special ? "true" : "false") + "}";
  };
  std::string tokens = added("<s>", true);
  tokens += "," + added("<x>", false);
  tokens += "," + added("<e>", true);
  return build_tokenizer("{\"added_tokens\":[" + tokens +
                         "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{" +
                         vocab + "},\"merges\":[]}}");
}

/// Ids 0 to 255 are <0x00> to <0xFF>; then `words` (U+2581 for a space); then <s> (special), <x>, <e> (special).
inline std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(const std::vector<std::string>& words) {
  std::string vocab;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    vocab += (id ? "," : "") + json_string(byte_fallback_piece(static_cast<uint8_t>(byte))) + ":" + std::to_string(id);
    ++id;
  }
  for (const std::string& word : words) vocab += "," + json_string(word) + ":" + std::to_string(id++);
  const auto added = [&](const char* content, bool special) {
    return std::string("{\"id\":") + std::to_string(id++) + ",\"content\":\"" + content +
           "\",\"normalized\":false,\"special\":" + (special ? "true" : "false") + "}";
  };
  std::string tokens = added("<s>", true);
  tokens += "," + added("<x>", false);
  tokens += "," + added("<e>", true);
  return build_tokenizer("{\"added_tokens\":[" + tokens +
                         "],\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
                         "\"String\":\"▁\"},\"content\":"
                         "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                         "\",\"start\":1,\"stop\":0}]},"
                         "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{" +
                         vocab + "},\"merges\":[]}}");
}

/// The text of `ids` after `prompt`, and each token's start, from the definition: all tokens at once.
inline DecodedText reference_decode(const Tokenizer& tokenizer, bool skip_special, const std::vector<TokenId>& prompt,
                                    const std::vector<TokenId>& ids, const std::vector<bool>& hidden = {}) {
  struct Byte {
    size_t token;
    bool fallback;
    char value;
  };
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), ids.begin(), ids.end());
  std::vector<Byte> bytes;
  std::vector<size_t> first_byte(all.size(), SIZE_MAX);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool hide = i >= prompt.size() && !hidden.empty() && hidden[i - prompt.size()];
    if (hide || (skip_special && tokenizer.is_special(all[i]))) continue;
    const std::string_view value = tokenizer.token_bytes(all[i]);
    if (!value.empty()) first_byte[i] = bytes.size();
    for (const char c : value) bytes.push_back({i, tokenizer.is_byte_fallback(all[i]), c});
  }
  std::string raw;
  for (const Byte& byte : bytes) raw += byte.value;

  DecodedText out;
  std::vector<TextStart> start_of_byte(bytes.size());
  int64_t code_points = 0;
  bool strip = tokenizer.strips_leading_space();
  const auto unit = [&](size_t begin, size_t end, bool valid) {
    for (size_t i = begin; i < end; ++i) {
      start_of_byte[i] = {static_cast<int64_t>(out.text.size()), code_points, true};
    }
    const bool ours = bytes[valid ? end - 1 : begin].token >= prompt.size();
    const std::string text = valid ? raw.substr(begin, end - begin) : std::string(kReplacementCharacter);
    const bool stripped = strip && text == " ";
    strip = false;
    if (!ours || stripped) return;
    out.text += text;
    ++code_points;
  };
  for (size_t i = 0; i < bytes.size();) {
    size_t end = i + 1;
    while (end < bytes.size() && bytes[end].fallback == bytes[i].fallback) ++end;
    const bool bad_run = bytes[i].fallback && !valid_utf8(std::string_view(raw).substr(i, end - i));
    while (i < end) {
      const Utf8Step step = next_utf8(std::string_view(raw).substr(i, end - i));
      const size_t size = bad_run ? 1 : step.size;
      unit(i, i + size, !bad_run && step.status == Utf8Status::kComplete);
      i += size;
    }
  }
  TextStart next{static_cast<int64_t>(out.text.size()), code_points, false};
  for (size_t i = all.size(); i-- > prompt.size();) {
    if (first_byte[i] != SIZE_MAX) next = start_of_byte[first_byte[i]];
    next.has_bytes = first_byte[i] != SIZE_MAX;
    out.starts.insert(out.starts.begin(), next);
  }
  return out;
}

}  // namespace helios::testing
