// Fields to grammars: each form of a constraint admits what it says and nothing else, and what cannot be done is
// refused by name.
#include "coordinator/protocol/structured_output.h"

#include <gtest/gtest.h>

#include "coordinator/protocol/api_error.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

struct StructuredOutputs : ProtocolFixture {
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  Grammar grammar_of(const std::string& fields) {
    auto planned = plan(R"({"prompt":"a","n":2,)" + fields + "}");
    EXPECT_TRUE(planned.ok()) << fields << ": " << (planned.ok() ? "" : planned.error().message);
    if (!planned) return nullptr;
    EXPECT_EQ(planned->sequences[0].grammar, planned->sequences[1].grammar);
    return planned->sequences[0].grammar;
  }

  /// With the tiny tokenizer a text's bytes are its tokens.
  static bool admits(const Grammar& grammar, std::string_view text) {
    GrammarMatcher matcher(grammar);
    for (const char c : text)
      if (!matcher.accept(static_cast<uint8_t>(c))) return false;
    return matcher.is_complete() && matcher.accept(256);
  }

  void expect(const std::string& fields, const std::vector<std::string>& yes, const std::vector<std::string>& no) {
    const Grammar grammar = grammar_of(fields);
    ASSERT_NE(grammar, nullptr) << fields;
    for (const std::string& text : yes) EXPECT_TRUE(admits(grammar, text)) << fields << ": " << text;
    for (const std::string& text : no) EXPECT_FALSE(admits(grammar, text)) << fields << ": " << text;
  }

  void refuse(const std::string& fields, int status, const std::string& param, const std::string& mentions) {
    const auto planned = plan(R"({"prompt":"a",)" + fields + "}");
    ASSERT_FALSE(planned.ok()) << fields;
    const ApiError error = to_api_error(planned.error());
    EXPECT_EQ(error.status, status) << fields << ": " << error.message;
    EXPECT_EQ(error.param, param) << fields << ": " << error.message;
    EXPECT_NE(error.message.find(mentions), std::string::npos) << fields << ": " << error.message;
  }
};

const char* const kAge = R"({"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]})";

TEST_F(StructuredOutputs, EveryFormAdmitsItsTexts) {
  const std::vector<std::string> ages = {R"({"age":7})", R"({ "age": -12 })"}, others = {"7", R"({"age":1.5})", "{}"};
  const std::string age = kAge;
  expect(R"("response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":)" + age + "}}",
         ages, others);
  expect(R"("structured_outputs":{"json":)" + age + "}", ages, others);
  expect(R"("guided_json":)" + age, ages, others);
  expect(R"("guided_json":"{\"type\":\"integer\"}")", {"12"}, {"a", "{}"});
  expect(R"("response_format":{"type":"json_object"})", {"{}", R"({"a":[1,null]})"}, {"[]", "1"});
  expect(R"("structured_outputs":{"json_object":true})", {"{}"}, {"[]"});
  expect(R"("structured_outputs":{"regex":"[a-c]{2}x?"})", {"ab", "ccx"}, {"a", "abxx"});
  expect(R"("guided_regex":"é+")", {"é", "éé"}, {"e", ""});
  expect(R"("structured_outputs":{"choice":["yes","no"]})", {"yes", "no"}, {"y", "yesno"});
  expect(R"("guided_choice":["a\"b"])", {"a\"b"}, {"a"});
  expect(R"("structured_outputs":{"grammar":"root ::= \"a\" [0-9]+"})", {"a1", "a99"}, {"a", "1"});
  expect(R"("guided_grammar":"root ::= \"a\"")", {"a"}, {"b"});
  expect(R"("response_format":{"type":"text"},"guided_regex":"a")", {"a"}, {"b"});
}

TEST_F(StructuredOutputs, WhiteSpaceCanBeForbidden) {
  expect(R"("structured_outputs":{"json":{"type":"array"},"disable_any_whitespace":true})", {"[1,2]"}, {"[1, 2]"});
  expect(R"("structured_outputs":{"json":{"type":"array"},"disable_any_whitespace":false})", {"[1, 2]"}, {});
}

TEST_F(StructuredOutputs, NothingAskedIsNoGrammar) {
  EXPECT_EQ(grammar_of(R"("response_format":{"type":"text"},"structured_outputs":null,"guided_json":null)"), nullptr);
}

TEST_F(StructuredOutputs, EqualRequestsShareOneGrammar) {
  const std::string fields = R"("guided_regex":"[a-z]+")";
  EXPECT_EQ(grammar_of(fields), grammar_of(fields));
}

TEST_F(StructuredOutputs, WhatCannotBeDoneIsRefusedByName) {
  refuse(R"("response_format":{"type":"json_schema"})", 400, "response_format", "schema");
  refuse(R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})", 400, "response_format", "schema");
  refuse(R"("response_format":{"type":"xml"})", 400, "response_format", "json_schema");
  refuse(R"("response_format":{})", 400, "response_format", "json_schema");
  refuse(R"("response_format":{"type":7})", 400, "response_format.type", "string");
  refuse(R"("response_format":{"type":"structural_tag"})", 501, "response_format", "structural_tag");
  refuse(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}})", 400, "response_format",
         "not");
  refuse(R"("guided_json":{"type":"array","uniqueItems":true})", 400, "guided_json", "uniqueItems");
  refuse(R"("guided_json":"{")", 400, "guided_json", "JSON");
  refuse(R"("guided_json":7)", 400, "guided_json", "schema");
  refuse(R"("guided_regex":"(a)\\1")", 400, "guided_regex", "back");
  refuse(R"("guided_grammar":"start: \"a\"")", 400, "guided_grammar", "line 1");
  refuse(R"("guided_choice":[])", 400, "guided_choice", "empty");
  refuse(R"("structured_outputs":{})", 400, "structured_outputs", "exactly one");
  refuse(R"("structured_outputs":{"json_object":false})", 400, "structured_outputs", "exactly one");
  refuse(R"("structured_outputs":{"regex":"a","json":{}})", 400, "structured_outputs", "exactly one");
  refuse(R"("structured_outputs":{"structural_tag":"{}"})", 501, "structured_outputs", "structural_tag");
  refuse(R"("structured_outputs":{"structural_tag":"{}","regex":"a"})", 400, "structured_outputs", "got 2");
  refuse(R"("structured_outputs":{"regex":"a","whitespace_pattern":"x"})", 400, "structured_outputs.whitespace_pattern",
         "not supported");
  refuse(R"("structured_outputs":{"regex":7})", 400, "structured_outputs.regex", "string");
  refuse(R"("guided_regex":"a","guided_choice":["a"])", 400, "guided_choice", "both");
  refuse(R"("guided_regex":"[^\\s\\S]")", 400, "guided_regex", "no text");
}

TEST_F(StructuredOutputs, AModelWithoutEosCannotEndAText) {
  defaults.eos_ids.clear();
  refuse(R"("guided_regex":"a")", 400, "guided_regex", "EOS");
}

// The tools that must be called, as each family writes calls.
struct ToolGrammars : StructuredOutputs {
  Grammar compiled(bool parallel, ToolFormat format) {
    const std::vector<ToolSignature> tools = {
        {"add",
         R"({"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"type":"integer"}}})"},
        {"now", R"({"type":"object","properties":{}})"},
        {"ping", ""}};
    auto made = compile_structured_output({"tool_choice", tool_call_grammar(tools, parallel, format)}, grammars);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? *made : nullptr;
  }
};

TEST_F(ToolGrammars, HermesCallsAreTaggedLines) {
  const std::string add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const Grammar one = compiled(false, ToolFormat::kHermes), many = compiled(true, ToolFormat::kHermes);
  EXPECT_TRUE(admits(one, add));
  EXPECT_TRUE(admits(one, now));
  EXPECT_FALSE(admits(one, add + "\n" + now));
  EXPECT_TRUE(admits(many, add + "\n" + now + "\n" + add));
  EXPECT_FALSE(admits(many, "Sure.\n" + add));
  EXPECT_FALSE(admits(many, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": 1}}\n</tool_call>"));
  EXPECT_FALSE(admits(many, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>"));
  EXPECT_FALSE(admits(many, "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"));
}

TEST_F(ToolGrammars, LlamaAndMistralCallsAreJson) {
  const Grammar llama = compiled(true, ToolFormat::kLlama3Json), one = compiled(false, ToolFormat::kLlama3Json);
  EXPECT_TRUE(admits(llama, R"({"name": "add", "parameters": {"a":2}}; {"name": "ping", "parameters": {}})"));
  EXPECT_FALSE(admits(one, R"({"name": "add", "parameters": {"a":2}}; {"name": "ping", "parameters": {}})"));
  const Grammar mistral = compiled(true, ToolFormat::kMistral);
  EXPECT_TRUE(
      admits(mistral, R"([TOOL_CALLS][{"name": "add", "arguments": {"a":2}}, {"name": "ping", "arguments": {}}])"));
  EXPECT_FALSE(admits(mistral, "[TOOL_CALLS][]"));
}

TEST_F(ToolGrammars, ANamedFunctionIsCalledOnceAndARequiredOneAsOftenAsIsParallel) {
  using Kind = ToolChoice::Kind;
  const std::vector<ToolSignature> tools = {{"now", ""}, {"ping", ""}};
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string ping = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
  const auto forced = [&](const ToolChoice& choice, bool parallel) {
    const auto calls = forced_calls(choice, tools, parallel, ToolFormat::kHermes);
    EXPECT_TRUE(calls);
    return calls ? compile_structured_output(*calls, grammars).value() : nullptr;
  };
  const Grammar named = forced({Kind::kNamed, "now"}, true);
  EXPECT_TRUE(admits(named, now));
  EXPECT_FALSE(admits(named, ping));
  EXPECT_FALSE(admits(named, now + "\n" + now));
  EXPECT_TRUE(admits(forced({Kind::kRequired, ""}, true), now + "\n" + ping));
  EXPECT_FALSE(admits(forced({Kind::kRequired, ""}, false), now + "\n" + ping));
  EXPECT_FALSE(forced_calls({Kind::kAuto, ""}, tools, true, ToolFormat::kHermes));
  EXPECT_FALSE(forced_calls({Kind::kNamed, "gone"}, tools, true, ToolFormat::kHermes));
  EXPECT_FALSE(forced_calls({Kind::kRequired, ""}, tools, true, ToolFormat::kNone));
}

// A call whose arguments are something else would be text, not a call.
TEST_F(ToolGrammars, ArgumentsAreAnObjectWhateverTheSchemaLeavesOpen) {
  const auto compiled = [&](const char* schema) {
    const std::vector<ToolSignature> tools = {{"f", schema}};
    return compile_structured_output({"tools", tool_call_grammar(tools, false, ToolFormat::kHermes)}, grammars);
  };
  const auto call = [](const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  for (const char* schema : {R"({"properties":{"a":{"type":"integer"}}})", R"({"type":["object","null"]})",
                             R"({"anyOf":[{"type":"object","properties":{"a":{"type":"integer"}}},{"type":"string"}]})",
                             R"({"$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":{"type":"integer"}}}}})"}) {
    const auto grammar = compiled(schema);
    ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.error().message;
    EXPECT_TRUE(admits(*grammar, call(R"({"a": 1})"))) << schema;
    for (const char* other : {"\"a\"", "5", "null", "[1]"})
      EXPECT_FALSE(admits(*grammar, call(other))) << schema << other;
  }
  EXPECT_FALSE(compiled(R"({"enum":["x",5]})").ok());
}

TEST_F(ToolGrammars, ABadSchemaNamesItsTool) {
  const std::vector<ToolSignature> tools = {{"f", R"({"type":"object","properties":{"a":{"not":{}}}})"}};
  auto made = compile_structured_output({"tools", tool_call_grammar(tools, true, ToolFormat::kHermes)}, grammars);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("f"), std::string::npos);
  EXPECT_NE(made.error().message.find("not"), std::string::npos) << made.error().message;
  EXPECT_EQ(made.error().param, "tools");
}

}  // namespace
}  // namespace helios::testing
