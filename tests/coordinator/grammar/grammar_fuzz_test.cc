// Broken, cut and hostile sources: each is a grammar or a client's error, soon. Run under ASan and UBSan in CI.

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/coordinator/grammar/grammar_fixture.h"

namespace helios::testing {
namespace {

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":1e3},"b":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":{"type":"string"},"$defs":{"x":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]}}})",
    R"({"allOf":[{"enum":["a","ab",1,null,[1],{"k":2.5}]},{"anyOf":[{"type":"string"},{"minimum":0}]}]})",
    R"({"oneOf":[{"type":"string","pattern":"^[a-z]{2,9}$"},{"type":"number","multipleOf":0.5}],"title":"t"})",
    R"({"prefixItems":[{"const":true},{"format":"date-time"}],"items":{"type":"string","minLength":3,"maxLength":30},"minItems":1,"maxItems":9})"};
const char* const kRegexes[] = {"(?:a|b){2,30}[^\\w\\s]*\\p{L}+$", "^(x|yz?)*?\\u00e9{3}|[\\d_-]+\\.",
                                "((((a{1,3}){2}){3})+|\\x41){0,5}"};
const char* const kRules[] = {"root ::= \"a\" (b | [c-e]{2,4})* # c\nb ::= \"(\" root \")\" | \"\\u00e9\"?\n"};
const char* const kChoices[] = {R"(["a","ab","\u00e9"])"};
const char* const kSeries[] = {
    R"({"begin":"<","between":"; ","end":">","max":null,"items":[{"begin":"{\"name\": \"f\", \"a\": ","schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"integer"}}},"end":"}"},{"begin":"g","schema":true,"end":""}]})"};

const std::string_view kPieces[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    "(",
                                    ")",
                                    "|",
                                    "*",
                                    "+",
                                    "?",
                                    "{1,",
                                    "{0,99999}",
                                    "\\",
                                    "\\p{L}",
                                    "^",
                                    "$",
                                    "\"",
                                    ",",
                                    ":",
                                    "null",
                                    "true",
                                    "1e999",
                                    "-1",
                                    "0.001",
                                    "\"$ref\":\"#\"",
                                    "\"$ref\":\"#/$defs/x\"",
                                    "\"anyOf\":[{},{}]",
                                    "\"not\":{}",
                                    "\"enum\":[",
                                    "\"type\":\"string\",",
                                    "\"maxLength\":1000000000,",
                                    "\"minItems\":70000,",
                                    "\xFF",
                                    "\xC3",
                                    "\\u0000",
                                    "::=",
                                    "root",
                                    "\n",
                                    "#",
                                    "[[[[[[[[",
                                    "((((((((",
                                    "\"properties\":{\"a\":",
                                    "\"multipleOf\":3,",
                                    "\"allOf\":["};

// Whether it was a grammar.
bool use(GrammarKind kind, const std::string& source, std::mt19937_64* random) {
  GrammarLimits limits;
  limits.max_states = 20'000;
  limits.max_nodes = 20'000;
  static const Vocabulary vocabulary = vocabulary_with({"\"a", "\":", "},", "aa", "12", "\xC3", "\xA9\"", "ab\""});
  const auto grammar = try_compile(kind, source, vocabulary, JsonSpace::kBounded, limits);
  if (!grammar) {
    EXPECT_EQ(grammar.error().code, Errc::kInvalidArgument) << source;
    EXPECT_FALSE(grammar.error().message.empty());
    return false;
  }
  GrammarMatcher matcher(*grammar);
  std::vector<uint32_t> words(vocabulary->mask_words());
  for (int i = 0; i < 12; ++i) {
    const Status status = matcher.fill_mask(words);
    if (!status.ok()) {  // the vocabulary has every byte, so this is the only reason there is
      EXPECT_NE(status.error().message.find("too ambiguous"), std::string::npos) << source << status.error().message;
      return true;
    }
    const std::vector<TokenId> tokens = allowed_tokens(words);
    if (tokens.empty()) return false;
    const TokenId token = tokens[(*random)() % tokens.size()];
    EXPECT_TRUE(matcher.accept(token)) << source;
  }
  return true;
}

std::string mutated(std::string source, std::mt19937_64* random) {
  for (uint64_t n = 1 + (*random)() % 4; n > 0; --n) {
    const size_t at = (*random)() % (source.size() + 1);
    const std::string_view piece = kPieces[(*random)() % std::size(kPieces)];
    switch ((*random)() % 4) {
      case 0:
        source.insert(at, piece);
        break;
      case 1:
        source.replace(at, std::min<size_t>(source.size() - at, 1 + (*random)() % 8), piece);
        break;
      case 2:
        source.erase(at, 1 + (*random)() % 12);
        break;
      default:
        source.insert(at, source.substr((*random)() % (source.size() + 1), (*random)() % 20));
    }
  }
  return source;
}

template <size_t N>
int fuzz(GrammarKind kind, const char* const (&seeds)[N], int rounds) {
  int grammars = 0;
  std::mt19937_64 random(static_cast<uint64_t>(kind) + 99);
  for (int i = 0; i < rounds; ++i) grammars += use(kind, mutated(seeds[random() % N], &random), &random);
  return grammars;
}

TEST(GrammarFuzz, Schemas) { EXPECT_GT(fuzz(GrammarKind::kJsonSchema, kSchemas, 3000), 10); }
TEST(GrammarFuzz, Regexes) { EXPECT_GT(fuzz(GrammarKind::kRegex, kRegexes, 2000), 300); }
TEST(GrammarFuzz, Rules) { EXPECT_GT(fuzz(GrammarKind::kEbnf, kRules, 1500), 40); }
TEST(GrammarFuzz, Series) { EXPECT_GT(fuzz(GrammarKind::kTaggedSeries, kSeries, 1500), 10); }
TEST(GrammarFuzz, Choices) { EXPECT_GT(fuzz(GrammarKind::kChoice, kChoices, 500), 10); }

// JSON that stays JSON: keywords put, and values exchanged, anywhere in a schema.
void disturb(boost::json::value* value, const std::vector<std::pair<std::string, boost::json::value>>& pool, int depth,
             std::mt19937_64* random) {
  const auto& [name, other] = pool[(*random)() % pool.size()];
  const uint64_t choice = (*random)() % 4;
  if (auto* object = value->if_object(); object != nullptr && !object->empty() && choice != 0 && depth > 0) {
    if (choice == 1) {
      (*object)[name] = other;
      return;
    }
    auto member = object->begin() + static_cast<std::ptrdiff_t>((*random)() % object->size());
    return disturb(&member->value(), pool, depth - 1, random);
  }
  if (auto* array = value->if_array(); array != nullptr && !array->empty() && depth > 0)
    return disturb(&(*array)[(*random)() % array->size()], pool, depth - 1, random);
  *value = other;
}

void collect(const boost::json::value& value, std::vector<std::pair<std::string, boost::json::value>>* pool) {
  if (value.is_object())
    for (const auto& [key, below] : value.get_object()) {
      pool->emplace_back(key, below);
      collect(below, pool);
    }
  if (value.is_array())
    for (const auto& below : value.get_array()) collect(below, pool);
}

TEST(GrammarFuzz, SchemasThatAreJson) {
  std::mt19937_64 random(17);
  std::vector<std::pair<std::string, boost::json::value>> pool{
      {"not", {}}, {"minItems", 3}, {"maxLength", 9}, {"items", true}};
  for (const char* schema : kSchemas) collect(boost::json::parse(schema), &pool);
  int grammars = 0;
  for (int i = 0; i < 4000; ++i) {
    boost::json::value schema = boost::json::parse(kSchemas[random() % std::size(kSchemas)]);
    for (uint64_t n = 1 + random() % 5; n > 0; --n) disturb(&schema, pool, 8, &random);
    grammars += use(GrammarKind::kJsonSchema, boost::json::serialize(schema), &random);
  }
  EXPECT_GT(grammars, 400);
}

TEST(GrammarFuzz, RandomBytes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string source(random() % 40, ' ');
    for (char& c : source) c = static_cast<char>(random());
    for (const GrammarKind kind : {GrammarKind::kJsonSchema, GrammarKind::kRegex, GrammarKind::kEbnf,
                                   GrammarKind::kChoice, GrammarKind::kTaggedSeries})
      use(kind, source, &random);
  }
}

}  // namespace
}  // namespace helios::testing
