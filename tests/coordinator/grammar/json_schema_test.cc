// JSON Schema as a grammar: what is allowed validates, what validates (and is written as documented) is allowed.

#include <gtest/gtest.h>

#include <charconv>

#include "tests/coordinator/grammar/grammar_fixture.h"
#include "tests/coordinator/grammar/schema_validator.h"

namespace helios::testing {
namespace {

namespace json = boost::json;

const std::vector<std::string>& json_pieces() {
  static const std::vector<std::string> pieces = {
      "\"},{\"", "{\"", "\":",  "\": ",  "\",",          "\", \"", "\"}",      "\"]",      "[\"", "],",
      "}}",      "]]",  "[[",   "{}",    "[]",           "true",   "false",    "null",     "12",  "0.5",
      "1e5",     "-",   "name", "\"a\"", "\"name\": \"", "\\\"",   "\\u",      "\\u00e9",  "\\n", "\n  ",
      "\n    ",  " ",   "  ",   "é",     "\xC3",         "\xA9\"", "\xF0\x9F", "\x98\x80", "ab",  "abc",
      "0000",    ".0",  "99",   "\",\"", ": {\"",        "null}",  "\"b\":1",  "tr",       "ue,", "}, {\"a"};
  return pieces;
}

const Vocabulary& json_vocabulary() {
  static const Vocabulary vocabulary = vocabulary_with(json_pieces());
  return vocabulary;
}

// Walks along the masks: whatever comes out must be JSON and valid.
void expect_walks_validate(const std::string& schema, int walks, std::mt19937_64* random, int* finished = nullptr) {
  const json::value document = json::parse(schema);
  const SchemaValidator validator(document);
  for (const JsonSpace space : {JsonSpace::kBounded, JsonSpace::kCompact}) {
    const auto grammar = try_compile(GrammarKind::kJsonSchema, schema, json_vocabulary(), space);
    ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.error().message;
    for (int i = 0; i < walks; ++i) {
      const auto text = random_walk(*grammar, 120, random);
      if (!text) continue;
      json::error_code failed;
      const json::value value = json::parse(*text, failed);
      ASSERT_FALSE(failed) << schema << "\n" << *text << ": " << failed.message();
      ASSERT_TRUE(validator.valid(value)) << schema << "\n" << *text;
      if (finished != nullptr) ++*finished;
    }
  }
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> texts;
  std::vector<const char*> others;
};

const SchemaCase kCases[] = {
    {R"({})",
     {"1", "null", R"({"a": [1, {"b": "c"}]})", R"("\u00e9\uD83D\uDE00\/")"},
     {"", R"("\uD83D")", R"("\uDE00")", "01", "1.", "+1", "tru", "{,}", "[1,]", " 1", "1 ", "\"a\nb\"", "\"\\x\""}},
    {R"(true)", {"1"}, {}},
    {R"({"type":"null"})", {"null"}, {"0"}},
    {R"({"type":"boolean"})", {"true", "false"}, {"null", "1"}},
    {R"({"type":"integer"})", {"0", "-0", "-12", "123456789012345678901234567890"}, {"01", "1.0", "1e3", "-", "\"1\""}},
    {R"({"type":"number"})", {"0", "-0.5", "1e10", "1E-7", "2.50e+3"}, {".5", "1.", "0x1", "NaN", "1e"}},
    {R"({"type":["string","null"]})", {"null", R"("")", R"("é\"\\\n")"}, {"1"}},
    {R"({"type":"object"})",
     {"{}", R"({"a":1,"b":{}})", "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}"},
     {"[]", R"({"a"})",
      R"({"a":1 })"
      "x"}},
    {R"({"type":"object","properties":{},"additionalProperties":false})", {"{}", "{ }"}, {R"({"a":1})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false})",
     {R"({"a":1,"b":"x"})", R"({"a": 1, "b": "x"})"},
     {R"({"b":"x","a":1})", R"({"a":1})", R"({"a":1,"b":"x","c":2})", R"({"a":1,"b":"x",})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}}})",
     {"{}", R"({"a":1})", R"({"b":1})", R"({"c":1})", R"({"a":1,"c":2})", R"({"a":1,"b":2,"c":3})", R"({"b":1,"c":2})"},
     {R"({"b":1,"a":2})", R"({,"a":1})", R"({"a":1,,"c":2})", R"({"d":1})", R"({"a":1,})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"required":["b"]})",
     {R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"c":2})"},
     {"{}", R"({"a":1})", R"({"a":1,"c":2})"}},
    {R"({"properties":{"a":{"type":"integer"},"ab":{"type":"null"}},"required":["a"],"additionalProperties":{"type":"string"}})",
     {R"({"a":1})", R"({"a":1,"ab":null})", R"({"a":1,"b":"x"})", R"({"a":1,"abc":"x","":"y","é":"z"})",
      R"({"a":1,"\"":"q","\n":"n"})"},
     {R"({"a":1,"a":"x"})", R"({"a":1,"ab":"x"})", R"({"a":1,"c":2})", R"({"a":1,"\u0061b":"x"})", R"({"b":"x"})"}},
    {R"({"required":["x","y"]})", {R"({"x":1,"y":[]})"}, {R"({"x":1})"}},
    {R"({"additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})",
     {R"({"a":1})", R"({"a":1,"b":2})"},
     {"{}", R"({"a":1,"b":2,"c":3})", R"({"a":"x"})"}},
    {R"({"type":"array","items":{"type":"integer"}})",
     {"[]", "[1]", "[1, 2,3]", "[\n\t1\n]"},
     {"[1,]", "[,1]", "[\"a\"]", "[1  ]"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
     {"[1,2]", "[1,2,3]"},
     {"[]", "[1]", "[1,2,3,4]"}},
    {R"({"type":"array","items":{"enum":["ab"]},"minItems":10,"maxItems":12})",
     {R"(["ab","ab","ab","ab","ab","ab","ab","ab","ab","ab"])"},
     {R"(["ab","ab"])"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
     {"[]", "[1]", R"([1,"a"])"},
     {R"(["a"])", R"([1,"a",2])"}},
    {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":2,"maxItems":4})",
     {R"([1,"a"])", R"([1,"a",null,null])"},
     {"[1]", R"([1,"a",null,null,null])", R"([1,"a",1])"}},
    {R"({"enum":["a","ab",1,1.5,null,true,[1,"x"],{"k":[]}]})",
     {R"("a")", R"("ab")", "1", "1.5", "null", "true", R"([1, "x"])", R"({"k": []})"},
     {R"("abc")", "2", "[1]", "{}"}},
    {R"({"type":"string","enum":["a",1,"b"]})", {R"("a")", R"("b")"}, {"1"}},
    {R"({"const":{"a":["é\"",-1e-7]}})", {R"({"a":["é\"",-1e-07]})"}, {R"({"a":[]})"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]})", {"1", "[1]"}, {"null"}},
    {R"({"type":"object","properties":{"t":{"const":"x"}},"required":["t"],"anyOf":[{"properties":{"v":{"type":"integer"}},"required":["v"]},{"properties":{"w":{"type":"null"}},"required":["w"]}]})",
     {R"({"t":"x","v":1})", R"({"t":"x","w":null})"},
     {R"({"t":"x"})", R"({"v":1})"}},
    {R"({"oneOf":[{"properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"properties":{"k":{"enum":["b","c"]}},"required":["k"]}]})",
     {R"({"k":"a","v":1})", R"({"k":"b"})", R"({"k":"c"})"},
     {R"({"k":"a"})", R"({"k":"d"})"}},
    {R"({"oneOf":[{"type":"integer","maximum":5},{"type":"integer","exclusiveMinimum":5},{"type":"string"}]})",
     {"5", "6", R"("a")"},
     {"null"}},
    {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{"type":"string"}}}]})",
     {R"({"a":3})", R"({"a":4,"b":"x"})"},
     {R"({"a":2})", R"({"b":"x"})"}},
    {R"({"allOf":[{"type":["integer","string"]},{"type":["string","null"]}]})", {R"("a")"}, {"1", "null"}},
    {R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}],"maximum":2})", {"2"}, {"1", "3"}},
    {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":["string","null"]}},{"properties":{"b":{"type":["string","integer"]}},"required":["b"]}]})",
     {R"({"a":1,"b":"x"})", R"({"b":"x"})"},
     {R"({"b":1})"}},
    {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1,"next":{}})", R"({"v":1})"}},
    {R"({"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#"}}},"required":["kids"]})",
     {R"({"kids":[]})", R"({"kids":[{"kids":[{"kids":[]}]},{"kids":[]}]})"},
     {R"({"kids":[1]})"}},
    {R"({"allOf":[{"$ref":"#/definitions/a~1b%25"}],"definitions":{"a/b%":{"type":"integer"}}})", {"1"}, {"null"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}},"required":["b"]})",
     {R"({"a":1,"b":2})"},
     {R"({"b":"x"})"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("é\n😀")", R"("\uD83D\uDE00\u0041")"},
     {R"("a")", R"("abcd")", R"("\uD83D\uDE00")"}},
    {R"({"type":"string","maxLength":20})", {R"("")", R"("12345678901234567890")"}, {R"("123456789012345678901")"}},
    {R"({"type":"string","pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")", R"("\u0061")"}},
    {R"({"type":"string","pattern":"b.d"})", {R"("abcde")", R"("b\"d")", R"("x\n b\td")"}, {R"("bd")", R"("b\nd")"}},
    {R"({"type":"string","pattern":"^\\d{3}$","maxLength":3})", {R"("123")"}, {R"("12")"}},
    {R"({"type":"string","format":"date"})",
     {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
     {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")"}},
    {R"({"type":"string","format":"date-time"})",
     {R"("2024-01-02T03:04:05Z")", R"("2024-01-02T23:59:59.123+05:30")"},
     {R"("2024-01-02")", R"("2024-01-02T24:00:00Z")"}},
    {R"({"type":"string","format":"time"})", {R"("03:04:05Z")"}, {R"("03:04")"}},
    {R"({"type":"string","format":"duration"})",
     {R"("P1Y2M3DT4H5M6S")", R"("PT1H")", R"("P2W")", R"("P1D")"},
     {R"("P")", R"("PT")", R"("P1H")"}},
    {R"({"type":"string","format":"email"})", {R"("a.b+c@example.com")"}, {R"("a@")", R"("a..b@c")", R"("@c.d")"}},
    {R"({"type":"string","format":"hostname"})",
     {R"("a-b.example.com")", R"("x")"},
     {R"("-a")", R"("a-")", R"("a..b")"}},
    {R"({"type":"string","format":"ipv4"})",
     {R"("127.0.0.1")", R"("255.255.255.255")"},
     {R"("256.1.1.1")", R"("01.1.1.1")", R"("1.1.1")"}},
    {R"({"type":"string","format":"ipv6"})",
     {R"("::")", R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7::")"},
     {R"(":")", R"("1:2")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")"}},
    {R"({"type":"string","format":"uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("01234567")"}},
    {R"({"type":"string","format":"uri"})", {R"("https://example.com/a%20b?c=d#e")"}, {R"("example.com")"}},
    {R"({"type":"integer","minimum":-5,"maximum":12})", {"-5", "-1", "0", "7", "12"}, {"-6", "13", "-0", "1.0"}},
    {R"({"type":"integer","exclusiveMinimum":9.5,"exclusiveMaximum":1000})", {"10", "999", "500"}, {"9", "1000"}},
    {R"({"type":"integer","minimum":100})", {"100", "99999999999999999999"}, {"99", "-100"}},
    {R"({"type":"integer","maximum":-100})", {"-100", "-1234"}, {"-99", "0", "100"}},
    {R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.5", "1.000", "0.0"}, {"1.01", "-0.1", "2", "1e0"}},
    {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
     {"0.1", "0.999", "0.0001"},
     {"0", "1", "0.000", "1.0"}},
    {R"({"type":"number","minimum":-1.25,"maximum":-0.5})",
     {"-1.25", "-1", "-0.5", "-0.51", "-1.2"},
     {"-1.26", "-0.49", "0", "-2"}},
    {R"({"type":"number","minimum":3.14,"maximum":3.15})",
     {"3.14", "3.149", "3.15", "3.1500"},
     {"3.1", "3.139", "3.151", "3"}},
    {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "8"}},
    {R"({"type":"integer","minimum":0,"multipleOf":5})", {"0", "25"}, {"-5", "7"}},
    {R"({"type":"integer","minimum":3,"maximum":20,"multipleOf":5})", {"5", "20"}, {"0", "3", "25"}},
    {R"({"type":"number","multipleOf":0.01})", {"0", "1.5", "-2.25", "10"}, {"0.001", "1.125"}},
    {R"({"type":"number","multipleOf":0.25})", {"0.5", "1.75", "3", "0.50"}, {"0.3", "0.1"}},
    {R"({"type":"object","title":"T","description":"d","$schema":"s","x-order":1,"default":{},"properties":{"a":{"type":"integer","description":"x","examples":[1]}},"required":["a"]})",
     {R"({"a":1})"},
     {"{}"}},
    {R"({"maxLength":3})", {R"("abc")"}, {"1", R"("abcd")"}},
};

TEST(JsonSchema, EachKeywordMeansWhatTheSpecificationSays) {
  for (const SchemaCase& c : kCases) {
    const auto grammar = try_compile(GrammarKind::kJsonSchema, c.schema);
    ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.error().message;
    const json::value document = json::parse(c.schema);
    for (const char* text : c.texts) {
      EXPECT_TRUE(accepts(*grammar, text)) << c.schema << " should allow " << text;
      EXPECT_TRUE(SchemaValidator(document).valid(json::parse(text))) << c.schema << " " << text;  // the case itself
    }
    for (const char* text : c.others) EXPECT_FALSE(accepts(*grammar, text)) << c.schema << " should not allow " << text;
  }
}

TEST(JsonSchema, WalksAlongTheMasksOfEachKeywordValidate) {
  std::mt19937_64 random(21);
  int finished = 0;
  for (const SchemaCase& c : kCases) expect_walks_validate(c.schema, 6, &random, &finished);
  EXPECT_GT(finished, 400);
}

TEST(JsonSchema, MasksEqualStepsForTokensThatSpanStructure) {
  std::mt19937_64 random(22);
  for (const SchemaCase& c : kCases) {
    const Grammar grammar = compile(GrammarKind::kJsonSchema, c.schema, json_vocabulary());
    for (int i = 0; i < 2; ++i) expect_masks_equal_steps(grammar, 25, &random);
  }
}

TEST(JsonSchema, CompactTextHasNoWhiteSpaceAndBoundedTextLittle) {
  const char* schema =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"const":{"k":[1,2]}}}},"required":["a"]})";
  const Grammar compact = compile(GrammarKind::kJsonSchema, schema, byte_vocabulary(), JsonSpace::kCompact);
  EXPECT_TRUE(accepts(compact, R"({"a":[{"k":[1,2]},{"k":[1,2]}]})"));
  EXPECT_FALSE(accepts(compact, R"({"a": []})"));
  const Grammar bounded = compile(GrammarKind::kJsonSchema, schema);
  EXPECT_TRUE(accepts(bounded, "{\n\t\"a\": [ {\"k\": [\n" + std::string(64, ' ') + "1, 2 ]}]}"));
  EXPECT_FALSE(accepts(bounded, "{\"a\":\n" + std::string(65, ' ') + "[]}"));
  EXPECT_FALSE(accepts(bounded, R"({"a" :[]})"));
  EXPECT_FALSE(accepts(bounded, "{\"a\":  []}"));
}

TEST(JsonSchema, WhatIsNotSupportedIsNamedWithItsPath) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"not":{}}}})", R"(#/properties/a: keyword "not" is not supported)"},
      {R"({"items":{"if":{}}})", R"(#/items: keyword "if" is not supported)"},
      {R"({"patternProperties":{}})", R"(#: keyword "patternProperties")"},
      {R"({"$defs":{"x":{"uniqueItems":true}},"$ref":"#/$defs/x"})", R"(#/$defs/x: keyword "uniqueItems")"},
      {R"({"type":"string","nullable":true})", "nullable"},
      {R"({"unevaluatedProperties":false})", "unevaluatedProperties"},
      {R"({"propertyNames":{}})", "propertyNames"},
      {R"({"contains":{}})", "contains"},
      {R"({"dependentRequired":{}})", "dependentRequired"},
      {R"({"anyOf":[{"type":"string"},{"minimum":0,"maxContains":1}]})", R"(#/anyOf/1: keyword "maxContains")"},
      {R"({"type":"string","format":"iri"})", R"(format "iri" is not supported)"},
      {R"g({"type":"string","pattern":"(?=a)"})g", "look-ahead is not supported at offset"},
      {R"({"type":"string","pattern":"a+","maxLength":5})", "maxLength together with pattern"},
      {R"({"type":"string","pattern":"a","format":"date"})", "several patterns or formats"},
      {R"({"$ref":"https://example.com/s"})", "only pointers within the schema"},
      {R"({"$ref":"#/nope"})", "points at nothing"},
      {R"({"$ref":"#"})", "leads back to itself"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "leads back to itself"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})", "leads back to itself"},
      {R"({"type":"text"})", "type must be one of"},
      {R"({"type":3})", "type must be one of"},
      {R"({"properties":[]})", "properties must be an object"},
      {R"({"required":["a",1]})", "required must be an array of strings"},
      {R"({"items":[{}]})", "use prefixItems"},
      {R"({"minLength":-1})", "minLength must be an integer that is not negative"},
      {R"({"minimum":"1"})", "minimum must be a number"},
      {R"({"exclusiveMinimum":true})", "exclusiveMinimum must be a number"},
      {R"({"multipleOf":0})", "multipleOf must be above zero"},
      {R"({"type":"number","multipleOf":0.0001234567})", "multipleOf with so many digits"},
      {R"({"type":"integer","multipleOf":3,"minimum":1})", "multipleOf together with these bounds"},
      {R"({"oneOf":[{"type":"object"},{"properties":{"a":{}}}]})", "branches 0 and 1 may both hold"},
      {R"({"anyOf":[]})", "#/anyOf: must be an array that is not empty"},
      {R"({"enum":"a"})", "enum must be an array"},
      {R"({"enum":["abc"],"minLength":2})", "enum or const together with keywords"},
      {R"({"properties":{"a":{"type":"integer"}},"minProperties":1})", "minProperties"},
      {R"({"properties":{"a":{},"b":{}},"maxProperties":1})", "maxProperties"},
      {R"({"properties":{"a/b~":7}})", "#/properties/a~1b~0: a schema must be an object, true or false"},
      {R"([])", "#: a schema must be an object"},
      {R"({"a)", "not JSON"},
      {R"(false)", "allows no text at all"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "allows no text at all"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "allows no text at all"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "allows no text at all"},
      {R"({"allOf":[{"type":"integer"},{"type":"string"}]})", "allows no text at all"},
      {R"({"enum":[]})", "allows no text at all"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_NE(compile_error(GrammarKind::kJsonSchema, schema).find(message), std::string::npos)
        << schema << ": " << compile_error(GrammarKind::kJsonSchema, schema);
}

TEST(JsonSchema, LimitsAreErrorsAndHostileSchemasEnd) {
  std::string nested = "{}";
  for (int i = 0; i < 200; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_NE(compile_error(GrammarKind::kJsonSchema, nested), "");
  EXPECT_NE(compile_error(GrammarKind::kJsonSchema, std::string(2u << 20, ' ')).find("more than"), std::string::npos);

  // Alternatives of alternatives: 2^40 combinations if they were multiplied out.
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 40; ++i)
    product += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"required":["a)" + std::to_string(i) +
               R"("]},{"required":["b)" + std::to_string(i) + R"("]}]})";
  EXPECT_NE(compile_error(GrammarKind::kJsonSchema, product + "]}").find("combinations"), std::string::npos);

  // A chain of references each of which is used twice, through merges.
  std::string doubling = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    doubling += "\"d" + std::to_string(i) + R"(":{"allOf":[)" + next + "," + next + "]},";
  }
  EXPECT_NE(compile_error(GrammarKind::kJsonSchema, doubling + R"("d40":{"type":"null"}}})"), "");

  // Long names, many properties, large counts.
  EXPECT_NE(compile_error(GrammarKind::kJsonSchema,
                          R"({"properties":{")" + std::string(100000, 'n') + R"(":{}},"additionalProperties":true})"),
            "");
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 5000; ++i)
    many += std::string(i > 0 ? "," : "") + "\"property" + std::to_string(i) + R"(":{"type":"string"})";
  const auto wide = try_compile(GrammarKind::kJsonSchema, many + "}}");
  ASSERT_TRUE(wide.ok()) << wide.error().message;
  EXPECT_TRUE(accepts(*wide, R"({"property7":"a","property4999":""})"));
  const auto long_array =
      try_compile(GrammarKind::kJsonSchema, R"({"type":"array","items":{"type":"object"},"maxItems":50000})");
  ASSERT_TRUE(long_array.ok()) << long_array.error().message;
  EXPECT_NE(
      compile_error(GrammarKind::kJsonSchema, R"({"type":"array","items":{},"minItems":500000000})").find("too large"),
      std::string::npos);
}

// Random schemas, instances made from them, and the instances' texts.
class SchemaSource {
 public:
  explicit SchemaSource(std::mt19937_64* random) : random_(*random) {}

  json::value schema(int depth) {
    switch (depth == 0 ? pick(6) : pick(10)) {
      case 0:
        return {{"type", "integer"}, {"minimum", pick(200) - 100}, {"maximum", 100 + pick(2000)}};
      case 1:
        return {{"type", "number"}, {"exclusiveMinimum", (pick(400) - 200) / 8.0}, {"maximum", 25 + pick(100) / 16.0}};
      case 2:
        return {{"type", "string"}, {"minLength", pick(4)}, {"maxLength", 4 + pick(20)}};
      case 3:
        return {{"enum", json::array{"a", "abc", pick(100), nullptr, json::array{1, "x"}}}};
      case 4:
        return {{"type", json::array{"boolean", "null", "string"}}};
      case 5:
        return {{"type", "string"}, {"pattern", "^[a-c]+x?[0-9]{2,4}$"}};
      case 6:
        return {{"type", "array"}, {"items", schema(depth - 1)}, {"minItems", pick(2)}, {"maxItems", 2 + pick(5)}};
      case 7:
        return {{"anyOf", json::array{schema(depth - 1), schema(depth - 1)}}};
      default:
        return object(depth);
    }
  }

  json::value instance(const json::value& schema) {
    const json::object& s = schema.as_object();
    if (const auto* any = s.if_contains("anyOf")) return instance(any->as_array()[pick(2)]);
    if (const auto* list = s.if_contains("enum"))
      return list->as_array()[pick(static_cast<int>(list->as_array().size()))];
    if (s.at("type").is_array())
      return pick(3) == 0 ? json::value(true) : pick(2) == 0 ? json::value(nullptr) : json::value(word(0, 9));
    const std::string_view type = s.at("type").as_string();
    if (type == "integer") {
      const int64_t low = s.at("minimum").as_int64();
      return low + pick(static_cast<int>(s.at("maximum").as_int64() - low + 1));
    }
    if (type == "number") {
      const double low = s.at("exclusiveMinimum").to_number<double>();
      return low + (1 + pick(1024)) / 1024.0 * (s.at("maximum").to_number<double>() - low);
    }
    if (type == "string") {
      if (s.contains("pattern"))
        return json::value(std::string(1 + pick(3), static_cast<char>('a' + pick(3))) + (pick(2) ? "x" : "") +
                           std::to_string(10 + pick(9990)));
      return json::value(
          word(static_cast<int>(s.at("minLength").as_int64()), static_cast<int>(s.at("maxLength").as_int64())));
    }
    if (type == "array") {
      json::array items;
      const int64_t low = s.at("minItems").as_int64();
      for (int64_t n = low + pick(static_cast<int>(s.at("maxItems").as_int64() - low + 1)); n > 0; --n)
        items.push_back(instance(s.at("items")));
      return items;
    }
    json::object members;
    for (const auto& [name, property] : s.at("properties").as_object()) {
      const auto& required = s.at("required").as_array();
      if (std::find(required.begin(), required.end(), json::value(name)) != required.end() || pick(2) == 0)
        members[name] = instance(property);
    }
    if (s.at("additionalProperties").is_object())
      for (int n = pick(3); n > 0; --n) members["more" + std::to_string(n)] = instance(s.at("additionalProperties"));
    return members;
  }

  // With white space, and free strings with escapes, as the grammar allows.
  std::string text(const json::value& value) {
    if (value.is_double()) {
      char buffer[400];
      return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value.as_double(), std::chars_format::fixed).ptr};
    }
    std::string out;
    if (value.is_array()) {
      for (const json::value& item : value.as_array()) out += (out.empty() ? "" : "," + space()) + text(item);
      return "[" + space() + out + "]";
    }
    if (value.is_object()) {
      for (const auto& [key, item] : value.as_object())
        out += (out.empty() ? "" : "," + space()) + json::serialize(key) + ":" + space() + text(item);
      return "{" + space() + out + "}";
    }
    return json::serialize(value);
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  std::string space() {
    static const char* const kSpaces[] = {"", "", " ", "\n", "\n    ", "\n\t"};
    return kSpaces[pick(6)];
  }
  std::string word(int min, int max) {
    static const std::vector<std::string> kCharacters = {"a", "b", "é", "€", "😀", "\"", "\\", "\n", " ", "/"};
    std::string out;
    for (int n = min + pick(max - min + 1); n > 0; --n) out += kCharacters[pick(10)];
    return out;
  }
  json::value object(int depth) {
    json::object properties;
    json::array required;
    for (const char* name : {"a", "ab", "name", "é\""})
      if (pick(3) != 0) {
        properties[name] = schema(depth - 1);
        if (pick(2) == 0) required.push_back(json::value(name));
      }
    json::value additional = false;
    if (pick(3) == 0) additional = schema(0);
    return {
        {"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", additional}};
  }

  std::mt19937_64& random_;
};

TEST(JsonSchema, RandomSchemasAcceptTheirInstancesHoweverTokenised) {
  std::mt19937_64 random(31);
  SchemaSource source(&random);
  for (int round = 0; round < 120; ++round) {
    const json::value schema = source.schema(3);
    const std::string text_of_schema = json::serialize(schema);
    const Grammar grammar = compile(GrammarKind::kJsonSchema, text_of_schema, json_vocabulary());
    for (int i = 0; i < 6; ++i) {
      const json::value instance = source.instance(schema);
      ASSERT_TRUE(SchemaValidator(schema).valid(instance)) << text_of_schema << "\n" << instance;
      const std::string text = source.text(instance);
      GrammarMatcher matcher(grammar);
      for (size_t at = 0; at < text.size();) {
        std::vector<TokenId> next{static_cast<uint8_t>(text[at])};
        for (TokenId token = kEndOfText + 1; token < json_vocabulary()->vocab_size(); ++token)
          if (text.substr(at).starts_with(json_vocabulary()->token_bytes(token))) next.push_back(token);
        const TokenId token = next[random() % next.size()];
        const auto words = mask_of(&matcher, *json_vocabulary());
        for (const TokenId one : next)
          ASSERT_TRUE(allowed(words, one)) << text_of_schema << "\n"
                                           << text << " at " << at << ": " << json_vocabulary()->token_bytes(one);
        ASSERT_TRUE(matcher.accept(token));
        at += json_vocabulary()->token_bytes(token).size();
      }
      ASSERT_TRUE(matcher.is_complete()) << text_of_schema << "\n" << text;
    }
  }
}

TEST(JsonSchema, RandomSchemasAllowOnlyValidTexts) {
  std::mt19937_64 random(32);
  SchemaSource source(&random);
  int finished = 0;
  for (int round = 0; round < 60; ++round)
    expect_walks_validate(json::serialize(source.schema(3)), 3, &random, &finished);
  EXPECT_GT(finished, 100);
}

// What clients of strict mode send: every property required, none additional, recursion through $defs.
TEST(JsonSchema, StrictModeSchemasOfOpenAiClientsCompileAndWalk) {
  const char*
      schemas[] = {R"({"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false})",
                   R"({"type":"object","properties":{"type":{"type":"string","description":"The type of the UI component","enum":["div","button","header","section","field","form"]},"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}},"attributes":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}},"additionalProperties":false,"required":["name","value"]}}},"required":["type","label","children","attributes"],"additionalProperties":false})",
                   R"({"type":"object","properties":{"linked_list":{"$ref":"#/$defs/linked_list_node"}},"$defs":{"linked_list_node":{"type":"object","properties":{"value":{"type":"number"},"next":{"anyOf":[{"$ref":"#/$defs/linked_list_node"},{"type":"null"}]}},"additionalProperties":false,"required":["next","value"]}},"additionalProperties":false,"required":["linked_list"]})", R"({"type":"object","properties":{"item":{"anyOf":[{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"number"}},"additionalProperties":false,"required":["name","age"]},{"type":"object","properties":{"number":{"type":"string"},"street":{"type":"string"},"city":{"type":"string"}},"additionalProperties":false,"required":["number","street","city"]}]}},"additionalProperties":false,"required":["item"]})", R"({"type":"object","properties":{"unit":{"type":["string","null"],"enum":["F","C",null]},"temperature":{"type":"number","minimum":-130,"maximum":130},"when":{"type":"string","format":"date-time"},"code":{"type":"string","pattern":"^@[a-zA-Z0-9_]+$"},"days":{"type":"array","items":{"type":"integer","minimum":1,"maximum":31},"minItems":1,"maxItems":7},"step":{"type":"integer","multipleOf":5}},"additionalProperties":false,"required":["unit","temperature","when","code","days","step"]})"};
  std::mt19937_64 random(41);
  int finished = 0;
  for (const char* schema : schemas) expect_walks_validate(schema, 12, &random, &finished);
  EXPECT_GT(finished, 10);
}

}  // namespace
}  // namespace helios::testing
