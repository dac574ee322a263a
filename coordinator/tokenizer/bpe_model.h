// Byte-pair merges within one word: over bytes (byte-level) or over characters with byte fallback (SentencePiece
// style).
//
// Merges are applied lowest rank first, leftmost first among equals, through a heap: O(n log n) in the word, so a text
// without spaces costs what any other does. Immutable after construction; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"

namespace helios {

/// Pieces to ids. Ids are unique, and so are pieces.
using Vocabulary = std::unordered_map<std::string, TokenId>;

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId merged;
};

struct BpeOptions {
  bool byte_level = false;     // words are bytes; pieces are spelled in the byte-level alphabet
  bool ignore_merges = false;  // a word that is a piece is taken whole
  bool byte_fallback = false;  // a character without a piece becomes its <0xNN> pieces, when all of them exist
  bool fuse_unk = false;       // neighbouring unknown characters give one unknown token
  std::optional<TokenId> unk;  // without it, an unknown character gives no token
};

class BpeModel {
 public:
  /// `vocabulary` outlives this object. A later merge of the same pair replaces an earlier one, rank included.
  BpeModel(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options);

  /// Appends the tokens of each word, none of which is empty, all valid UTF-8.
  void encode_words(std::span<const std::string_view> words, std::vector<TokenId>* ids) const;
  void encode_word(std::string_view word, std::vector<TokenId>* ids) const { encode_words({&word, 1}, ids); }

 private:
  struct Rule {
    uint64_t pair = kEmpty;
    uint32_t rank = 0;
    TokenId merged = -1;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Crossing {
    std::string left;   // ends in another character than U+2581
    std::string right;  // begins with U+2581
  };

  class RecentWords;

  void encode_part(std::string_view part, RecentWords* recent, std::vector<TokenId>* ids) const;
  void find_mark_crossings(const std::vector<BpeMerge>& merges);
  bool may_cut(std::string_view before, std::string_view after) const;
  const Rule* find_rule(TokenId left, TokenId right) const;
  void insert_rule(const Rule& rule);
  void initial_symbols(std::string_view word, std::vector<TokenId>* symbols) const;
  void character_symbols(std::string_view word, std::vector<TokenId>* symbols) const;
  TokenId find_character(uint32_t code_point, std::string_view character) const;
  void merge_short(std::vector<TokenId>* symbols) const;
  void merge_long(std::vector<TokenId>* symbols) const;

  const Vocabulary& vocabulary_;
  const BpeOptions options_;
  std::vector<Rule> rules_;  // open addressing, at most half full
  size_t rule_mask_ = 0;
  std::array<TokenId, 256> byte_tokens_;  // of one byte: its byte-level piece, or <0xNN>; -1 when there is none
  std::vector<TokenId> bmp_tokens_;       // of one character below U+10000; empty for byte-level models
  bool cut_at_marks_ = false;
  std::vector<Crossing> mark_crossings_;                  // the merges that join something to a U+2581 that follows it
  std::unordered_map<std::string, TokenId> whole_words_;  // ignore_merges over bytes: pieces by their bytes
};

}  // namespace helios
