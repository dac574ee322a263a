// Merges, added tokens and normal forms against slow statements of the same.
#include "coordinator/tokenizer/bpe_model.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/normalizer.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

using Ids = std::vector<TokenId>;

// Every merge rule in order of rank, each applied to the leftmost pair first: the lowest ranked pair of the word, again
// and again.
Ids merge_slowly(const std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>>& rules, Ids ids) {
  while (true) {
    size_t best = ids.size(), best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = rules.find({ids[i], ids[i + 1]});
      if (it != rules.end() && it->second.first < best_rank) best = i, best_rank = it->second.first;
    }
    if (best == ids.size()) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<int64_t>(best) + 1);
  }
}

TEST(BpeModel, ScanAndHeapAgreeWithTheDefinition) {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    Vocabulary vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<std::string> pieces = {"a", "b", "c"};
    std::vector<BpeMerge> merges;
    std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> rules;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<TokenId>(random() % pieces.size()),
                 right = static_cast<TokenId>(random() % pieces.size());
      const std::string merged = pieces[left] + pieces[right];
      if (merged.size() > 12) continue;
      const auto [it, added] = vocabulary.emplace(merged, static_cast<TokenId>(pieces.size()));
      if (added) pieces.push_back(merged);
      rules[{left, right}] = {merges.size(), it->second};  // a repeated pair takes the later rank
      merges.push_back({left, right, it->second});
    }
    const BpeModel model(vocabulary, merges, {});
    for (const size_t size : {1, 2, 5, 20, 24, 25, 40, 200}) {
      std::string word;
      Ids symbols;
      for (size_t i = 0; i < size; ++i) {
        symbols.push_back(static_cast<TokenId>(random() % 3));
        word += pieces[symbols.back()];
      }
      Ids ids;
      model.encode_word(word, &ids);
      ASSERT_EQ(ids, merge_slowly(rules, symbols)) << word;
    }
  }
}

// A text is cut where a run of U+2581 begins, but for where a merge could join over that place.
TEST(BpeModel, MarksAreNoBorderForMergesThatCrossThem) {
  std::mt19937 random(29);
  int crossing = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<std::string> pieces = {"a", "b", "▁", "🙂"};
    Vocabulary vocabulary;
    for (const std::string& piece : pieces) vocabulary.emplace(piece, static_cast<TokenId>(vocabulary.size()));
    std::vector<BpeMerge> merges;
    std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> rules;
    const bool few = round % 3 != 0;  // else so many that nothing is cut
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<TokenId>(random() % pieces.size()),
                 right = static_cast<TokenId>(random() % pieces.size());
      const bool crosses = !pieces[left].ends_with("▁") && pieces[right].starts_with("▁");
      if (pieces[left].size() + pieces[right].size() > 15 || (few && crosses && random() % 4 != 0)) continue;
      crossing += crosses;
      const auto [it, added] = vocabulary.emplace(pieces[left] + pieces[right], static_cast<TokenId>(pieces.size()));
      if (added) pieces.push_back(it->first);
      rules[{left, right}] = {merges.size(), it->second};
      merges.push_back({left, right, it->second});
    }
    const BpeModel model(vocabulary, merges, {});
    for (const size_t size : {2, 9, 30, 120}) {
      std::string word;
      Ids symbols;
      for (size_t i = 0; i < size; ++i) {
        symbols.push_back(static_cast<TokenId>(random() % 4));
        word += pieces[symbols.back()];
      }
      Ids ids;
      model.encode_word(word, &ids);
      ASSERT_EQ(ids, merge_slowly(rules, symbols)) << "round " << round << ": " << word;
    }
  }
  EXPECT_GT(crossing, 1000);
}

TEST(BpeModel, UnknownCharactersGiveUnknownTokensOrBytesOrNothing) {
  const Vocabulary vocabulary = {{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto encode = [&](BpeOptions options, std::string_view word) {
    Ids ids;
    BpeModel(vocabulary, {}, options).encode_word(word, &ids);
    return ids;
  };
  BpeOptions options;
  EXPECT_EQ(encode(options, "axxa"), (Ids{1, 1}));
  options.unk = 0;
  EXPECT_EQ(encode(options, "axxaé"), (Ids{1, 0, 0, 1, 0}));
  options.fuse_unk = true;
  EXPECT_EQ(encode(options, "axxaé"), (Ids{1, 0, 1, 0}));
  options.byte_fallback = true;
  EXPECT_EQ(encode(options, "aéx"), (Ids{1, 2, 3, 0}));
}

TEST(AddedTokens, LeftmostLongestAgreesWithTrialOfEveryToken) {
  std::mt19937 random(23);
  const auto draw = [&](size_t least, size_t most) {
    std::string text(least + random() % (most - least + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::map<std::string, TokenId> tokens;
    AddedTokenMatcher matcher;
    for (int i = 0; i < 6; ++i) {
      const std::string content = draw(2, 5);
      if (tokens.emplace(content, i).second) matcher.add(content, i, false, false);
    }
    const std::string text = draw(0, 30);
    std::vector<std::pair<std::string, TokenId>> expected;
    std::string stretch;
    const auto flush = [&] {
      if (!stretch.empty()) expected.emplace_back(std::exchange(stretch, ""), -1);
    };
    for (size_t at = 0; at < text.size();) {
      const std::pair<const std::string, TokenId>* best = nullptr;
      for (const auto& token : tokens) {
        if (text.compare(at, token.first.size(), token.first) == 0 &&
            (!best || token.first.size() > best->first.size()))
          best = &token;
      }
      if (best) {
        flush();
        expected.emplace_back(best->first, best->second);
        at += best->first.size();
      } else {
        stretch += text[at++];
      }
    }
    flush();
    std::vector<AddedTokenMatcher::Piece> pieces;
    matcher.split(text, &pieces);
    std::vector<std::pair<std::string, TokenId>> found;
    for (const auto& piece : pieces) found.emplace_back(piece.text, piece.id);
    ASSERT_EQ(found, expected) << text;
  }
}

TEST(Normalizer, NfcIsOfUnicode9) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "각");
  EXPECT_EQ(nfc("\uFA1E\u212B\u2126"), "羽ÅΩ");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");                // reordered by combining class
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // a composition of Unicode 13
  EXPECT_EQ(nfc("a\u1ABF\u0323"), "a\u1ABF\u0323");                // U+1ABF has no class yet, and so parts the marks
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("plain \U0001F600"), "plain \U0001F600");
}

// A sort, not an insertion a mark: half a million marks out of order would otherwise take minutes.
TEST(Normalizer, LongRunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  const std::string normal = nfc(text);
  EXPECT_TRUE(normal.starts_with("\u1EA1\u0323"));  // a with dot below, then the other dots
  EXPECT_TRUE(normal.ends_with("\u0301\u0301"));
}

TEST(Normalizer, StepsRunInOrderAndLeaveTheEmptyTextAlone) {
  const std::vector<NormalizerStep> steps = {PrependStep{"▁"}, ReplaceStep{" ", "▁"}};
  EXPECT_EQ(normalize(steps, "a b"), "▁a▁b");
  EXPECT_EQ(normalize(steps, ""), "");
  EXPECT_EQ(replace_all("aaa", "aa", "b"), "ba");
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const auto lossy = [](std::string_view bytes) {
    std::string out;
    const size_t incomplete = append_lossy(bytes, &out);
    return std::pair(out, incomplete);
  };
  EXPECT_EQ(lossy("a\xFFz"), std::pair(std::string("a\uFFFDz"), size_t{0}));
  EXPECT_EQ(lossy("\xF0\x9F\x98"
                  "a"),
            std::pair(std::string("\uFFFDa"), size_t{0}));
  EXPECT_EQ(lossy("\xE0\x80\x80"), std::pair(std::string("\uFFFD\uFFFD\uFFFD"), size_t{0}));
  EXPECT_EQ(lossy("\xED\xA0\x80"), std::pair(std::string("\uFFFD\uFFFD\uFFFD"), size_t{0}));
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), std::pair(std::string("\uFFFD\uFFFD\uFFFD\uFFFD"), size_t{0}));
  EXPECT_EQ(lossy("x\xF0\x9F"), std::pair(std::string("x"), size_t{2}));
  EXPECT_EQ(count_code_points("a中😀"), 3);
}

}  // namespace
}  // namespace helios
