// Chat replies told apart: reasoning, content and tool calls, streamed and not.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/chat_response.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

namespace json = boost::json;

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"g"}}])";
const std::string kThought = "<think>\nhm, é\n</think>\n\n";
const std::string kCalls =
    "Look:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
    "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>";

struct ChatParsing : ProtocolFixture {
  ChatParsing() { output_format = {ReasoningFormat::kThinkTags, ToolFormat::kHermes}; }

  Result<GenerationPlan> try_with(const std::string& members) const {
    return chat_plan(R"({"messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}");
  }
  GenerationPlan with(const std::string& members) const {
    auto result = try_with(members);
    EXPECT_TRUE(result) << members << ": " << (result ? "" : result.error().message);
    return result ? std::move(*result) : GenerationPlan{};
  }
  void expect_refused(const std::string& members, int status, const char* param, const char* mentions) const {
    const auto result = try_with(members);
    ASSERT_FALSE(result) << members;
    const ApiError error = to_api_error(result.error());
    EXPECT_EQ(error.status, status) << members << ": " << error.message;
    EXPECT_EQ(error.param, param) << members << ": " << error.message;
    EXPECT_NE(error.message.find(mentions), std::string::npos) << members << ": " << error.message;
  }
  /// Feeds the text a token a byte, as the output room would release it, and then an EOS.
  std::string events_or_reply(const GenerationPlan& plan, const std::string& text, const char* reason = "stop") const {
    ChatFormat format(plan, {.id = "chatcmpl-1", .created = 1, .model = "m", .fingerprint = "f"}, *tokenizer);
    SequenceOutput output(*tokenizer, plan.output, plan.prompts[0].ids);
    std::string events;
    for (size_t i = 0; i <= text.size(); ++i) {
      TokenEvent event;
      const bool end = i == text.size();
      event.token = end ? 256 : static_cast<unsigned char>(text[i]);
      if (plan.logprobs) event.logprobs = PositionLogprobs{-1.0f, {}};
      if (end) event.finish = std::string(reason) == "stop" ? FinishCode::kEos : FinishCode::kTokenLimit;
      const OutputDelta delta = output.push(event);
      const Usage usage{6, output.num_generated()};
      EXPECT_TRUE(format.take(0, delta, {.usage = usage, .last = true}, events));
      if (delta.finish) break;
    }
    const Usage usage{6, output.num_generated()};
    if (!plan.stream) return format.reply(usage);
    format.end_stream(usage, events);
    return events;
  }
  json::value reply(const std::string& members, const std::string& text, const char* reason = "stop") const {
    return json::parse(events_or_reply(with(members), text, reason));
  }
  /// The message that a client puts together from the stream, its finish reason and its number of entries.
  json::object streamed(const std::string& members, const std::string& text, const char* reason = "stop") const {
    const std::string all =
        events_or_reply(with(members + (members.empty() ? "" : ",") + R"("stream":true)"), text, reason);
    json::object joined{{"content", ""}, {"reasoning", ""}, {"tool_calls", json::array()}, {"entries", 0}};
    for (size_t at = 0; (at = all.find("data: {", at)) != std::string::npos; ++at) {
      const json::value chunk = json::parse(all.substr(at + 6, all.find("\n\n", at) - at - 6));
      if (chunk.at("choices").as_array().empty()) continue;
      const json::object& choice = chunk.at("choices").at(0).as_object();
      const json::object& delta = choice.at("delta").as_object();
      for (const char* name : {"content", "reasoning"}) {
        if (delta.contains(name)) joined[name].as_string() += delta.at(name).as_string();
      }
      if (delta.contains("tool_calls")) {
        for (const json::value& part : delta.at("tool_calls").as_array()) {
          json::array& calls = joined["tool_calls"].as_array();
          const auto index = static_cast<size_t>(part.at("index").as_int64());
          if (part.as_object().contains("id")) {
            EXPECT_EQ(index, calls.size()) << "calls begin in order";
            EXPECT_EQ(part.at("type").as_string(), "function");
            calls.push_back(json::object{{"name", part.at("function").at("name")}, {"arguments", ""}});
          }
          calls.at(index).at("arguments").as_string() += part.at("function").at("arguments").as_string();
        }
      }
      if (!choice.at("logprobs").is_null()) {
        joined["entries"] =
            joined["entries"].as_int64() + static_cast<int64_t>(choice.at("logprobs").at("content").as_array().size());
      }
      joined["finish_reason"] = choice.at("finish_reason");
    }
    return joined;
  }
};

TEST_F(ChatParsing, ReasoningAndCallsAreNoContent) {
  const json::value whole = reply(kTools, kThought + kCalls);
  const json::value& choice = whole.at("choices").at(0);
  const json::object& message = choice.at("message").as_object();
  EXPECT_EQ(message.at("reasoning").as_string(), "hm, é");
  EXPECT_EQ(message.at("content").as_string(), "Look:");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_TRUE(calls[0].at("id").as_string().starts_with("chatcmpl-tool-"));
  EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
  EXPECT_EQ(calls[0].at("type").as_string(), "function");
  EXPECT_EQ(json::serialize(calls[0].at("function")), R"({"name":"f","arguments":"{\"a\": 1}"})");
  EXPECT_EQ(json::serialize(calls[1].at("function")), R"({"name":"g","arguments":"{}"})");
  // "\nhm, é\n": one token a byte, between the delimiters.
  EXPECT_EQ(whole.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 8);
}

TEST_F(ChatParsing, AStreamSaysTheSame) {
  for (const std::string& text :
       {kThought + kCalls, kThought + "Yes.", std::string("Yes."), kCalls, std::string("<think>never closed"),
        std::string("a <tool_call> of the wild"), std::string("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": ")}) {
    for (const char* reason : {"stop", "length"}) {
      const std::string members = std::string(kTools) + R"(,"logprobs":true)";
      const json::value whole = reply(members, text, reason);
      const json::object joined = streamed(members, text, reason);
      const json::value& choice = whole.at("choices").at(0);
      const json::object& message = choice.at("message").as_object();
      EXPECT_EQ(joined.at("content").as_string(),
                message.at("content").is_null() ? "" : message.at("content").as_string());
      EXPECT_EQ(joined.at("reasoning").as_string(),
                message.at("reasoning").is_null() ? "" : message.at("reasoning").as_string());
      EXPECT_EQ(joined.at("finish_reason"), choice.at("finish_reason")) << text;
      EXPECT_EQ(joined.at("entries").as_int64(),
                static_cast<int64_t>(choice.at("logprobs").at("content").as_array().size()));
      const size_t num_calls = message.contains("tool_calls") ? message.at("tool_calls").as_array().size() : 0;
      ASSERT_EQ(joined.at("tool_calls").as_array().size(), num_calls) << text;
      for (size_t i = 0; i < num_calls; ++i) {
        EXPECT_EQ(joined.at("tool_calls").at(i), message.at("tool_calls").at(i).at("function")) << text;
      }
    }
  }
}

TEST_F(ChatParsing, NullIsTheContentBesideCallsOrReasoningAlone) {
  EXPECT_TRUE(reply(kTools, kCalls.substr(6)).at("choices").at(0).at("message").at("content").is_null());
  EXPECT_TRUE(reply("", "<think>x").at("choices").at(0).at("message").at("content").is_null());
  EXPECT_EQ(reply("", "").at("choices").at(0).at("message").at("content").as_string(), "");
  EXPECT_EQ(reply("", "").at("choices").at(0).at("finish_reason").as_string(), "stop");
}

TEST_F(ChatParsing, OneCallIsKeptWhereTheClientWantsOne) {
  const std::string members = std::string(kTools) + R"(,"parallel_tool_calls":false)";
  const json::value whole = reply(members, kCalls);
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("tool_calls").as_array().size(), 1u);
  EXPECT_EQ(streamed(members, kCalls).at("tool_calls").as_array().size(), 1u);
}

TEST_F(ChatParsing, WithoutToolsOrWithNoneTheTextOfACallIsContent) {
  for (const std::string& members : {std::string(), std::string(kTools) + R"(,"tool_choice":"none")"}) {
    const json::value whole = reply(members, kCalls);
    EXPECT_EQ(whole.at("choices").at(0).at("message").at("content").as_string(), kCalls);
    EXPECT_EQ(whole.at("choices").at(0).at("finish_reason").as_string(), "stop");
  }
}

TEST_F(ChatParsing, HiddenReasoningIsNowhere) {
  const std::string members = R"("include_reasoning":false,"logprobs":true,"return_token_ids":true)";
  const json::value whole = reply(members, kThought + "Yes.");
  const json::value& choice = whole.at("choices").at(0);
  EXPECT_TRUE(choice.at("message").at("reasoning").is_null());
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Yes.");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_TRUE(choice.at("token_ids").is_null());
  const json::object joined = streamed(members, kThought + "Yes.");
  EXPECT_EQ(joined.at("reasoning").as_string(), "");
  EXPECT_EQ(joined.at("content").as_string(), "Yes.");
  EXPECT_EQ(joined.at("entries").as_int64(), 0);
  output_format = {};
  EXPECT_FALSE(reply(members, "Yes.").at("choices").at(0).at("logprobs").is_null()) << "nothing is hidden";
}

TEST_F(ChatParsing, APromptThatEndsInsideReasoningGoesOnThere) {
  const std::string members =
      R"("chat_template_kwargs":{"style":"<think>\n"},"add_generation_prompt":false,"stop":["Y"])";
  const json::value whole = reply(members, "a Y\n</think>\n\nOh Yes");
  const json::value& choice = whole.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("reasoning").as_string(), "a Y") << "stop strings wait for the answer";
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Oh ");
  EXPECT_EQ(choice.at("stop_reason").as_string(), "Y");
  EXPECT_EQ(whole.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 4);
  expect_refused(members + R"(,"response_format":{"type":"json_object"})", 501, "response_format",
                 "no token for </think>");
  // A reasoning that the model begins itself is searched like any text.
  EXPECT_EQ(reply(R"("stop":["hm"])", kThought).at("choices").at(0).at("stop_reason").as_string(), "hm");
}

// What the engine needs to let a constraint begin behind the reasoning, and to end reasoning in time.
TEST_F(ChatParsing, AConstraintBeginsBehindTheReasoning) {
  tokenizer = load_tiny_tokenizer(false, true);
  const std::string object = R"("response_format":{"type":"json_object"})";
  const std::string forced = std::string(kTools) + R"(,"tool_choice":"required")";
  for (const std::string& constraint : {object, forced}) {
    const std::string inside = R"(,"chat_template_kwargs":{"style":"<think>\n"},"add_generation_prompt":false)";
    for (const char* budget : {"", R"(,"thinking_token_budget":7)"}) {
      const GenerationPlan plan = with(constraint + inside + budget);
      ASSERT_EQ(plan.sequences.size(), 1u);
      EXPECT_TRUE(plan.sequences[0].grammar);
      ASSERT_TRUE(plan.sequences[0].thinking);
      const Thinking& thinking = *plan.sequences[0].thinking;
      EXPECT_EQ(std::pair(thinking.open, thinking.close), std::pair(TokenId{259}, TokenId{260}));
      EXPECT_TRUE(thinking.in_reasoning && !thinking.may_open);
      EXPECT_EQ(thinking.budget, *budget ? std::optional<int64_t>(7) : std::nullopt);
      EXPECT_TRUE(plan.parsing.in_reasoning);
      EXPECT_EQ(plan.parsing.format.reasoning, ReasoningFormat::kThinkTags);
      EXPECT_EQ(plan.output.stops_after, "</think>");
    }
    // The model may open it itself, unless the template has closed it, or an answer has begun.
    const GenerationPlan may = with(constraint);
    ASSERT_TRUE(may.sequences[0].thinking);
    EXPECT_TRUE(may.sequences[0].thinking->may_open && !may.sequences[0].thinking->in_reasoning);
    EXPECT_EQ(may.parsing.format.reasoning, ReasoningFormat::kThinkTags);
    const std::string closed =
        R"(,"chat_template_kwargs":{"style":"<think>\n\n</think>\n\n"},"add_generation_prompt":false)";
    const GenerationPlan answer = with(constraint + closed);
    EXPECT_FALSE(answer.sequences[0].thinking);
    EXPECT_EQ(answer.parsing.format.reasoning, ReasoningFormat::kNone) << "all of it is the constraint's";
    const GenerationPlan budgeted = with(constraint + closed + R"(,"thinking_token_budget":0)");
    EXPECT_FALSE(budgeted.sequences[0].thinking->in_reasoning || budgeted.sequences[0].thinking->may_open);
  }
  EXPECT_FALSE(with("").sequences[0].thinking);
  EXPECT_FALSE(with(R"("thinking_token_budget":3)").sequences[0].thinking->may_open) << "nothing to wait with";
  const auto continued = chat_plan(R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"{"}],)"
                                   R"("continue_final_message":true,)" +
                                   object + "}");
  ASSERT_TRUE(continued);
  EXPECT_FALSE(continued->sequences[0].thinking);
}

TEST_F(ChatParsing, ABarePromptThatEndsInsideReasoningIsKnownByItsTokens) {
  tokenizer = load_tiny_tokenizer(false, true);
  const auto thinking = [&](const char* prompt, const char* members) {
    auto made = plan(std::string(R"({"prompt":)") + prompt + members + "}");
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? made->sequences[0].thinking : std::nullopt;
  };
  const char* const kRegex = R"(,"guided_regex":"a+","thinking_token_budget":5)";
  EXPECT_TRUE(thinking(R"("q<think>\nhm")", kRegex)->in_reasoning);
  EXPECT_EQ(thinking(R"("q<think>\nhm")", kRegex)->budget, 5);
  EXPECT_TRUE(thinking("[1,260,259,2]", R"(,"guided_regex":"a+")")->in_reasoning);
  EXPECT_FALSE(thinking("[1,259,260,2]", R"(,"guided_regex":"a+")"));
  EXPECT_FALSE(thinking("[1,2]", R"(,"guided_regex":"a+")")) << "a bare text is what was asked for, from its beginning";
  EXPECT_TRUE(thinking("[259]", R"(,"thinking_token_budget":0)")->in_reasoning);
  output_format.reasoning = ReasoningFormat::kNone;
  EXPECT_FALSE(thinking("[259]", R"(,"guided_regex":"a+")"));
}

TEST_F(ChatParsing, ForcedCallsAreAGrammar) {
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"g"}})"}) {
    const GenerationPlan plan = with(std::string(kTools) + R"(,"tool_choice":)" + choice);
    ASSERT_EQ(plan.sequences.size(), 1u);
    EXPECT_TRUE(plan.sequences[0].grammar);
  }
  EXPECT_FALSE(with(kTools).sequences[0].grammar);
  const std::string named = std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})";
  EXPECT_EQ(reply(named, kCalls.substr(6)).at("choices").at(0).at("finish_reason").as_string(), "stop");
  expect_refused(std::string(kTools) + R"(,"tool_choice":"required","response_format":{"type":"json_object"})", 400,
                 "tool_choice", "exclude");
  // Where calls may be made, the answer is one of them or what was asked for.
  const GenerationPlan either = with(std::string(kTools) + R"(,"response_format":{"type":"json_object"})");
  ASSERT_TRUE(either.sequences[0].grammar);
  EXPECT_EQ(either.parsing.format.tools, ToolFormat::kHermes);
  const auto admits = [&](std::string_view text) {
    GrammarMatcher matcher(either.sequences[0].grammar);
    for (const char c : text) {
      if (!matcher.accept(static_cast<unsigned char>(c))) return false;
    }
    return matcher.is_complete();
  };
  EXPECT_TRUE(admits(R"({"b":2})"));
  EXPECT_TRUE(admits("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_TRUE(
      admits("<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
             "\"arguments\": {}}\n</tool_call>"));
  for (const char* text : {"", "hi", "{\"b\":2}<tool_call>", "<tool_call>\n{\"name\": \"h\""})
    EXPECT_FALSE(admits(text)) << text;
  expect_refused(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"not":{}}}}],)"
                 R"("response_format":{"type":"json_object"})",
                 400, "tools", "not");
  EXPECT_TRUE(with(std::string(kTools) + R"(,"tool_choice":"none","response_format":{"type":"json_object"})")
                  .sequences[0]
                  .grammar);
}

TEST_F(ChatParsing, WhatTheServerCannotReadIsRefused) {
  with(R"("thinking_token_budget":-1)");
  expect_refused(R"("thinking_token_budget":5)", 400, "thinking_token_budget", "no token for <think>");
  expect_refused(R"("thinking_token_budget":-2)", 400, "thinking_token_budget", "at least 0");
  output_format = {ReasoningFormat::kNone, ToolFormat::kNone};
  expect_refused(kTools, 400, "tools", "--tool-call-parser");
  expect_refused(std::string(kTools) + R"(,"tool_choice":"auto")", 400, "tool_choice", "--tool-call-parser");
  expect_refused(R"("thinking_token_budget":5)", 400, "thinking_token_budget", "--reasoning-parser");
  expect_refused(R"("thinking_token_budget":-1)", 400, "thinking_token_budget", "--reasoning-parser");
  EXPECT_TRUE(reply("", "a").at("usage").at("completion_tokens_details").is_null());
}

}  // namespace
}  // namespace helios::testing
