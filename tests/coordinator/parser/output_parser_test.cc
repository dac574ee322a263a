// Reasoning, content and tool calls out of released text: examples of each family, then random texts in random cuts
// against the definition (R31, R32, R33).
#include "coordinator/parser/output_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/coordinator/parser/reference_parser.h"

namespace helios {
namespace {

using Kind = OutputPiece::Kind;

constexpr OutputFormat kQwen{ReasoningFormat::kThinkTags, ToolFormat::kHermes};
constexpr OutputFormat kLlama{ReasoningFormat::kNone, ToolFormat::kLlama3Json};
constexpr OutputFormat kMistral{ReasoningFormat::kNone, ToolFormat::kMistral};

// Neighbouring pieces of one run of text become one, since how often a run is cut is not part of its meaning.
std::vector<OutputPiece> joined(const std::vector<OutputPiece>& pieces) {
  std::vector<OutputPiece> out;
  for (const OutputPiece& piece : pieces) {
    const bool text = piece.kind != Kind::kToolCall && piece.kind != Kind::kToolCallEnd;
    if (text && !out.empty() && out.back().kind == piece.kind && out.back().end == piece.begin &&
        out.back().tool_index == piece.tool_index) {
      out.back().text += piece.text;
      out.back().end = piece.end;
    } else {
      out.push_back(piece);
    }
  }
  return out;
}

// One letter a piece: R, C, T(name), A(arguments), E.
std::string shown(const std::vector<OutputPiece>& pieces, bool ranges = false) {
  std::string out;
  for (const OutputPiece& piece : joined(pieces)) {
    out += "RCTAE"[static_cast<int>(piece.kind)];
    if (piece.tool_index >= 0) out += std::to_string(piece.tool_index);
    if (ranges) out += "@" + std::to_string(piece.begin) + "-" + std::to_string(piece.end);
    out += "(" + piece.text + ") ";
  }
  return out;
}

std::vector<OutputPiece> parse(const OutputFormat& format, std::string_view text, bool in_reasoning = false,
                               size_t step = 1) {
  OutputParser parser(format, in_reasoning);
  std::vector<OutputPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) parser.push(text.substr(at, step), &pieces);
  parser.finish(&pieces);
  return pieces;
}

std::string parsed(const OutputFormat& format, std::string_view text, bool in_reasoning = false) {
  const std::string byte_by_byte = shown(parse(format, text, in_reasoning));
  EXPECT_EQ(shown(parse(format, text, in_reasoning, text.size())), byte_by_byte);
  return byte_by_byte;
}

TEST(OutputParser, ReasoningAndContentWithoutTheirDelimitersAndTheWhitespaceAround) {  // R33
  EXPECT_EQ(parsed(kQwen, "<think>\nLet me see.\n</think>\n\nYes!\n"), "R(Let me see.) C(Yes!\n) ");
  EXPECT_EQ(parsed(kQwen, "\n<think>\n\n</think>\n\nYes"), "C(Yes) ");
  EXPECT_EQ(parsed(kQwen, "Yes"), "C(Yes) ");
  EXPECT_EQ(parsed(kQwen, " <thin"), "C( <thin) ");
  EXPECT_EQ(parsed(kQwen, "  see <think>a</think>"), "C(  see <think>a</think>) ");  // not at the start: text
}

TEST(OutputParser, ARequestThatStartsInsideReasoning) {
  EXPECT_EQ(parsed(kQwen, "Hm.</think>Yes", true), "R(Hm.) C(Yes) ");
  EXPECT_EQ(parsed(kQwen, "\n<think>\nHm.\n</think>\nYes", true), "R(Hm.) C(Yes) ");  // it repeats the delimiter
  EXPECT_EQ(parsed(kQwen, "Hm. a < b </thin ", true), "R(Hm. a < b </thin ) ");
  EXPECT_EQ(parsed(kQwen, "</think>\n\nYes", true), "C(Yes) ");
}

TEST(OutputParser, WithoutParsersTextIsContent) {
  const std::string text = "<think>a</think> <tool_call>{\"name\":\"f\",\"arguments\":{}}";
  EXPECT_EQ(parsed({}, text), "C(" + text + ") ");
}

TEST(OutputParser, HermesCalls) {
  EXPECT_EQ(parsed(kQwen,
                   "<think>t</think>\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n"
                   "</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"g\", \"id\": 7}\n</tool_call>\n"),
            "R(t) C(I look.) T0(f) A0({\"a\": [1]}) E0() T1(g) A1({}) E1() ");
  EXPECT_EQ(parsed(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call> done"),
            "T0(f) A0({\"a\":\"</tool_call>\"}) E0() C(done) ");
}

TEST(OutputParser, WhatIsNoCallStaysContent) {
  for (const char* text :
       {"a\n<tool_call>\nsoon", "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}",
        "x <tool_call>\n{\"name\": \"f\", ", "</tool_call>", "<tool_call", "<tool_call>[]"}) {
    EXPECT_EQ(parsed(kQwen, text), std::string("C(") + text + ") ");
  }
  EXPECT_EQ(parsed(kQwen, "<tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
            "C(<tool_call>) T0(f) A0({}) E0() ");
}

TEST(OutputParser, ArgumentsThatAreNoJsonArePassedOn) {
  EXPECT_EQ(parsed(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": oops}}\n</tool_call>\nx"),
            "T0(f) A0({\"a\": oops}}) E0() C(x) ");
  EXPECT_EQ(parsed(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": </tool_call>"), "T0(f) A0({\"a\": ) E0() ");
  EXPECT_EQ(parsed(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"Par"), "T0(f) A0({\"a\": \"Par) ");
  EXPECT_EQ(parsed(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{}}}\n</tool_call>"), "T0(f) A0({}) E0() C(}) ");
}

TEST(OutputParser, Llama3Calls) {
  EXPECT_EQ(parsed(kLlama, "{\"name\": \"f\", \"parameters\": {\"q\": \"x\"}}"), "T0(f) A0({\"q\": \"x\"}) E0() ");
  EXPECT_EQ(parsed(kLlama, "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}"),
            "T0(f) A0({}) E0() T1(g) A1({}) E1() ");
  EXPECT_EQ(parsed(kLlama, "{\"answer\": 42}"), "C({\"answer\": 42}) ");
  EXPECT_EQ(parsed(kLlama, "It is {\"name\": \"f\", \"parameters\": {}}"),
            "C(It is {\"name\": \"f\", \"parameters\": {}}) ");
  EXPECT_EQ(parsed(kLlama, "<|python_tag|>search.call(query=\"x\")"), "C(<|python_tag|>search.call(query=\"x\")) ");
}

TEST(OutputParser, MistralCalls) {
  EXPECT_EQ(parsed(kMistral,
                   "Sure.[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, "
                   "{\"name\": \"g\", \"arguments\": {}}] "),
            "C(Sure.) T0(f) A0({\"a\": 1}) E0() T1(g) A1({}) E1() ");
  EXPECT_EQ(parsed(kMistral, "Ok[TOOL_CALLS]get-it[ARGS]{\"a\": {}}[TOOL_CALLS]g[CALL_ID]x9[ARGS] {}\nbye"),
            "C(Ok) T0(get-it) A0({\"a\": {}}) E0() T1(g) A1({}) E1() C(bye) ");
  EXPECT_EQ(parsed(kMistral, "[TOOL_CALLS]f{\"name\": \"x\", \"arguments\": 1}"),
            "T0(f) A0({\"name\": \"x\", \"arguments\": 1}) E0() ");
  EXPECT_EQ(parsed(kMistral, "[TOOL_CALLS]f[ARGS]{\"a\": oops} x"), "T0(f) A0({\"a\": oops} x) ");
  for (const char* text : {"[TOOL_CALLS]f[ARGS", "[TOOL_CALLS]f [ARGS]{}", "[TOOL_CALLS]f", "[TOOL_CALLS]f[CALL_ID]{",
                           "[TOOL_CALLS]f[ARGS][CALL_ID]x{}"}) {
    if (std::string_view(text).ends_with("{")) continue;
    EXPECT_EQ(parsed(kMistral, text), std::string("C(") + text + ") ");
  }
  EXPECT_EQ(parsed(kMistral, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}"),
            "C([TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}) ");
}

TEST(OutputParser, PiecesSayWhichBytesTheyCameFrom) {  // R33
  const std::string text =
      "<think>\nh\n</think>\n\nok <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>!";
  EXPECT_EQ(shown(parse(kQwen, text), true), "R@8-9(h) C@20-22(ok) T0@23-62(f) A0@62-64({}) E0@64-64() C@78-79(!) ");
}

// A call's arguments, reasoning and content come out while the model still writes them.
TEST(OutputParser, StreamsAndHoldsLittle) {  // R31, R32
  for (const auto& [format, before, in_reasoning] :
       {std::tuple(kQwen, "", true), std::tuple(kQwen, "x", false), std::tuple(kLlama, "x", false),
        std::tuple(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", false),
        std::tuple(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{!", false),
        std::tuple(kQwen, "<tool_call>{\"name\":\"f\",\"arguments\":{},\"a\":\"", false)}) {
    OutputParser parser(format, in_reasoning);
    std::vector<OutputPiece> pieces;
    parser.push(before, &pieces);
    auto pushed = static_cast<int64_t>(std::string_view(before).size());
    for (int i = 0; i < 20000; ++i) {
      parser.push(i % 3 ? "ab<" : " </t", &pieces);
      pushed += i % 3 ? 3 : 4;
      ASSERT_LE(pushed - parser.decided(), 16);
    }
  }
}

TEST(OutputParser, HeldHeadsAndWhitespaceAreBounded) {  // R31
  for (const char* before : {"<tool_call>", "<tool_call>{\"", "<tool_call>{\"arguments\":{\"a\":\"", "x"}) {
    OutputParser parser(kQwen, false);
    std::vector<OutputPiece> pieces;
    parser.push(before, &pieces);
    auto pushed = static_cast<int64_t>(std::string_view(before).size());
    for (int i = 0; i < 40000; ++i) {
      parser.push(" ", &pieces);
      ++pushed;
      ASSERT_LE(pushed - parser.decided(), kMaxCallHeadBytes + kMaxStrippedBytes + 16);
    }
    parser.finish(&pieces);
    ASSERT_EQ(joined(pieces).size(), 1u);
    EXPECT_EQ(joined(pieces)[0].text, before + std::string(40000, ' '));
  }
}

// --- random texts ---

const std::vector<std::string> kFragments = {"<think>",
                                             "</think>",
                                             "<tool_call>",
                                             "</tool_call>",
                                             "[TOOL_CALLS]",
                                             "<|python_tag|>",
                                             R"({"name": "f", "arguments": {"a": 1}})",
                                             R"({"name":"g","parameters":{}})",
                                             R"({"arguments": {"x":[1,-2.5e3,"}\"\u00e9",null]}, "name": "h"})",
                                             R"({"name":"i","arguments":{"a":tru}})",
                                             R"({"id":[true,{}],"name":"j","arguments":{"b":{"c":[[]]}},"k":0})",
                                             R"("name":)",
                                             R"("arguments":{)",
                                             "[ARGS]",
                                             "[CALL_ID]",
                                             "[TOOL_CALLS]f[ARGS]{\"a\":[]}",
                                             "[",
                                             "]",
                                             ",",
                                             ";",
                                             " ",
                                             "\n",
                                             "{",
                                             "}",
                                             "\"",
                                             "é",
                                             "x",
                                             "<",
                                             "</",
                                             "<tool",
                                             "[TOOL",
                                             ":",
                                             "1",
                                             "-",
                                             "0.5E-1",
                                             "true",
                                             "\\",
                                             "\n\n",
                                             std::string(255, ' '),
                                             std::string(257, '\n')};

std::string random_text(std::mt19937& random) {
  const auto below = [&](size_t n) { return random() % n; };
  std::string text;
  if (below(4)) {
    text = below(3) == 0 ? "<think>\nhm\n</think>\n\n" : "";
    const std::string call = kFragments[6 + below(5)];
    const std::string next = kFragments[6 + below(5)];
    const std::string forms[] = {"<tool_call>\n" + call + "\n</tool_call>\n<tool_call>" + next + "</tool_call>",
                                 "ok [TOOL_CALLS] [" + call + ", " + next + "]", "<|python_tag|>" + call + "; " + next,
                                 call + ";" + next, "hi " + call};
    text += forms[below(5)];
  }
  for (size_t i = below(3) ? below(2) : below(8); i > 0; --i)
    text.insert(below(text.size() + 1), kFragments[below(kFragments.size())]);
  if (below(6) == 0) text.erase(below(text.size() + 1));
  for (size_t i = below(2) ? 0 : below(3); i > 0 && !text.empty(); --i) text.erase(below(text.size()), 1 + below(3));
  return text;
}

TEST(OutputParser, AnyCutOfAnyTextGivesThePiecesOfTheDefinition) {  // R31, R33
  std::mt19937 random(7);
  int calls = 0, reasoning = 0;
  for (int round = 0; round < 12000; ++round) {
    const std::string text = random_text(random);
    const OutputFormat format{random() % 2 ? ReasoningFormat::kThinkTags : ReasoningFormat::kNone,
                              static_cast<ToolFormat>(random() % 4)};
    const bool in_reasoning = random() % 3 == 0;
    SCOPED_TRACE(::testing::PrintToString(
        std::make_tuple(text, static_cast<int>(format.reasoning), static_cast<int>(format.tools), in_reasoning)));
    OutputParser parser(format, in_reasoning);
    std::vector<OutputPiece> pieces;
    int64_t decided = 0;
    size_t handed_out = 0;
    const size_t most = 1 + random() % 12;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min(text.size() - at, 1 + random() % most);
      parser.push(std::string_view(text).substr(at, size), &pieces);
      at += size;
      for (; handed_out < pieces.size(); ++handed_out) {
        if (pieces[handed_out].kind == Kind::kContent) {
          ASSERT_GE(pieces[handed_out].begin, decided);
        }
      }
      ASSERT_GE(parser.decided(), decided);
      ASSERT_LE(parser.decided(), static_cast<int64_t>(at));
      decided = parser.decided();
    }
    parser.finish(&pieces);
    const testing::ReferenceParser reference(format, in_reasoning, text);
    ASSERT_EQ(shown(pieces, true), shown(reference.pieces(), true));
    int64_t last = 0;
    for (const OutputPiece& piece : pieces) {
      calls += piece.kind == Kind::kToolCall;
      reasoning += piece.kind == Kind::kReasoning;
      if (piece.kind == Kind::kToolCall || piece.kind == Kind::kToolCallEnd) continue;
      ASSERT_EQ(piece.text, text.substr(piece.begin, piece.end - piece.begin));
      if (piece.kind != Kind::kContent) continue;
      ASSERT_LE(last, piece.begin);
      last = piece.end;
    }
  }
  EXPECT_GT(calls, 1000);
  EXPECT_GT(reasoning, 1500);
}

// --- names and models ---

TEST(OutputFormat, ByNameOrByTheModelsTemplate) {
  const OutputFormat qwen = format_of_template("{{ '<think>' }}..</think>..<tool_call>\n{\"name\": ");
  EXPECT_EQ(qwen, kQwen);
  EXPECT_EQ(format_of_template("<tool_call>\n<function=example>").tools, ToolFormat::kNone);
  EXPECT_EQ(format_of_template("{{- \"<|python_tag|>\" }}"), kLlama);
  EXPECT_EQ(format_of_template("{{ \"[TOOL_CALLS] [\" }}"), kMistral);
  EXPECT_EQ(format_of_template("{{ messages[0].content }}"), OutputFormat{});
  EXPECT_EQ(*tool_format("auto", qwen), ToolFormat::kHermes);
  EXPECT_EQ(*tool_format("none", qwen), ToolFormat::kNone);
  EXPECT_EQ(*reasoning_format("deepseek_r1", {}), ReasoningFormat::kThinkTags);
  EXPECT_EQ(tool_format("hermes2", qwen).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(reasoning_format("", qwen).error().code, Errc::kInvalidArgument);
}

TEST(OutputFormat, WhetherAPromptEndsInsideReasoning) {
  constexpr auto kThink = ReasoningFormat::kThinkTags;
  EXPECT_TRUE(starts_in_reasoning(kThink, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(starts_in_reasoning(kThink, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(starts_in_reasoning(kThink, "<|im_start|>user\n<think>a<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kNone, "<think>"));
  EXPECT_TRUE(starts_in_reasoning(kThink, "..<think>\nSo far", "<think>\nSo far"));
  EXPECT_FALSE(starts_in_reasoning(kThink, "..", "<think>a</think>b"));

  EXPECT_TRUE(may_reason(kThink, "<|im_start|>user\n</think><|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(may_reason(kThink, "<|im_start|>assistant\n<think>\n")) << "it has begun";
  EXPECT_FALSE(may_reason(kThink, "<|im_start|>assistant\n<think>\n\n</think>\n\n")) << "it is over";
  EXPECT_FALSE(may_reason(ReasoningFormat::kNone, "a"));
  EXPECT_TRUE(may_reason(kThink, ""));
}

}  // namespace
}  // namespace helios
