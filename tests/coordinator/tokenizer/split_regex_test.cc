// The pattern subset: what is matched, as Oniguruma would, and what is refused.
#include "coordinator/tokenizer/split_regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "coordinator/tokenizer/pre_tokenizer.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  Result<SplitRegex> regex = SplitRegex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.error().message;
  if (!regex.ok()) return {};
  SplitRegex::Matcher matcher(*regex);
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const Result<SplitRegex::Match> match = matcher.next(text, at);
    EXPECT_TRUE(match.ok());
    if (!match.ok() || !match->found) break;
    out.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return out;
}

using Strings = std::vector<std::string>;

TEST(SplitRegex, WhiteSpaceIsUnicodesAndNoMore) {
  EXPECT_EQ(matches("\\s", "\u0085\u00A0\u3000\u2028\v"), (Strings{"\u0085", "\u00A0", "\u3000", "\u2028", "\v"}));
  EXPECT_EQ(matches("\\s", "\u200B\u180E\uFEFF\x1C\x1F"), Strings{});
  EXPECT_EQ(matches("[^\\s]+", "a\u180E\u0085b"), (Strings{"a\u180E", "b"}));
  EXPECT_EQ(matches("\\S+", "a\u180E \U0010FFFF"), (Strings{"a\u180E", "\U0010FFFF"}));
  EXPECT_EQ(matches("[\\S]", "\u1680x"), Strings{"x"});
  for (uint32_t c = 0; c < 0x3100; ++c) {
    std::string text;
    append_utf8(c, &text);
    ASSERT_EQ(matches("\\s", text).size(), is_white_space(c) ? 1u : 0u) << c;
    ASSERT_EQ(matches("\\S", text).size(), is_white_space(c) ? 0u : 1u) << c;
  }
}

TEST(SplitRegex, PropertiesAreOfUnicode16) {
  EXPECT_EQ(matches("\\p{So}", "\U0001FABF\U0001FAE8"), (Strings{"\U0001FABF", "\U0001FAE8"}));  // of 15.0
  EXPECT_EQ(matches("\\p{L}", "\U00031350"), Strings{"\U00031350"});  // CJK extension H, 15.0
  EXPECT_EQ(matches("\\P{L}", "\U00031350x1"), Strings{"1"});
  EXPECT_EQ(matches("[^\\p{L}]", "\U00031350x1"), Strings{"1"});
  EXPECT_EQ(matches("\\p{N}", "½Ⅳ②7x"), (Strings{"½", "Ⅳ", "②", "7"}));
  EXPECT_EQ(matches("\\p{^L}\\D\\d", "1x7"), Strings{"1x7"});
}

TEST(SplitRegex, CaseFoldsAsUnicodeSays) {
  EXPECT_EQ(matches("(?i:'s|'t)", "'s'S'\u017F'T't"), (Strings{"'s", "'S", "'\u017F", "'T", "'t"}));
  EXPECT_EQ(matches("(?i:'s)x|y", "'Sx Y y"), (Strings{"'Sx", "y"}));  // only within the group
}

TEST(SplitRegex, LooksAheadAndRepeats) {
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", "a   b"), (Strings{"  ", " "}));
  EXPECT_EQ(matches("\\p{N}{1,3}", "12345"), (Strings{"123", "45"}));
  EXPECT_EQ(matches("a++b|a", "aab aa"), (Strings{"aab", "a", "a"}));
  EXPECT_EQ(matches("(ab)+", "ababa"), Strings{"abab"});
  EXPECT_EQ(matches("[\\-a\\]^\\\\&]+|[x-z-]", "-]^\\a&-y"), (Strings{"-]^\\a&-", "y"}));
  EXPECT_EQ(matches("\\x{4E2D}|\\u6587", "中文"), (Strings{"中", "文"}));
}

TEST(SplitRegex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern :
       {"\\w+",        "\\bfoo",    "^a",       "a$",      "[a&&b]",      "[a[b]]",    "[[:alpha:]]", "a{2}?",
        "a{2}+",       "a{,3}",     "a{2,1}",   "a{9999}", "(?i)a",       "(?-i:a)",   "(?<n>a)",     "(?#c)a",
        "\\1",         "\\K",       "\\h",      "\\v",     "\\R",         "\\X",       "\\G",         "\\A",
        "\\p{Han}",    "\\p{Nope}", "\\pL",     "\\x41",   "\\x{110000}", "\\x{D800}", "\\u12",       "[]a]",
        "[z-a]",       "[a-\\s]",   "[\\P{L}]", "[\\D]",   "a-[",         "(",         ")",           "(a",
        "a)",          "*a",        "a**",      "(?=a)*",  "(?i:ss)",     "(?i:sT)",   "(?i:é)",      "(?i:[a-z])",
        "(?i:\\p{L})", "[a",        "\\",       "a*",      "|",           "",          "(?:)",        "(?<=a*)b",
        "\\s*"}) {
    Result<SplitRegex> regex = SplitRegex::compile(pattern);
    EXPECT_FALSE(regex.ok()) << pattern;
    if (regex.ok()) continue;
    EXPECT_EQ(regex.error().code, Errc::kUnsupported) << pattern;
  }
  EXPECT_FALSE(SplitRegex::compile(std::string(40, '(') + "a" + std::string(40, ')')).ok());
  EXPECT_FALSE(SplitRegex::compile("a\xFF").ok());
  EXPECT_FALSE(SplitRegex::compile(std::string(1 << 20, 'a')).ok());
}

TEST(SplitRegex, LongRunsNeitherFailNorCrash) {
  const std::string spaces(1 << 20, ' '), letters(1 << 20, 'x');
  constexpr std::string_view kPattern = R"([^\r\n\p{L}\p{N}]?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(matches(kPattern, spaces + "x").size(), 2u);
  EXPECT_EQ(matches(kPattern, letters), Strings{letters});
  // A group for each character needs memory for each: beyond the limits that is an error, not a crash.
  Result<SplitRegex> regex = SplitRegex::compile("(?:\\p{L}|\\s)+");
  SplitRegex::Matcher matcher(*regex);
  EXPECT_EQ(matcher.next(letters.substr(0, 50000), 0)->end, 50000u);
  Result<SplitRegex::Match> match = matcher.next(letters, 0);
  if (match.ok()) {
    EXPECT_EQ(match->end, letters.size());
  } else {
    EXPECT_EQ(match.error().code, Errc::kInvalidArgument);
  }
}

Strings cut(SplitBehavior behavior, bool invert, const std::string& text) {
  std::vector<SplitStep> steps(1);
  steps[0].literal = "-";
  steps[0].behavior = behavior;
  steps[0].invert = invert;
  const PreTokenizer pre_tokenizer(std::move(steps));
  PreTokenizer::Words words;
  EXPECT_TRUE(pre_tokenizer.split(text, &words).ok());
  return {words.words.begin(), words.words.end()};
}

// The expectations of the Hugging Face library's documentation and tests for "the-final--countdown".
TEST(PreTokenizer, FiveBehaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(cut(SplitBehavior::kRemoved, false, text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(cut(SplitBehavior::kIsolated, false, text), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithPrevious, false, text), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithNext, false, text), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(cut(SplitBehavior::kContiguous, false, text), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(cut(SplitBehavior::kRemoved, true, text), (Strings{"-", "-", "-"}));
}

}  // namespace
}  // namespace helios
