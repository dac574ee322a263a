// Regular expressions, choices, rules: against derivatives, which say by definition what may follow; and the matcher.

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <unordered_map>

#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/tokenizer/utf8.h"
#include "tests/coordinator/grammar/grammar_fixture.h"

namespace helios::testing {
namespace {

// A regular expression that knows Brzozowski's derivative: the slow, obvious reference. Bytes, not code points.
struct Regex;
using R = std::shared_ptr<const Regex>;
struct Regex {
  enum Kind { kNone, kEmpty, kBytes, kCat, kAlt, kRepeat } kind = kNone;
  std::string bytes = {};  // kBytes: these, in order
  R a = {}, b = {};
  int min = 0, max = 0;  // kRepeat; max -1: no end
  std::string key = {};  // equal for equal expressions
};

R made(Regex r) {
  r.key = std::to_string(r.kind) + r.bytes + '(' + (r.a ? r.a->key : "") + ',' + (r.b ? r.b->key : "") + ')' +
          std::to_string(r.min) + ',' + std::to_string(r.max);
  return std::make_shared<Regex>(std::move(r));
}

R none() { return made({}); }
R empty() { return made({Regex::kEmpty}); }
R bytes(std::string text) { return text.empty() ? empty() : made({Regex::kBytes, std::move(text)}); }
R cat(R a, R b) {
  if (a->kind == Regex::kNone || b->kind == Regex::kNone) return none();
  if (a->kind == Regex::kEmpty) return b;
  if (b->kind == Regex::kEmpty) return a;
  return made({Regex::kCat, "", a, b});
}
R alt(R a, R b) {
  if (a->kind == Regex::kNone) return b;
  if (b->kind == Regex::kNone) return a;
  // Sorted and without repetitions, or derivatives would grow without end.
  std::map<std::string, R> ways;
  std::vector<R> work{a, b};
  while (!work.empty()) {
    const R next = work.back();
    work.pop_back();
    if (next->kind != Regex::kAlt)
      ways.emplace(next->key, next);
    else
      work.insert(work.end(), {next->a, next->b});
  }
  R all = nullptr;
  for (const auto& [key, way] : ways) all = all ? made({Regex::kAlt, "", way, all}) : way;
  return all;
}
R repeat(R a, int min, int max) {
  if (max == 0) return empty();
  if (a->kind == Regex::kNone) return min == 0 ? empty() : none();
  return made({Regex::kRepeat, "", a, nullptr, min, max});
}

bool nullable(const R& r) {
  switch (r->kind) {
    case Regex::kEmpty:
      return true;
    case Regex::kCat:
      return nullable(r->a) && nullable(r->b);
    case Regex::kAlt:
      return nullable(r->a) || nullable(r->b);
    case Regex::kRepeat:
      return r->min == 0 || nullable(r->a);
    default:
      return false;
  }
}

R derivative(const R& r, char c) {
  switch (r->kind) {
    case Regex::kBytes:
      return r->bytes[0] == c ? bytes(r->bytes.substr(1)) : none();
    case Regex::kCat: {
      const R left = cat(derivative(r->a, c), r->b);
      return nullable(r->a) ? alt(left, derivative(r->b, c)) : left;
    }
    case Regex::kAlt:
      return alt(derivative(r->a, c), derivative(r->b, c));
    case Regex::kRepeat:
      return cat(derivative(r->a, c), repeat(r->a, std::max(r->min - 1, 0), r->max < 0 ? -1 : r->max - 1));
    default:
      return none();
  }
}

R derivative(R r, std::string_view text, std::unordered_map<std::string, R>* known) {
  for (const char c : text) {
    R& next = (*known)[r->key + c];
    if (!next) next = derivative(r, c);
    r = next;
  }
  return r;
}

// A random expression: what it is, and how it is written.
struct Written {
  R regex;
  std::string text;
};

Written random_regex(int depth, std::mt19937_64* random) {
  static const std::vector<std::string> kLetters = {"a", "b", "c", "é", "ß", "€", "😀", "-", " "};
  const auto letter = [&] { return kLetters[(*random)() % kLetters.size()]; };
  switch (depth == 0 ? (*random)() % 2 : (*random)() % 6) {
    case 0: {
      const std::string one = letter();
      return {bytes(one), one};
    }
    case 1: {
      Written out{none(), "["};
      for (int i = 0; i < 3; ++i) {
        const std::string one = letter();
        out.regex = alt(out.regex, bytes(one));
        out.text += one == "-" ? "\\-" : one;
      }
      out.text += ']';
      return out;
    }
    case 2:
    case 3: {
      const Written a = random_regex(depth - 1, random), b = random_regex(depth - 1, random);
      return {cat(a.regex, b.regex), "(?:" + a.text + ")(" + b.text + ")"};
    }
    case 4: {
      const Written a = random_regex(depth - 1, random), b = random_regex(depth - 1, random);
      return {alt(a.regex, b.regex), "(?:" + a.text + "|" + b.text + ")"};
    }
    default: {
      const Written a = random_regex(depth - 1, random);
      const int min = static_cast<int>((*random)() % 4);
      const int max = (*random)() % 3 == 0 ? -1 : min + static_cast<int>((*random)() % 9);
      return {repeat(a.regex, min, max),
              "(?:" + a.text + "){" + std::to_string(min) + "," + (max < 0 ? "" : std::to_string(max)) + "}"};
    }
  }
}

TEST(GrammarMask, RandomRegexesAllowWhatTheirDerivativesAllow) {
  std::mt19937_64 random(7);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    std::unordered_map<std::string, R> known;
    const Written written = random_regex(3, &random);
    const Vocabulary vocabulary = vocabulary_with(random_pieces("abcabaaa--bb  éßéß€€😀😀abé€ß😀cc--aé😀a", 60, &random));
    const auto grammar = try_compile(GrammarKind::kRegex, written.text, vocabulary);
    ASSERT_TRUE(grammar.ok()) << written.text << ": " << grammar.error().message;
    for (int walk = 0; walk < 2; ++walk) {
      GrammarMatcher matcher(*grammar);
      R left = written.regex;
      std::string text;
      for (int step = 0; step < 8; ++step) {
        const std::vector<uint32_t> words = mask_of(&matcher, *vocabulary);
        ASSERT_EQ(matcher.is_complete(), nullable(left)) << written.text << " after " << text;
        std::vector<TokenId> tokens;
        for (TokenId token = 0; token < vocabulary->vocab_size(); ++token) {
          if (token == kEndOfText) continue;
          const bool fits = derivative(left, vocabulary->token_bytes(token), &known)->kind != Regex::kNone;
          ASSERT_EQ(allowed(words, token), fits)
              << written.text << " after " << text << " token " << vocabulary->token_bytes(token);
          if (fits) tokens.push_back(token);
          ++compared;
        }
        if (tokens.empty()) break;
        const TokenId token = tokens[random() % tokens.size()];
        left = derivative(left, vocabulary->token_bytes(token), &known);
        text += vocabulary->token_bytes(token);
        ASSERT_TRUE(matcher.accept(token));
      }
    }
  }
  EXPECT_GT(compared, 50'000);
}

TEST(GrammarMask, LargeCountedRepetitionsStopExactlyAtTheirBounds) {
  const Vocabulary vocabulary = vocabulary_with({"aa", "aaa", "aaaaaaaa", "aab", "b", "ab", "aaaab", "ba", "éé", "é"});
  std::mt19937_64 random(3);
  for (const char* regex : {"a{0,30}b", "a{20,30}b", "[aé]{25,27}", "a{6,}b", "a{0,12}a{0,12}b", "(a{5,9}b){5,7}",
                            "a{5,9}(a|b)*", "(?:aa){5,8}b", "[ab]{0,10}aab"}) {
    const Grammar grammar = compile(GrammarKind::kRegex, regex, vocabulary);
    for (int walk = 0; walk < 10; ++walk) expect_masks_equal_steps(grammar, 20, &random);
  }
  const Grammar grammar = compile(GrammarKind::kRegex, "a{20,100000}");
  EXPECT_LT(grammar->num_states(), 20u);
  EXPECT_FALSE(accepts(grammar, std::string(19, 'a')));
  EXPECT_TRUE(accepts(grammar, std::string(20, 'a')));
  EXPECT_TRUE(accepts(grammar, std::string(100000, 'a')));
  EXPECT_FALSE(accepts(grammar, std::string(100001, 'a')));
}

struct RegexCase {
  const char* regex;
  std::vector<const char*> matches;
  std::vector<const char*> others;
};

TEST(GrammarRegex, SupportedPartsMeanWhatEcmaScriptSays) {
  const RegexCase cases[] = {
      {"abc", {"abc"}, {"ab", "abcd", ""}},
      {"", {""}, {"a"}},
      {"^abc$", {"abc"}, {"xabc"}},
      {"a|", {"a", ""}, {"b"}},
      {"^(?:a|b)$|^c", {"a", "b", "c"}, {"d"}},
      {"[^a-c]", {"d", "é", "\n", "😀"}, {"a", "b", ""}},
      {"[]a]", {}, {"a", "]"}},  // an empty class, then "a]"
      {"[a\\]^-]+", {"a", "]", "^", "-", "-a"}, {"b"}},
      {".", {"a", "é", "😀", "\t"}, {"\n", "\r", "\xE2\x80\xA8", ""}},
      {"\\d+\\D", {"12a", "1\xD9\xA1"}, {"12"}},  // U+0661 is no ASCII digit
      {"\\w\\W", {"a-", "_é"}, {"ab", "é-"}},
      {"\\s\\S", {" a", "\xC2\xA0z", "\xE3\x80\x80z"}, {"aa", "  "}},
      {"\\p{Lu}\\p{L}*", {"Éa", "A", "Ωmega"}, {"a", "1"}},
      {"\\P{L}", {"1", " "}, {"a", "é"}},
      {"[\\p{Nd}_]+", {"1_٣"}, {"a"}},
      {"\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00", {"Aé😀😀"}, {"A"}},
      {"\\t\\n\\r\\f\\v\\0", {}, {"t"}},
      {"(?<year>\\d{4})-(?P<m>\\d\\d)", {"2024-01"}, {"2024-1"}},
      {"a*?b+?c??", {"b", "aabbc"}, {"ac"}},
      {"a{2}b{1,}c{0,2}", {"aab", "aabbcc"}, {"ab", "aabccc"}},
      {"a{,2}", {"a{,2}"}, {"a"}},
      {"x{y}", {"x{y}"}, {"x"}},
      {"\\.\\*\\{\\}\\/", {".*{}/"}, {"a"}},
      {"(?:a{0,3}){0,3}", {"", "aaaaaaaaa"}, {"aaaaaaaaaa"}},
      {"(a*)*b", {"b", "aaab"}, {"a"}},
      {"(|a)+", {"", "aa"}, {"b"}},
  };
  for (const RegexCase& c : cases) {
    const auto grammar = try_compile(GrammarKind::kRegex, c.regex);
    if (std::string_view(c.regex) == "[]a]") {
      EXPECT_FALSE(grammar.ok());
      continue;
    }
    ASSERT_TRUE(grammar.ok()) << c.regex << ": " << grammar.error().message;
    for (const char* text : c.matches) EXPECT_TRUE(accepts(*grammar, text)) << c.regex << " should match " << text;
    for (const char* text : c.others) EXPECT_FALSE(accepts(*grammar, text)) << c.regex << " should not match " << text;
  }
  EXPECT_TRUE(accepts(compile(GrammarKind::kRegex, "\\t\\n\\r\\f\\v\\0"), std::string_view("\t\n\r\f\v\0", 6)));
}

TEST(GrammarRegex, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a)\\1", "back-references are not supported at offset 3"},
      {"a(?=b)", "look-ahead is not supported"},
      {"a(?!b)", "look-ahead is not supported"},
      {"(?<=a)b", "look-behind is not supported"},
      {"(?<!a)b", "look-behind is not supported"},
      {"(?>a)", "atomic groups are not supported"},
      {"(?i)a", "inline flags"},
      {"\\bword", "the escape \\b is not supported"},
      {"a^b", "^ inside of the expression is not supported at offset 1"},
      {"(a$)b", "$ inside of the expression is not supported"},
      {"(?:^a)*", "^ inside"},
      {"^*", "a repeated anchor"},
      {"a++", "possessive"},
      {"a**", "a repeated repetition"},
      {"a{3,1}", "bounds out of order"},
      {"*a", "nothing to repeat"},
      {"{2}", "nothing to repeat"},
      {"(a", "missing )"},
      {"a)", "unmatched )"},
      {"[a", "missing ]"},
      {"[b-a]", "a range in [..] that is none"},
      {"[[:alpha:]]", "POSIX classes are not supported"},
      {"\\p{Greek}", "Unicode property Greek is not supported"},
      {"\\p{Script=Greek}", "Unicode property Script=Greek is not supported"},
      {"\\uD800", "no character"},
      {"a\\", "a backslash at the end"},
      {"\xFF", "not valid UTF-8"},
      {"[^\\s\\S]", "allows no text at all"},
      {"(a{1000}){1000}{1000}", "a repeated repetition"},
  };
  for (const auto& [regex, message] : cases)
    EXPECT_NE(compile_error(GrammarKind::kRegex, regex).find(message), std::string::npos)
        << regex << ": " << compile_error(GrammarKind::kRegex, regex);
}

TEST(GrammarRegex, HostileExpressionsEndInAnErrorOrAGrammar) {
  for (const std::string& regex :
       {std::string("(?:(?:(?:a{1,1000}){1,1000}b){1,1000}c){1,1000}"), std::string("(a|a|aa)*{1}"),
        std::string("(?:a?){5000}a{5000}"), std::string("(?:(?:a|b)*a(?:a|b){400})"), std::string(100000, '('),
        std::string("(?:\\p{L}+\\p{Lu}*){1,4000}"), std::string("(?:.*a.*b.*c){1,1000}")}) {
    const auto grammar = try_compile(GrammarKind::kRegex, regex);
    if (!grammar) continue;
    GrammarMatcher matcher(*grammar);
    std::vector<uint32_t> words((*grammar)->vocabulary().mask_words());
    for (int i = 0; i < 60 && matcher.accept(i % 3 == 0 ? 'a' : 'b'); ++i) (void)matcher.fill_mask(words);
    EXPECT_LT((*grammar)->memory_bytes(), 200u << 20);
  }
}

TEST(GrammarChoice, OneOfTheStringsAndNothingElse) {
  const Grammar grammar = compile(GrammarKind::kChoice, R"(["yes","yesterday","no","né","né","\"q\""])");
  for (const char* text : {"yes", "yesterday", "no", "né", "\"q\""}) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"", "y", "yester", "nope", "n"}) EXPECT_FALSE(accepts(grammar, text)) << text;
  EXPECT_NE(compile_error(GrammarKind::kChoice, "[]").find("not empty"), std::string::npos);
  EXPECT_NE(compile_error(GrammarKind::kChoice, "[1]").find("string"), std::string::npos);
  EXPECT_NE(compile_error(GrammarKind::kChoice, "{").find("array"), std::string::npos);
}

TEST(GrammarAnyOf, ATextOfAnyOfThem) {
  const GrammarSpec either[] = {
      {GrammarKind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"integer"}}})"},
      {GrammarKind::kEbnf, "root ::= \"{\" root? \"}\""},
      {GrammarKind::kChoice, R"(["{\"a\" :1}", "no"])"},
      {GrammarKind::kJsonSchema, R"({"type":"array"})", JsonSpace::kCompact}};
  const GrammarSpec spec = any_of(either);
  const Grammar grammar = compile(spec.kind, spec.source);
  for (const char* text : {R"({"a": 1})", "{{{}}}", R"({"a" :1})", "no", "[1,2]"})
    EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"", "{{}", "nono", "[1, 2]", R"({"a" : 1})"}) EXPECT_FALSE(accepts(grammar, text)) << text;
  const GrammarSpec bad[] = {{GrammarKind::kChoice, R"(["a"])"}, {GrammarKind::kRegex, "(?=a)"}};
  EXPECT_NE(compile_error(any_of(bad).kind, any_of(bad).source).find("look"), std::string::npos);
  const GrammarSpec nested[] = {any_of(bad)};
  for (const std::string& source : {std::string(), std::string("[]"), std::string("[7]"), any_of(nested).source}) {
    EXPECT_NE(compile_error(GrammarKind::kAnyOf, source).find("alternatives"), std::string::npos) << source;
  }
}

TEST(GrammarEbnf, RulesRecurseAndAreRefusedByLine) {
  const Grammar arithmetic = compile(GrammarKind::kEbnf, R"g(# sums
root ::= term ([+*] term)*
term ::= [0-9]{1,3} | "(" root ")" |
         "\x41\u00e9" .? # any
)g");
  for (const char* text : {"1", "1+2*(3+(444))", "Aé", "Aé😀+1"}) EXPECT_TRUE(accepts(arithmetic, text)) << text;
  for (const char* text : {"", "1234", "(1", "1+", "A"}) EXPECT_FALSE(accepts(arithmetic, text)) << text;

  const Grammar balanced = compile(GrammarKind::kEbnf, "root ::= \"a\" root \"b\" root | \"\"");
  EXPECT_TRUE(accepts(balanced, "aabbab"));
  EXPECT_FALSE(accepts(balanced, "aab"));
  EXPECT_FALSE(accepts(balanced, "ba"));

  const std::pair<const char*, const char*> errors[] = {
      {"root ::= root \"a\" | \"a\"", "left-recursive"},
      {"root ::= x root \"a\" | \"a\"\nx ::= \"b\"?", "left-recursive"},
      {"root ::= a", "rule \"a\" is used and not defined"},
      {"a ::= \"b\"", "no rule named root"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule \"root\" is defined twice"},
      {"start: \"a\"", "expected a rule"},
      {"root ::= /a/", "expected the end of the rule"},
      {"root ::= \"a", "a literal without an end"},
      {"root ::= [a", "missing ]"},
      {"root ::= \"\\q\"", "the escape \\q is not supported"},
      {"root ::= \"a\"{3,2}", "out of order"},
      {"root ::= a a\na ::= a2\na2 ::= \"x\" a", "allows no text at all"},
  };
  for (const auto& [source, message] : errors)
    EXPECT_NE(compile_error(GrammarKind::kEbnf, source).find(message), std::string::npos)
        << source << ": " << compile_error(GrammarKind::kEbnf, source);
}

TEST(GrammarMask, AmbiguousRecursionIsOneStateNotManyStacks) {
  // Each "a" may be either rule's, so there are 2^n stacks after n of them.
  const Grammar grammar = compile(GrammarKind::kEbnf, R"g(root ::= x
x ::= "a" x "b" | "a" y "c" | ""
y ::= "a" x "d" | "a" y "e" | ""
)g",
                                  vocabulary_with({"aa", "aaaa", "bb", "bc", "dc", "bbb"}));
  std::mt19937_64 random(1);
  for (int i = 0; i < 5; ++i) expect_masks_equal_steps(grammar, 12, &random);
  GrammarMatcher matcher(grammar);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(begins(matcher, std::string(50, 'b')));
  EXPECT_LT(grammar->memory_bytes(), 4u << 20);
}

TEST(GrammarMatcher, StopTokensAreAllowedExactlyWhenTheTextMayEnd) {
  const Vocabulary vocabulary = GrammarVocabulary::make({"a", "b", "ab", "", "<eos>", "<pad>", "abab"}, {4, 5}).value();
  GrammarMatcher matcher(compile(GrammarKind::kRegex, "(ab)*", vocabulary));
  EXPECT_EQ(allowed_tokens(mask_of(&matcher, *vocabulary)), (std::vector<TokenId>{0, 2, 4, 5, 6}));
  ASSERT_TRUE(matcher.accept(0));
  EXPECT_EQ(allowed_tokens(mask_of(&matcher, *vocabulary)), (std::vector<TokenId>{1}));
  EXPECT_FALSE(matcher.accept(4));
  EXPECT_FALSE(matcher.accept(0));
  EXPECT_FALSE(matcher.accept(3));  // no text
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(7));
  ASSERT_TRUE(matcher.accept(1));
  ASSERT_TRUE(matcher.accept(5));
  EXPECT_TRUE(matcher.is_stopped());
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_EQ(allowed_tokens(mask_of(&matcher, *vocabulary)), (std::vector<TokenId>{4, 5}));
  EXPECT_FALSE(matcher.accept(0));
  ASSERT_TRUE(matcher.rollback(2));
  EXPECT_FALSE(matcher.is_stopped());
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_EQ(allowed_tokens(mask_of(&matcher, *vocabulary)), (std::vector<TokenId>{1}));
  EXPECT_FALSE(matcher.rollback(2));
  EXPECT_FALSE(matcher.rollback(-1));
  ASSERT_TRUE(matcher.rollback(1));
  EXPECT_TRUE(matcher.is_complete());
}

TEST(GrammarMatcher, ErrorsOfMasksAreValues) {
  const Vocabulary gaps = GrammarVocabulary::make({"a", "b", "<eos>"}, {2}).value();
  GrammarMatcher stuck(compile(GrammarKind::kRegex, "ac", gaps));
  std::vector<uint32_t> words(1);
  ASSERT_TRUE(stuck.fill_mask(words).ok());
  EXPECT_FALSE(stuck.fill_mask(std::span<uint32_t>()).ok());
  ASSERT_TRUE(stuck.accept(0));
  const Status status = stuck.fill_mask(words);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kUnsupported);
  EXPECT_FALSE(GrammarVocabulary::make({"a"}, {1}).ok());
  EXPECT_FALSE(GrammarVocabulary::make({"a"}, {-1}).ok());
}

TEST(GrammarMatcher, RollbackAndCopiesGiveTheSameMasksAgain) {
  const Vocabulary vocabulary = vocabulary_with({"\"a\"", "{\"", "\":", "},{", "[[", "]]", "\"},{\"", "\": [", "]}"});
  GrammarLimits limits;
  for (const size_t bytes : {size_t{8} << 20, size_t{64} << 10}) {  // the second forgets its states all the time
    limits.max_memo_bytes = bytes;
    const Grammar grammar = *try_compile(GrammarKind::kJsonObject, "", vocabulary, JsonSpace::kBounded, limits);
    std::mt19937_64 random(5);
    size_t compared = 0;
    for (int walk = 0; walk < 30; ++walk) {
      GrammarMatcher matcher(grammar);
      std::vector<std::vector<uint32_t>> masks{mask_of(&matcher, *vocabulary)};
      std::vector<TokenId> taken;
      while (taken.size() < 60) {
        const auto tokens = allowed_tokens(masks.back());
        const TokenId token = tokens[random() % tokens.size()];
        if (token == kEndOfText) break;
        ASSERT_TRUE(matcher.accept(token));
        taken.push_back(token);
        masks.push_back(mask_of(&matcher, *vocabulary));
        if (random() % 4 != 0) continue;
        GrammarMatcher copy = matcher;
        const size_t back = random() % (taken.size() + 1);
        ASSERT_TRUE(copy.rollback(static_cast<int>(back)));
        for (size_t k = taken.size() - back;; ++k) {
          ASSERT_EQ(mask_of(&copy, *vocabulary), masks[k]);
          ++compared;
          if (k == taken.size()) break;
          ASSERT_TRUE(copy.accept(taken[k]));
        }
      }
    }
    EXPECT_GT(compared, 500u);
    EXPECT_LT(grammar->memory_bytes(), 20u << 20);
  }
}

TEST(GrammarMatcher, ManyThreadsOfOneGrammarSeeTheSameMasks) {
  const Vocabulary vocabulary = vocabulary_with({"\"a\"", "{\"", "\":", "},{", "[[", "]]", "true", "null"});
  GrammarLimits limits;
  limits.max_memo_bytes = 64 << 10;
  const Grammar grammar = *try_compile(GrammarKind::kJsonObject, "", vocabulary, JsonSpace::kBounded, limits);
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      std::mt19937_64 random(11);
      for (int i = 0; i < 20; ++i) text += random_walk(grammar, 60, &random).value_or("-") + '\n';
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(GrammarCache, KeepsWhatIsUsedWithinItsBound) {
  GrammarCache cache(byte_vocabulary(), 1u << 20);
  const auto get = [&](const std::string& source) { return cache.get({GrammarKind::kRegex, source}).value(); };
  const Grammar first = get("a+");
  EXPECT_EQ(get("a+"), first);
  EXPECT_NE(cache.get({GrammarKind::kChoice, "[\"a+\"]"}).value(), first);
  EXPECT_FALSE(cache.get({GrammarKind::kRegex, "("}).ok());
  for (int i = 0; i < 2000; ++i) {
    get("b{" + std::to_string(i) + "}");
    EXPECT_EQ(get("a+"), first);  // used all the time, so it stays
  }
  EXPECT_LE(cache.memory_bytes(), 1u << 20);
  EXPECT_LT(cache.num_grammars(), 2000u);
  EXPECT_GT(cache.num_grammars(), 2u);
}

}  // namespace
}  // namespace helios::testing
