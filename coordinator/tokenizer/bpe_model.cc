// See bpe_model.h. Two merge loops with one result: a scan for short words, a heap for long ones.
#include "coordinator/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

constexpr size_t kShortWord = 24;                   // symbols; above it the heap wins
constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr size_t kMaxMarkCrossings = 16;            // with more of them, looking for each costs more than cutting saves

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(key ^ key >> 29);
}

TokenId find_piece(const Vocabulary& vocabulary, const std::string& piece) {
  const auto it = vocabulary.find(piece);
  return it == vocabulary.end() ? -1 : it->second;
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options)
    : vocabulary_(vocabulary), options_(options) {
  rules_.resize(std::bit_ceil(std::max<size_t>(16, merges.size() * 2)));
  rule_mask_ = rules_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    insert_rule({pair_key(merge.left, merge.right), static_cast<uint32_t>(rank), merge.merged});
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    if (options_.byte_level) {
      append_utf8(byte_level_code_point(static_cast<uint8_t>(byte)), &piece);
    } else {
      piece = byte_fallback_piece(static_cast<uint8_t>(byte));
    }
    byte_tokens_[byte] = find_piece(vocabulary_, piece);
  }
  if (!options_.byte_level) {
    bmp_tokens_.assign(0x10000, -1);
    for (const auto& [piece, id] : vocabulary_) {
      if (piece.empty()) continue;
      const Utf8Step step = next_utf8(piece);
      if (step.status == Utf8Status::kComplete && step.size == piece.size() && step.code_point < 0x10000) {
        bmp_tokens_[step.code_point] = id;
      }
    }
    find_mark_crossings(merges);
  }
  if (options_.byte_level && options_.ignore_merges) {
    for (const auto& [piece, id] : vocabulary_) {
      if (std::optional<std::string> bytes = byte_level_bytes(piece)) whole_words_.emplace(std::move(*bytes), id);
    }
  }
}

void BpeModel::insert_rule(const Rule& rule) {
  size_t slot = mix(rule.pair) & rule_mask_;
  while (rules_[slot].pair != kEmpty && rules_[slot].pair != rule.pair) slot = (slot + 1) & rule_mask_;
  rules_[slot] = rule;
}

const BpeModel::Rule* BpeModel::find_rule(TokenId left, TokenId right) const {
  const uint64_t key = pair_key(left, right);
  size_t slot = mix(key) & rule_mask_;
  while (rules_[slot].pair != key) {
    if (rules_[slot].pair == kEmpty) return nullptr;
    slot = (slot + 1) & rule_mask_;
  }
  return &rules_[slot];
}

// The words of one text repeat. What a word became is remembered as a place in the output, in a direct-mapped table.
class BpeModel::RecentWords {
 public:
  /// Copies the tokens of `word` to the end of `ids` if the word was met lately.
  bool copy(std::string_view word, std::vector<TokenId>* ids) {
    if (table_.empty() || word.size() > kMaxBytes) return false;
    const Entry& entry = table_[slot(word)];
    if (entry.word != word) return false;
    const size_t end = ids->size();
    ids->resize(end + entry.size);
    std::copy_n(ids->begin() + entry.begin, entry.size, ids->begin() + end);
    return true;
  }

  /// `word` became what follows `begin` in `ids`; it must outlive this object.
  void remember(std::string_view word, size_t begin, const std::vector<TokenId>& ids) {
    if (word.size() > kMaxBytes) return;
    // A short text is over before a table pays off.
    if (table_.empty() && ++words_ < kWordsBeforeTable) return;
    if (table_.empty()) table_.resize(kSlots);
    table_[slot(word)] = {word, begin, ids.size() - begin};
  }

 private:
  static constexpr size_t kSlots = 4096;
  static constexpr size_t kMaxBytes = 32;
  static constexpr int kWordsBeforeTable = 256;
  struct Entry {
    std::string_view word;
    size_t begin = 0;
    size_t size = 0;
  };
  static size_t slot(std::string_view word) { return std::hash<std::string_view>{}(word) % kSlots; }

  std::vector<Entry> table_;
  int words_ = 0;
};

// A SentencePiece-style text is one word to the pre-tokenizer. It falls into short parts where a run of U+2581 begins
// behind another character: a token over that place would begin with a merge of a piece that ends there and one that
// begins there, and few vocabularies have any such merge (Gemma 3 has one, `>` with `\u2581</`). Pieces that stand for
// other text than they spell (<unk>, <0xNN>) cannot be looked for in it: with such a merge nothing is cut.
void BpeModel::find_mark_crossings(const std::vector<BpeMerge>& merges) {
  if (!vocabulary_.contains(std::string(kMark))) return;
  std::unordered_map<TokenId, std::string_view> pieces;
  for (const auto& [piece, id] : vocabulary_) pieces.emplace(id, piece);
  for (const BpeMerge& merge : merges) {
    const std::string_view left = pieces[merge.left];
    const std::string_view right = pieces[merge.right];
    if (left.ends_with(kMark) || !right.starts_with(kMark)) continue;
    for (const std::string_view piece : {left, right}) {
      if (piece.find("<0x") != piece.npos) return;
      if (options_.unk && piece.find(pieces[*options_.unk]) != piece.npos) return;
    }
    mark_crossings_.push_back({std::string(left), std::string(right)});
  }
  cut_at_marks_ = mark_crossings_.size() <= kMaxMarkCrossings;
}

bool BpeModel::may_cut(std::string_view before, std::string_view after) const {
  return std::none_of(mark_crossings_.begin(), mark_crossings_.end(), [&](const Crossing& crossing) {
    return before.ends_with(crossing.left) && after.starts_with(crossing.right);
  });
}

void BpeModel::encode_words(std::span<const std::string_view> words, std::vector<TokenId>* ids) const {
  RecentWords recent;
  for (const std::string_view word : words) {
    if (options_.ignore_merges) {
      const auto& whole = options_.byte_level ? whole_words_ : vocabulary_;
      if (const auto it = whole.find(std::string(word)); it != whole.end()) {
        ids->push_back(it->second);
        continue;
      }
    }
    if (!cut_at_marks_) {
      encode_part(word, &recent, ids);
      continue;
    }
    for (size_t begin = 0; begin < word.size();) {
      size_t end = begin;
      do {
        while (word.substr(end).starts_with(kMark)) end += kMark.size();
        end = std::min(word.find(kMark, end), word.size());
      } while (end < word.size() && !may_cut(word.substr(begin, end - begin), word.substr(end)));
      encode_part(word.substr(begin, end - begin), &recent, ids);
      begin = end;
    }
  }
}

void BpeModel::encode_part(std::string_view part, RecentWords* recent, std::vector<TokenId>* ids) const {
  if (recent->copy(part, ids)) return;
  thread_local std::vector<TokenId> symbols;
  symbols.clear();
  initial_symbols(part, &symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(&symbols);
  } else {
    merge_long(&symbols);
  }
  const size_t begin = ids->size();
  ids->insert(ids->end(), symbols.begin(), symbols.end());
  recent->remember(part, begin, *ids);
}

void BpeModel::initial_symbols(std::string_view word, std::vector<TokenId>* symbols) const {
  if (!options_.byte_level) return character_symbols(word, symbols);
  bool pending_unk = false;
  const auto flush_unk = [&] {
    if (pending_unk) symbols->push_back(*options_.unk);
    pending_unk = false;
  };
  for (const char c : word) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      flush_unk();
      symbols->push_back(id);
    } else if (options_.unk) {
      if (!options_.fuse_unk) flush_unk();
      pending_unk = true;
    }
  }
  flush_unk();
}

TokenId BpeModel::find_character(uint32_t code_point, std::string_view character) const {
  if (code_point < bmp_tokens_.size()) return bmp_tokens_[code_point];
  return find_piece(vocabulary_, std::string(character));
}

void BpeModel::character_symbols(std::string_view word, std::vector<TokenId>* symbols) const {
  bool pending_unk = false;
  while (!word.empty()) {
    const Utf8Step step = next_utf8(word);
    const std::string_view character = word.substr(0, step.size);
    word.remove_prefix(step.size);
    if (const TokenId id = find_character(step.code_point, character); id >= 0) {
      if (pending_unk) symbols->push_back(*options_.unk);
      pending_unk = false;
      symbols->push_back(id);
      continue;
    }
    const auto has_byte_token = [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), has_byte_token)) {
      // As the reference: a pending unknown stays pending here, and comes out after these bytes.
      for (const char c : character) symbols->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (options_.unk) {
      if (pending_unk && !options_.fuse_unk) symbols->push_back(*options_.unk);
      pending_unk = true;
    }
  }
  if (pending_unk) symbols->push_back(*options_.unk);
}

void BpeModel::merge_short(std::vector<TokenId>* symbols) const {
  std::array<const Rule*, kShortWord> rules{};  // of the pair that begins at each symbol
  size_t count = symbols->size();
  TokenId* ids = symbols->data();
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = find_rule(ids[i], ids[i + 1]);
  while (true) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (rules[i] && (best == count || rules[i]->rank < rules[best]->rank)) best = i;
    }
    if (best == count) break;
    ids[best] = rules[best]->merged;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      rules[i] = rules[i + 1];
    }
    if (best > 0) rules[best - 1] = find_rule(ids[best - 1], ids[best]);
    rules[best] = best + 1 < count ? find_rule(ids[best], ids[best + 1]) : nullptr;
  }
  symbols->resize(count);
}

void BpeModel::merge_long(std::vector<TokenId>* symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    TokenId merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  struct Link {
    int32_t previous;
    int32_t next;
  };
  std::vector<TokenId>& ids = *symbols;
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Link> links(ids.size());
  std::vector<Candidate> initial;
  for (int32_t i = 0; i < count; ++i) {
    links[i] = {i - 1, i + 1 < count ? i + 1 : -1};
    if (i + 1 == count) break;
    if (const Rule* rule = find_rule(ids[i], ids[i + 1])) {
      initial.push_back({rule->rank, static_cast<uint32_t>(i), rule->merged});
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue({}, std::move(initial));
  const auto offer = [&](int32_t position) {
    if (position < 0 || links[position].next < 0) return;
    if (const Rule* rule = find_rule(ids[position], ids[links[position].next])) {
      queue.push({rule->rank, static_cast<uint32_t>(position), rule->merged});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto at = static_cast<int32_t>(top.position);
    if (ids[at] < 0 || links[at].next < 0) continue;  // merged away, or nothing left to its right
    const int32_t right = links[at].next;
    const Rule* rule = find_rule(ids[at], ids[right]);
    if (!rule || rule->merged != top.merged) continue;  // the pair here is another by now
    ids[at] = top.merged;
    ids[right] = -1;
    links[at].next = links[right].next;
    if (links[at].next >= 0) links[links[at].next].previous = at;
    offer(links[at].previous);
    offer(at);
  }
  ids.erase(std::remove(ids.begin(), ids.end(), -1), ids.end());
}

}  // namespace helios
