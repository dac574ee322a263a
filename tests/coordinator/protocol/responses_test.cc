// The Responses API without a server: input items to messages, what is refused, and the events and objects of a reply
// (R32, R33).
#include <gtest/gtest.h>

#include <random>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/responses_plan.h"
#include "coordinator/protocol/responses_response.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios {
namespace {

namespace json = boost::json;

constexpr OutputFormat kQwen{ReasoningFormat::kThinkTags, ToolFormat::kHermes};

std::string body(const std::string& members) { return R"({"input":"hi",)" + members + "}"; }

std::string messages(const std::string& members) {
  const Result<ResponsesRequest> request = parse_responses_request("{" + members + "}");
  if (!request) return request.error().param + ": " + request.error().message;
  if (request->conversation.malformed) return request->conversation.malformed->param;
  return request->conversation.messages;
}

TEST(ResponsesInput, ATextIsTheUsersAndInstructionsComeFirst) {
  EXPECT_EQ(messages(R"("input":"a\nb","instructions":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a\nb"}])");
}

TEST(ResponsesInput, MessagesOfAllForms) {
  EXPECT_EQ(messages(R"("input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":
              [{"type":"input_text","text":"x"},{"type":"input_text","text":"y"}]},{"type":"message","id":"msg_1",
              "role":"assistant","status":"completed",
              "content":[{"type":"output_text","text":"z","annotations":[]}]}])"),
            R"([{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"x"},)"
            R"({"type":"text","text":"y"}]},{"role":"assistant","content":[{"type":"text","text":"z"}]}])");
}

TEST(ResponsesInput, WhatOneAnswerSaidBecomesOneMessage) {
  EXPECT_EQ(
      messages(R"("input":[{"role":"user","content":"q"},
              {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],
               "encrypted_content":null},
              {"role":"assistant","content":"let me see"},
              {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1.0}"},
              {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
              {"type":"function_call_output","call_id":"c2","output":"two"},
              {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one"}]},
              {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
              {"role":"assistant","content":"a"},{"role":"assistant","content":"b"}])"),
      R"([{"role":"user","content":"q"},{"role":"assistant","reasoning":"hm","content":"let me see","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c2","name":"g","content":"two"},)"
      R"({"role":"tool","tool_call_id":"c1","name":"f","content":[{"type":"text","text":"one"}]},)"
      R"({"role":"assistant","reasoning":"short","content":"a"},{"role":"assistant","content":"b"}])");
}

TEST(ResponsesInput, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("model":"tiny")", "input"},
      {R"("input":[])", "input"},
      {R"("input":3)", "input"},
      {R"("input":["x"])", "input.0"},
      {R"("input":[{"type":"item_reference","id":"msg_1"}])", "input.0.type"},
      {R"("input":[{"type":"web_search_call"}])", "input.0.type"},
      {R"("input":[{"role":"tool","content":"x"}])", "input.0.role"},
      {R"("input":[{"role":"user"}])", "input.0.content"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])", "input.0.content.0.type"},
      {R"("input":[{"role":"user","content":[{"type":"input_text"}]}])", "input.0.content.0.text"},
      {R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])", "input.0.call_id"},
      {R"("input":[{"type":"function_call_output","call_id":"c","output":"x"}])", "input.0.call_id"},
      {R"("input":[{"type":"reasoning","encrypted_content":"gA"}])", "input.0.encrypted_content"},
  };
  for (const auto& [members, param] : cases) EXPECT_EQ(messages(members), param) << members;
}

TEST(ResponsesTools, BecomeChatsWithTheirOwnBytes) {
  const Result<ResponsesRequest> request = parse_responses_request(body(
      R"("tools":[ {"type":"function","name":"f","strict":true,"parameters":{"a":[1.0, "]},{"]}, "description":"d"} ,
         {"type":"function","name":"g","parameters":null}])"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->conversation.tools,
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"a":[1.0, "]},{"]}}},)"
            R"({"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(request->echoed.tools.find('\n'), std::string::npos);  // it goes into an event's one line
}

struct ResponsesPlan : testing::ProtocolFixture {
  ResponsesPlan() {
    output_format = kQwen;
    templates.loaded = *ChatTemplate::from_source(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}");
  }
  ResponsesEcho echoed;

  Result<GenerationPlan> plan(const std::string& text) {
    Result<ResponsesRequest> request = parse_responses_request(text);
    if (!request) return request.error();
    Result<GenerationPlan> made = plan_responses(
        *request, {*tokenizer, capabilities, defaults, model, limits, grammars, output_format}, templates);
    echoed = request->echoed;
    return made;
  }
  std::string refused(const std::string& members) {
    const Result<GenerationPlan> made = plan(body(members));
    return made ? "" : made.error().param;
  }
};

TEST_F(ResponsesPlan, APlainRequest) {
  const Result<GenerationPlan> made = plan(R"({"input":"hi","max_output_tokens":5,"temperature":0.5})");
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->sequences.size(), 1u);
  EXPECT_EQ(made->sequences[0].sampling.max_tokens, 5);
  EXPECT_FALSE(made->logprobs);
  EXPECT_EQ(echoed.temperature, "0.5");
  EXPECT_EQ(made->parsing.format, (OutputFormat{ReasoningFormat::kThinkTags, ToolFormat::kNone}))
      << "no tools, no calls";
  EXPECT_FALSE(made->parsing.in_reasoning);
  EXPECT_EQ(plan(R"({"input":"hi"})")->sequences[0].sampling.max_tokens, 62);  // the rest of the context
}

TEST_F(ResponsesPlan, ReasoningEffortAndArgumentsReachTheTemplate) {
  for (const char* members :
       {R"("reasoning":{"effort":"high"})", R"("chat_template_kwargs":{"enable_thinking":true})"}) {
    const Result<GenerationPlan> made =
        plan(body(members + std::string(R"(,"tools":[{"type":"function","name":"f"}])")));
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(made->parsing.in_reasoning);
    EXPECT_EQ(made->output.stops_after, "</think>");
    EXPECT_EQ(made->parsing.format, kQwen);
  }
}

TEST_F(ResponsesPlan, TheIncludeSwitchesEntriesOn) {
  const std::string include = R"("include":["message.output_text.logprobs"])";
  EXPECT_EQ(plan(body(include + R"(,"top_logprobs":3)"))->sequences[0].num_logprobs, 3);
  EXPECT_TRUE(plan(body(include))->logprobs);
  EXPECT_FALSE(plan(body(R"("top_logprobs":3,"include":["reasoning.encrypted_content"])"))->logprobs);
  EXPECT_EQ(refused(R"("top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(refused(R"("top_logprobs":-1)"), "top_logprobs");
  EXPECT_EQ(refused(R"("include":["logprobs"])"), "include");
  EXPECT_EQ(refused(R"("logprob_token_ids":[1])"), "logprob_token_ids");
  capabilities.max_logprobs = 0;
  EXPECT_EQ(refused(include), "include");  // R34
  EXPECT_EQ(refused(R"("top_logprobs":1)"), "top_logprobs");
}

TEST_F(ResponsesPlan, ConstraintsAndForcedCallsBecomeGrammars) {
  const std::string tools = R"(,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";
  EXPECT_EQ(plan(body(R"("tool_choice":"auto")" + tools))->sequences[0].grammar, nullptr);
  for (const std::string& members :
       {std::string(R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"integer"}}})"),
        R"("tool_choice":"required")" + tools, R"("tool_choice":{"type":"function","name":"f"})" + tools}) {
    const Result<GenerationPlan> made = plan(body(members));
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_NE(made->sequences[0].grammar, nullptr);
    const std::string field = refused(members + R"(,"reasoning":{"effort":"high"})");
    EXPECT_TRUE(field == "text.format" || field == "tool_choice") << "no token to begin behind: " << field;
    const std::shared_ptr<const Tokenizer> without =
        std::exchange(tokenizer, testing::load_tiny_tokenizer(false, true));
    const Result<GenerationPlan> behind = plan(body(members + R"(,"reasoning":{"effort":"high"})"));
    ASSERT_TRUE(behind.ok()) << behind.error().message;
    EXPECT_TRUE(behind->sequences[0].grammar && behind->sequences[0].thinking->in_reasoning);
    EXPECT_EQ(behind->parsing.format.reasoning, ReasoningFormat::kThinkTags);
    tokenizer = without;
  }
  // A call in the place of the constrained text.
  const Result<GenerationPlan> either = plan(body(R"("text":{"format":{"type":"json_object"}})" + tools));
  ASSERT_TRUE(either.ok()) << either.error().message;
  EXPECT_TRUE(either->sequences[0].grammar);
  EXPECT_EQ(either->parsing.format.tools, ToolFormat::kHermes);
}

TEST_F(ResponsesPlan, NothingIsIgnoredThatChangesTheResult) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("background":true)", "background"},
      {R"("prompt":{"id":"p"})", "prompt"},
      {R"("conversation":"c")", "conversation"},
      {R"("truncation":"sometimes")", "truncation"},
      {R"("max_tokens":5)", "max_tokens"},
      {R"("max_output_tokens":0)", "max_output_tokens"},
      {R"("max_output_tokens":64)", "input"},
      {R"("logprobs":true)", "logprobs"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("n":2)", "n"},
      {R"("text":{"format":{"type":"yaml"}})", "text.format"},
      {R"("text":{"format":{"type":"json_schema","name":"n"}})", "text.format"},
      {R"("text":{"format":{"type":"json_object"}},"tools":[{"type":"function","name":"f","parameters":{"not":{}}}])",
       "tools"},
      {R"("tools":[{"type":"web_search"}])", "tools.0.type"},
      {R"("tools":[{"type":"function"}])", "tools.0.name"},
      {R"("tools":[{"type":"function","name":"a\"b"}])", "tools.0.name"},
      {R"("tools":[{"type":"function","name":"f","parameters":{"type":"array"}}])", "tools.0.parameters.type"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"any")", "tool_choice"},
      {R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"})", "tool_choice"},
      {R"("reasoning":{"effort":"utmost"})", "reasoning.effort"},
      {R"("temperature":3)", "temperature"},
  };
  for (const auto& [members, param] : cases) EXPECT_EQ(refused(members), param) << members;
  for (const char* members : {R"("store":true,"metadata":{"a":"b"},"user":"u","service_tier":"auto")",
                              R"("truncation":"auto","parallel_tool_calls":false,"max_tool_calls":3)",
                              R"("tools":[],"tool_choice":"none","text":{"verbosity":"low"},"unknown":1)",
                              R"("text":{"format":{"type":"text"}},"background":false,"prompt":null)"}) {
    EXPECT_EQ(refused(members), "") << members;
  }
  output_format = {};
  EXPECT_EQ(refused(R"("tools":[{"type":"function","name":"f"}])"), "tools");  // the server has no parser for them
}

// --- replies ---

struct Reply {
  json::object response;
  std::vector<json::object> events;
};

struct ResponsesReply : testing::ProtocolFixture {
  // Each token one delta, as when it is released at once.
  Reply play(const std::vector<std::string>& tokens, bool stream, const OutputParsing& parsing, bool logprobs = true,
             const std::string& finish = "stop") {
    GenerationPlan plan;
    plan.stream = stream;
    plan.parsing = parsing;
    ResponsesFormat format(plan, {.id = "resp_1", .created = 1767225600, .model = "tiny", .fingerprint = "f"}, {},
                           *tokenizer);
    std::string events;
    if (stream) format.begin_stream(events);
    int64_t byte = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      OutputDelta delta{.text = tokens[i], .token_ids = {static_cast<TokenId>(i)}, .token_starts = {byte}};
      OutputEntry entry{.id = static_cast<TokenId>(i), .text = tokens[i], .bytes = tokens[i], .text_byte = byte};
      entry.logprob = -0.25f * static_cast<float>(i);
      entry.alternatives = {{static_cast<TokenId>('a'), "a", -1.5f}};
      if (logprobs) delta.entries.push_back(entry);
      byte += static_cast<int64_t>(tokens[i].size());
      if (i + 1 == tokens.size()) delta.finish = OutputFinish{finish, {}, {}};
      EXPECT_TRUE(format.take(0, delta, {}, events).ok());
    }
    const Usage usage{7, static_cast<int64_t>(tokens.size()), {}};
    if (!stream) {
      EXPECT_EQ(events, "");
      return {json::parse(format.reply(usage)).get_object(), {}};
    }
    format.end_stream(usage, events);
    return {{}, parse_events(events)};
  }

  static std::vector<json::object> parse_events(std::string_view text) {
    std::vector<json::object> events;
    while (!text.empty()) {
      const size_t end = text.find("\n\n"), line = text.find('\n');
      json::object event = json::parse(text.substr(line + 7, end - line - 7)).get_object();
      EXPECT_EQ(text.substr(0, line), "event: " + std::string(event.at("type").as_string()));
      EXPECT_EQ(event.at("sequence_number"), static_cast<int64_t>(events.size()));
      events.push_back(std::move(event));
      text.remove_prefix(end + 2);
    }
    return events;
  }
};

std::string types(const std::vector<json::object>& events) {
  std::string out;
  for (const json::object& event : events) {
    std::string type(event.at("type").as_string());
    out += type.substr(type.find('.') + 1) + " ";
  }
  return out;
}

std::vector<std::string> cut(std::string_view text, std::mt19937& random, size_t most) {
  std::vector<std::string> tokens;
  while (!text.empty()) {
    const size_t size = std::min(text.size(), 1 + random() % most);
    tokens.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return tokens;
}

TEST_F(ResponsesReply, APlainMessage) {
  const Reply reply = play({"Yes", "!"}, false, {kQwen});
  const json::object& message = reply.response.at("output").at(0).get_object();
  EXPECT_EQ(message.at("type"), "message");
  EXPECT_EQ(message.at("status"), "completed");
  const json::object& part = message.at("content").at(0).get_object();
  EXPECT_EQ(part.at("text"), "Yes!");
  EXPECT_EQ(
      json::serialize(part.at("logprobs").at(1)),
      R"({"token":"!","logprob":-2.5E-1,"bytes":[33],"top_logprobs":[{"token":"a","logprob":-1.5E0,"bytes":[97]}]})");
  EXPECT_EQ(reply.response.at("status"), "completed");
  EXPECT_EQ(json::serialize(reply.response.at("usage")),
            R"({"input_tokens":7,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":2,)"
            R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":9})");
  const json::object bare = play({"Yes"}, false, {kQwen}, false).response;
  EXPECT_EQ(json::serialize(bare.at("output").at(0).at("content").at(0).at("logprobs")), "[]");
}

TEST_F(ResponsesReply, TheEventsOfReasoningAMessageAndACall) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const Reply reply = play({"<think>", "\n", "Hm", ".", "\n</think>\n\n", "Let", " me", "\n", call}, true, {kQwen});
  EXPECT_EQ(types(reply.events),
            "created in_progress output_item.added content_part.added reasoning_text.delta reasoning_text.delta "
            "reasoning_text.done content_part.done output_item.done "
            "output_item.added content_part.added output_text.delta output_text.delta output_text.done "
            "content_part.done output_item.done output_item.added function_call_arguments.delta "
            "function_call_arguments.done output_item.done completed ");
  const json::object& completed = reply.events.back().at("response").get_object();
  ASSERT_EQ(completed.at("output").as_array().size(), 3u);
  EXPECT_EQ(completed.at("output").at(2).at("arguments"), "{\"a\": 1}");
  EXPECT_EQ(completed.at("output").at(0).at("content").at(0).at("text"), "Hm.");
  EXPECT_EQ(completed.at("usage").at("output_tokens_details").at("reasoning_tokens"), 4);
}

TEST_F(ResponsesReply, ALimitLeavesTheOpenItemIncomplete) {
  const json::object cut_off = play({"Yes", " and"}, false, {kQwen}, false, "length").response;
  EXPECT_EQ(cut_off.at("status"), "incomplete");
  EXPECT_EQ(cut_off.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(cut_off.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(types(play({"a"}, true, {kQwen}, false, "length").events).substr(0, 8), "created ");
  const json::object call =
      play({"<tool_call>{\"name\":\"f\",\"arguments\":{\"a"}, false, {kQwen}, false, "length").response;
  EXPECT_EQ(call.at("output").at(0).at("status"), "incomplete");
  const json::object empty = play({""}, false, {kQwen}, false).response;
  EXPECT_EQ(empty.at("output").at(0).at("content").at(0).at("text"), "");
}

TEST_F(ResponsesReply, OnlyTheFirstCallWithoutParallelCalls) {
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  EXPECT_EQ(play({call, call}, false, {kQwen}).response.at("output").as_array().size(), 2u);
  EXPECT_EQ(play({call, call}, false, {.format = kQwen, .parallel_tool_calls = false})
                .response.at("output")
                .as_array()
                .size(),
            1u);
}

TEST_F(ResponsesReply, AnErrorInTheStreamIsAnEventAndTheFailedResponse) {
  GenerationPlan plan;
  plan.stream = true;
  ResponsesFormat format(plan, {.id = "resp_1"}, {}, *tokenizer);
  std::string events;
  format.begin_stream(events);
  EXPECT_EQ(types(parse_events(events)), "created in_progress ") << "before any token";
  ASSERT_TRUE(format.take(0, {.text = "a", .token_ids = {1}}, {}, events).ok());
  format.fail_stream({Errc::kUnavailable, "a rank is lost", ""}, events);
  const std::vector<json::object> all = parse_events(events);
  EXPECT_EQ(types({all.end() - 2, all.end()}), "error failed ");
  EXPECT_EQ(all[all.size() - 2].at("message"), "a rank is lost");
  EXPECT_EQ(all.back().at("response").at("error").at("code"), "server_error");
  // A value that must not be reported.
  ResponsesFormat silent(plan, {.id = "resp_2"}, {}, *tokenizer);
  OutputDelta bad{.text = "a", .token_ids = {1}};
  bad.entries.push_back({.id = 1, .text = "a", .bytes = "a", .text_byte = 0, .logprob = NAN});
  EXPECT_EQ(silent.take(0, bad, {}, events).error().code, Errc::kInternal);
}

// R33: entries are those of tokens whose first byte is content, by the parser's ranges over the whole text; every list
// of them agrees, streamed and whole, however the text is cut into tokens.
TEST_F(ResponsesReply, EntriesAreThoseOfContentInEveryList) {
  const std::string text =
      "<think>\nWell <tool_call>\n</think>\n\n Le me.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x "
      "y\"}}\n"
      "</tool_call>\n Then <b>é</b> <tool_call> no\n";
  const OutputParsing parsing{kQwen};
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::vector<std::string> tokens = cut(text, random, 1 + random() % 9);
    std::vector<OutputPiece> pieces;
    OutputParser parser(parsing.format, false);
    parser.push(text, &pieces);
    parser.finish(&pieces);
    std::vector<std::string> expected;  // logprobs of the tokens of each message
    bool open = false;
    for (const OutputPiece& piece : pieces) {
      if (piece.kind != OutputPiece::Kind::kContent) {
        open = false;
        continue;
      }
      if (!open) expected.emplace_back();
      open = true;
      int64_t byte = 0;
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (byte >= piece.begin && byte < piece.end) expected.back() += std::to_string(i) + " ";
        byte += static_cast<int64_t>(tokens[i].size());
      }
    }
    const auto listed = [](const json::value& logprobs) {
      std::string out;
      for (const json::value& entry : logprobs.as_array()) {
        out += std::to_string(static_cast<int>(entry.at("logprob").to_number<double>() * -4 + 0.5)) + " ";
      }
      return out;
    };
    const Reply stream = play(tokens, true, parsing);
    std::vector<std::string> deltas, done, part_done, item_done, completed, whole;
    std::string texts;
    for (const json::object& event : stream.events) {
      const json::string& type = event.at("type").as_string();
      if (type == "response.content_part.added" && event.at("part").at("type") == "output_text") deltas.emplace_back();
      if (type == "response.output_text.delta") deltas.back() += listed(event.at("logprobs"));
      if (type == "response.output_text.done") done.push_back(listed(event.at("logprobs")));
      if (type == "response.content_part.done" && event.at("part").at("type") == "output_text") {
        part_done.push_back(listed(event.at("part").at("logprobs")));
      }
      if (type == "response.output_item.done" && event.at("item").at("type") == "message") {
        item_done.push_back(listed(event.at("item").at("content").at(0).at("logprobs")));
      }
    }
    const auto of_response = [&](const json::value& response, std::vector<std::string>* out) {
      for (const json::value& item : response.at("output").as_array()) {
        if (item.at("type") == "message") out->push_back(listed(item.at("content").at(0).at("logprobs")));
      }
    };
    of_response(stream.events.back().at("response"), &completed);
    of_response(play(tokens, false, parsing).response, &whole);
    ASSERT_EQ(expected.size(), 2u);
    for (const auto& list : {deltas, done, part_done, item_done, completed, whole}) ASSERT_EQ(list, expected);
  }
}

TEST(ContentEntries, WaitOnlyUntilTheirFirstByteIsDecided) {  // R32
  ContentEntries entries;
  OutputParser parser(kQwen, true);
  std::vector<OutputPiece> pieces;
  for (int64_t i = 0; i < 5000; ++i) {
    entries.push({{.id = 1, .text_byte = i * 3}, {.id = 2, .text_byte = -1}});
    parser.push("ab ", &pieces);
    entries.drop_before(parser.decided());
    ASSERT_LE(entries.held(), 2u);
  }
  entries.push({{.id = 5, .text_byte = 20000}, {.id = 6, .text_byte = 20001}, {.id = 7, .text_byte = 20002}});
  const std::vector<OutputEntry> taken = entries.take(20001, 20002);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].id, 6);
  EXPECT_EQ(entries.held(), 1u);
}

}  // namespace
}  // namespace helios
