// Random texts through encode and decode: no text crashes, what byte-level tokenizers encode they decode to the same
// bytes (R29), and no text costs more than its length: a quadratic step in the long ones would outlast the test's
// limit.
#include <gtest/gtest.h>

#include <random>

#include "tests/coordinator/tokenizer/decoder_property.h"
#include "tests/coordinator/tokenizer/golden_data.h"
#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios {
namespace {

using Ids = std::vector<TokenId>;

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }

  /// Runs of one kind of character or one stubborn piece, as real and hostile texts have them.
  std::string text(size_t most_runs) {
    std::string out;
    for (size_t runs = below(most_runs + 1); runs > 0; --runs) {
      const size_t kind = below(kKinds), length = 1 + below(below(8) == 0 ? 60 : 6);
      for (size_t i = 0; i < length; ++i) append(kind, &out);
    }
    return out;
  }
  std::string noise(size_t most_bytes) {
    std::string out(below(most_bytes + 1), '\0');
    for (char& c : out) c = static_cast<char>(below(2) ? below(256) : 0x80 + below(64));
    return out;
  }
  /// A vocabulary of pieces that grow out of each other.
  std::vector<std::pair<std::string, std::string>> merges(int count) {
    std::vector<std::string> pieces;
    for (const char c : std::string("abc \xC3\xA9\xE4\xB8\xAD\xF0\x9F")) pieces.emplace_back(1, c);
    std::vector<std::pair<std::string, std::string>> out;
    while (static_cast<int>(out.size()) < count) {
      const std::string left = pieces[below(pieces.size())], right = pieces[below(pieces.size())];
      if (left.size() + right.size() > 12 || std::find(pieces.begin(), pieces.end(), left + right) != pieces.end()) {
        continue;
      }
      pieces.push_back(left + right);
      out.emplace_back(left, right);
    }
    return out;
  }

 private:
  static constexpr size_t kKinds = 9;

  void append(size_t kind, std::string* out) {
    static const std::vector<std::string> kStubborn = {
        "<s>",    "<x>",    "<|im_end|>", "<|im_",  "<",
        "'ll",    "'S",     " \r\n",      "\t",     "\u3000",
        "\u00A0", "\u200D", "e\u0301",    "\uFFFD", "\U0001F469\u200D\U0001F4BB",
        "▁",      "\u0130", "ſ",          "ﬁ",      "1234567890123"};
    switch (kind) {
      case 0:
        return append_utf8(static_cast<char32_t>(0x20 + below(0x5F)), out);
      case 1:
        return out->push_back("abc "[below(4)]);
      case 2:
        return out->push_back(" \n\r\t"[below(4)]);
      case 3:
        return append_utf8(static_cast<char32_t>(0xC0 + below(0x500)), out);
      case 4:
        return append_utf8(static_cast<char32_t>(0x4E00 + below(0x5000)), out);
      case 5:
        return append_utf8(static_cast<char32_t>(0x1F300 + below(0x400)), out);
      case 6:
        return append_utf8(static_cast<char32_t>(below(0x20)), out);
      case 7: {
        const auto any = static_cast<char32_t>(below(0x10FFFF));
        return append_utf8(any >= 0xD800 && any < 0xE000 ? U'x' : any, out);
      }
      default:
        *out += kStubborn[below(kStubborn.size())];
    }
  }

  std::mt19937 random_;
};

/// Byte level, with random merges: `use_regex` cuts words as GPT-2 does, else the whole text is one word.
std::shared_ptr<const Tokenizer> random_byte_level(uint32_t seed, bool use_regex) {
  RandomText random(seed);
  std::string vocab, merges;
  int id = 0;
  const auto add = [&](const std::string& bytes) {
    vocab += (id ? "," : "") + testing::json_string(testing::byte_level_piece(bytes)) + ":" + std::to_string(id);
    ++id;
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const auto& [left, right] : random.merges(300)) {
    add(left + right);
    merges += (merges.empty() ? "[" : ",[") + testing::json_string(testing::byte_level_piece(left)) + "," +
              testing::json_string(testing::byte_level_piece(right)) + "]";
  }
  return testing::build_tokenizer(
      "{\"added_tokens\":[{\"id\":" + std::to_string(id) +
      ",\"content\":\"<s>\",\"normalized\":false,\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
      "\"add_prefix_space\":false,\"use_regex\":" +
      (use_regex ? "true" : "false") +
      "},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{" + vocab + "},\"merges\":[" +
      merges + "]}}");
}

std::shared_ptr<const Tokenizer> demo() { return testing::load_tokenizer(HELIOS_DEMO_MODEL); }

/// The text comes back: decoded at once, as the tokens' own bytes, and decoded token by token.
void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  SCOPED_TRACE(testing::hex(text.substr(0, 400)));
  const auto ids = tokenizer.encode(text, false);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  ASSERT_LE(ids->size(), text.size());
  std::string bytes;
  for (const TokenId id : *ids) {
    ASSERT_TRUE(tokenizer.contains(id));
    bytes += tokenizer.token_bytes(id);
  }
  ASSERT_EQ(bytes, text);
  ASSERT_EQ(tokenizer.decode(*ids, false), text);
  ASSERT_EQ(testing::stream(tokenizer, false, {}, *ids).text, text);
  ASSERT_EQ(*tokenizer.encode(text, false), *ids) << "what was encoded before changes nothing";
}

void expect_round_trips(const Tokenizer& tokenizer, uint32_t seed, int rounds) {
  RandomText random(seed);
  for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
    expect_round_trip(tokenizer, random.text(12));
  }
}

TEST(TextFuzz, ByteLevelTokenizersGiveEveryTextBack) {  // R29
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    expect_round_trips(*random_byte_level(seed, seed % 2 == 0), seed, 600);
  }
}

TEST(TextFuzz, TheDemoTokenizerGivesEveryTextBack) {
  const auto tokenizer = demo();
  ASSERT_TRUE(tokenizer);
  expect_round_trips(*tokenizer, 7, 3000);
}

TEST(TextFuzz, BytesThatAreNoTextAreRefusedAndTextIsNot) {
  const auto tokenizer = demo();
  const auto fallback = testing::sentencepiece_tokenizer({"▁", "▁a", "a", "中", "▁▁"});
  ASSERT_TRUE(tokenizer);
  RandomText random(8);
  int refused = 0, taken = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string bytes = random.noise(12) + random.text(1) + random.noise(2);
    for (const auto& one : {tokenizer, fallback}) {
      const auto ids = one->encode(bytes, true);
      ASSERT_EQ(ids.ok(), valid_utf8(bytes)) << testing::hex(bytes);
      if (!ids.ok()) {
        EXPECT_EQ(ids.error().code, Errc::kInvalidArgument);
        ++refused;
        continue;
      }
      ++taken;
      ASSERT_TRUE(valid_utf8(one->decode(*ids, false)));
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);
}

/// What a SentencePiece vocabulary makes of its own word boundary mark in a text.
std::string with_spaces_for_marks(std::string text) {
  const std::string mark = "▁";
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at) text.replace(at, mark.size(), " ");
  return text;
}

TEST(TextFuzz, ByteFallbackLosesNoByte) {
  const auto tokenizer = testing::sentencepiece_tokenizer({"▁", "▁a", "a", "中", "▁▁"});
  RandomText random(9);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random.text(8);
    SCOPED_TRACE(testing::hex(text.substr(0, 400)));
    const auto ids = tokenizer->encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    std::string bytes;
    for (const TokenId id : *ids) bytes += tokenizer->token_bytes(id);
    ASSERT_EQ(bytes, with_spaces_for_marks(text));
    ASSERT_EQ(testing::stream(*tokenizer, false, {}, *ids).text, tokenizer->decode(*ids, false));
  }
}

TEST(TextFuzz, LongTextsCostTheirLength) {
  constexpr size_t kBytes = 400'000;  // squared, hours
  const auto tokenizer = demo();
  ASSERT_TRUE(tokenizer);
  const auto one_word = random_byte_level(10, false);
  RandomText random(11);
  std::vector<std::string> units = {"a",  " ",          "ab", "\n", "<",  "<|im_", "\u00E9",
                                    "中", "\U0001F600", "'",  "1",  "a ", "\r\n ", "e\u0301"};
  for (int i = 0; i < 4; ++i) units.push_back(random.text(20) + "x");
  for (const std::string& unit : units) {
    SCOPED_TRACE(testing::hex(unit.substr(0, 100)));
    std::string text;
    while (text.size() < kBytes) text += unit;
    for (const auto& one : {tokenizer, one_word}) {
      const auto ids = one->encode(text, false);
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      ASSERT_EQ(one->decode(*ids, false), text);
      ASSERT_EQ(testing::stream(*one, false, {}, *ids).text.size(), text.size());
    }
  }
}

}  // namespace
}  // namespace helios
