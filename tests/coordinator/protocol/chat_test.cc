// Chat requests to plans, and token deltas to chat replies.
#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/chat_response.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

struct Chat : ProtocolFixture {
  void expect_refused(const Refusal& expected) const { expect_refusal(chat_plan(expected.body), expected); }
  /// With one user message "hi".
  void expect_field_refused(const std::string& members, int status, const char* param, const char* mentions) const {
    const std::string body = R"({"messages":[{"role":"user","content":"hi"}],)" + members + "}";
    expect_refused({body.c_str(), status, param, mentions});
  }
  GenerationPlan accepted(const std::string& body) const {
    auto result = chat_plan(body);
    EXPECT_TRUE(result) << body << ": " << (result ? "" : result.error().message);
    return result ? std::move(*result) : GenerationPlan{};
  }
  GenerationPlan with(const std::string& members) const {
    return accepted(R"({"messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}");
  }
  std::string prompt_of(const GenerationPlan& plan) const {
    return plan.prompts.empty() ? "" : tokenizer->decode(plan.prompts[0].ids, false);
  }
};

TEST_F(Chat, MessagesBecomeThePromptThatTheTemplateWrites) {
  const GenerationPlan plan = accepted(
      R"({"messages":[{"role":"system","content":"é"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  EXPECT_EQ(prompt_of(plan), "s:é<eos>u:a\nb<eos>!");
  EXPECT_EQ(std::count(plan.prompts[0].ids.begin(), plan.prompts[0].ids.end(), 256), 2) << "special tokens are tokens";
  ASSERT_EQ(plan.sequences.size(), 1u);
  EXPECT_EQ(plan.sequences[0].prompt, plan.prompts[0].ids);
  EXPECT_EQ(prompt_of(with(R"("add_generation_prompt":false)")), "u:hi<eos>");
  EXPECT_EQ(prompt_of(with(R"("chat_template_kwargs":{"style":"1.50"})")), "u:hi<eos>1.50!");
  EXPECT_EQ(prompt_of(with(R"("chat_template_kwargs":{"style":1.50})")), "u:hi<eos>1.5!");
  EXPECT_EQ(prompt_of(with(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")")),
            "tools:1;u:hi<eos>!");
  for (const char* repeated : {"messages", "mess\\u0061ges"}) {  // what is rendered is what was checked: the last
    EXPECT_EQ(prompt_of(with("\"" + std::string(repeated) + R"(":[{"role":"user","content":"b"}])")), "u:b<eos>!");
  }
}

TEST_F(Chat, SpecialTokensAreAddedOnlyOnRequest) {
  tokenizer = load_tiny_tokenizer(true);
  EXPECT_EQ(prompt_of(with("")), "u:hi<eos>!");
  EXPECT_EQ(prompt_of(with(R"("add_special_tokens":true)")), "<bos>u:hi<eos>!<eos2>");
}

TEST_F(Chat, TheFinalMessageIsContinuedInPlaceOfANewOne) {
  const char* const messages =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"Sure, "}],)";
  EXPECT_EQ(prompt_of(accepted(std::string(messages) + R"("continue_final_message":true})")), "u:q<eos>a:Sure, ");
  expect_refused({(std::string(messages) + R"("continue_final_message":true,"add_generation_prompt":true})").c_str(),
                  400, "continue_final_message", "exclude each other"});
  EXPECT_EQ(accepted(std::string(messages) + R"("echo":true})").prompts[0].echo_text, "Sure, ");
  EXPECT_EQ(accepted(std::string(messages) + R"("echo":false})").prompts[0].echo_text, "");
  EXPECT_EQ(with(R"("echo":true)").prompts[0].echo_text, "") << "the user's words are not the assistant's";
}

TEST_F(Chat, MessagesOfTheWrongFormAreNamed) {
  expect_refused({R"({})", 400, "messages", "required"});
  expect_refused({R"({"messages":null})", 400, "messages", "required"});
  expect_refused({R"({"messages":[]})", 400, "messages", "empty"});
  expect_refused({R"({"messages":"hi"})", 400, "messages", "array"});
  expect_refused({R"({"messages":["hi"]})", 400, "messages.0", "object"});
  expect_refused({R"({"messages":[{"content":"hi"}]})", 400, "messages.0.role", "string"});
  expect_refused({R"({"messages":[{"role":"user","content":"a"},{"role":"robot","content":"hi"}]})", 400,
                  "messages.1.role", "must be one of"});
  expect_refused({R"({"messages":[{"role":"user"}]})", 400, "messages.0.content", "required"});
  expect_refused({R"({"messages":[{"role":"user","content":5}]})", 400, "messages.0.content", "string"});
  expect_refused({R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]})", 400,
                  "messages.0.content.0.type", "image_url"});
  expect_refused({R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}]})",
                  400, "messages.0.content.1.type", "input_audio"});
  expect_refused(
      {R"({"messages":[{"role":"tool","content":"x","tool_call_id":"c"}]})", 400, "messages", "a tool speaks first"});
}

TEST_F(Chat, FieldsThatChangeTheResultAreReadOrRefused) {
  expect_field_refused(R"("chat_template":"{{ 1 }}")", 400, "chat_template", "disabled");
  expect_field_refused(R"("reasoning_effort":"enormous")", 400, "reasoning_effort", "one of");
  expect_field_refused(R"("chat_template_kwargs":[])", 400, "chat_template_kwargs", "object");
  expect_field_refused(R"("tools":[])", 400, "tools", "empty");
  expect_field_refused(R"("tools":[{"type":"web"}])", 400, "tools.0.type", "function");
  expect_field_refused(R"("tools":[{"type":"function","function":{}}])", 400, "tools.0.function.name", "required");
  for (const std::string& name :
       {std::string(R"(a\"b)"), std::string(R"(a\\b)"), std::string(R"(a\nb)"), std::string(257, 'x')}) {
    expect_field_refused(R"("tools":[{"type":"function","function":{"name":")" + name + R"("}}])", 400,
                         "tools.0.function.name", "could not be read");
  }
  for (const char* type : {R"("string")", R"(["string","null"])", "5"}) {
    expect_field_refused(
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":)" + std::string(type) + "}}}]", 400,
        "tools.0.function.parameters.type", "object");
  }
  expect_field_refused(R"("tool_choice":"auto")", 400, "tool_choice", "needs tools");
  expect_field_refused(R"("tool_choice":"maybe")", 400, "tool_choice", "must be");
  expect_field_refused(
      R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})",
      400, "tool_choice", "not in tools");
  expect_field_refused(R"("functions":[{"name":"f"}])", 400, "functions", "tools");
  expect_field_refused(R"("n":0)", 400, "n", "[1, ");
  expect_field_refused(R"("model":"other")", 404, "model", "other");
  expect_field_refused(R"("stream_options":{"include_usage":true})", 400, "stream_options", "stream");
  expect_field_refused(R"("logit_bias":{"999999999":-100})", 400, "logit_bias", "vocabulary");
  templates = {.loaded = nullptr, .reason = "the model has no chat template"};
  expect_field_refused(R"("temperature":0)", 400, "messages", "--chat-template");
}

TEST_F(Chat, TheBudgetIsTheRestOfTheContextOrTheNewerOfTwoFields) {
  const auto prompt = static_cast<int32_t>(with("").prompts[0].ids.size());
  EXPECT_EQ(with("").sequences[0].sampling.max_tokens, 64 - prompt);
  EXPECT_EQ(with(R"("max_tokens":5)").sequences[0].sampling.max_tokens, 5);
  EXPECT_EQ(with(R"("max_tokens":5,"max_completion_tokens":7)").sequences[0].sampling.max_tokens, 7);
  EXPECT_EQ(with(R"("max_tokens":5,"max_completion_tokens":null)").sequences[0].sampling.max_tokens, 5);
  expect_field_refused(R"("max_completion_tokens":0)", 400, "max_completion_tokens", "at least 1");
  expect_field_refused(R"("max_tokens":0)", 400, "max_tokens", "at least 1");
  expect_field_refused(R"("max_tokens":64)", 400, "messages", "maximum context length is 64");
  expect_field_refused(R"("min_tokens":65)", 400, "min_tokens", "64");
  const std::string long_message = R"({"messages":[{"role":"user","content":")" + std::string(80, 'x') + R"("}])";
  expect_refused({(long_message + "}").c_str(), 400, "messages", "maximum context length is 64"});
  EXPECT_EQ(accepted(long_message + R"(,"truncate_prompt_tokens":-1})").prompts[0].ids.size(), 63u);
  EXPECT_EQ(prompt_of(accepted(long_message + R"(,"truncate_prompt_tokens":3,"max_tokens":1})")), "x<eos>!");
}

// Wire formats, 4.2.
TEST_F(Chat, R5TopLogprobsNeedLogprobsAndHaveALimit) {
  EXPECT_FALSE(with("").logprobs);
  EXPECT_FALSE(with(R"("logprobs":false,"top_logprobs":0)").logprobs);
  EXPECT_FALSE(with(R"("logprobs":null,"top_logprobs":null)").logprobs);
  EXPECT_FALSE(with(R"("logprobs":0)").logprobs);
  for (const char* zero : {R"("logprobs":true)", R"("logprobs":true,"top_logprobs":null)", R"("logprobs":1)"}) {
    const GenerationPlan plan = with(zero);
    EXPECT_TRUE(plan.logprobs && plan.sequences[0].logprobs);
    EXPECT_EQ(plan.sequences[0].num_logprobs, 0);
  }
  EXPECT_EQ(with(R"("logprobs":true,"top_logprobs":20)").sequences[0].num_logprobs, 20);
  EXPECT_EQ(with(R"("logprobs":true,"logprob_token_ids":[7,5])").sequences[0].logprob_token_ids,
            (std::vector<TokenId>{7, 5}));
  expect_field_refused(R"("top_logprobs":1)", 400, "top_logprobs", "logprobs");
  expect_field_refused(R"("logprobs":false,"top_logprobs":-1)", 400, "top_logprobs", "logprobs");
  expect_field_refused(R"("logprobs":true,"top_logprobs":21)", 400, "top_logprobs", "20");
  expect_field_refused(R"("logprobs":true,"top_logprobs":-1)", 400, "top_logprobs", "negative");
  expect_field_refused(R"("logprobs":true,"top_logprobs":"3")", 400, "top_logprobs", "a string");
  expect_field_refused(R"("logprobs":5)", 400, "logprobs", "boolean");
  expect_field_refused(R"("logprob_token_ids":[1])", 400, "logprob_token_ids", "\"logprobs\": true");
  expect_field_refused(R"("logprobs":true,"logprob_token_ids":[])", 400, "logprob_token_ids", "empty");
  capabilities.max_logprobs = 0;
  capabilities.logprob_token_ids = false;
  expect_field_refused(R"("logprobs":true)", 400, "logprobs", "--max-logprobs");  // R34
  expect_field_refused(R"("logprobs":true,"logprob_token_ids":[1])", 400, "logprobs", "--max-logprobs");
}

// Replies.

OutputEntry entry(TokenId id, std::string text, float logprob, std::vector<OutputAlternative> alternatives) {
  return {.id = id, .text = text, .bytes = text, .logprob = logprob, .alternatives = std::move(alternatives)};
}

OutputFinish stop() { return {.reason = "stop", .stop_string = {}, .stop_token = {}}; }

struct ChatReply : Chat {
  const ReplyHeader header{
      .id = "chatcmpl-9", .created = 1767225600, .model = "demo-7b", .fingerprint = "demo-1.0-tp1-9f8e7d6c"};
  OutputDelta yes{.text = "Yes",
                  .entries = {entry('Y', "Yes", -0.105360515f, {{'N', "N", -0.5f}, {'Y', "Yes", -2.0f}})},
                  .token_ids = {'Y'}};
  OutputDelta mark{.text = "!", .entries = {entry('!', "!", -0.5108256f, {})}, .token_ids = {'!'}};
  OutputDelta end{.text = "", .entries = {}, .token_ids = {256}, .finish = stop()};
};

// The example of wire formats 4.3.
TEST_F(ChatReply, APlainReplyHasEveryKeyThatClientsRead) {
  const GenerationPlan plan = with(R"("logprobs":true,"top_logprobs":2)");
  ChatFormat format(plan, header, *tokenizer);
  std::string events;
  ASSERT_TRUE(format.take(0, yes, {}, events) && format.take(0, mark, {}, events) && format.take(0, end, {}, events));
  EXPECT_EQ(events, "");
  EXPECT_EQ(
      format.reply({20, 3}),
      R"({"id":"chatcmpl-9","object":"chat.completion","created":1767225600,"model":"demo-7b","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"Yes!","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},)"
      R"("logprobs":{"content":[{"token":"Yes","logprob":-0.10536051541566849,"bytes":[89,101,115],"top_logprobs":[)"
      R"({"token":"N","logprob":-0.5,"bytes":[78]},{"token":"Yes","logprob":-2.0,"bytes":[89]}]},)"
      R"({"token":"!","logprob":-0.5108255743980408,"bytes":[33],"top_logprobs":[]}],"refusal":null},)"
      R"("finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":"demo-1.0-tp1-9f8e7d6c",)"
      R"("usage":{"prompt_tokens":20,"total_tokens":23,"completion_tokens":3,"prompt_tokens_details":null,"completion_tokens_details":null},)"
      R"("prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null})");
}

// The example of wire formats 4.4.
TEST_F(ChatReply, AStreamBeginsWithTheRoleAndEndsWithTheUsage) {
  const GenerationPlan plan = with(R"("logprobs":true,"stream":true,"stream_options":{"include_usage":true})");
  ChatFormat format(plan, header, *tokenizer);
  std::string events;
  ASSERT_TRUE(format.take(0, mark, {}, events) && format.take(0, end, {.usage = {}, .last = true}, events));
  format.end_stream({20, 2}, events);
  const std::string head =
      R"(data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1767225600,"model":"demo-7b",)";
  EXPECT_EQ(
      events,
      head +
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null})"
          "\n\n" +
          head +
          R"("choices":[{"index":0,"delta":{"content":"!"},"logprobs":{"content":[{"token":"!","logprob":-0.5108255743980408,"bytes":[33],"top_logprobs":[]}],"refusal":null},"finish_reason":null,"token_ids":null}]})"
          "\n\n" +
          head +
          R"("choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]})"
          "\n\n" +
          head +
          R"("choices":[],"usage":{"prompt_tokens":20,"total_tokens":22,"completion_tokens":2},"system_fingerprint":"demo-1.0-tp1-9f8e7d6c"})"
          "\n\n" +
          "data: [DONE]\n\n");
}

TEST_F(ChatReply, EveryChoiceIsIntroducedBeforeAnySpeaksAndEchoesThen) {
  const GenerationPlan plan = accepted(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"So"}],"n":2,"echo":true,"stream":true,)"
      R"("continue_final_message":true,"return_token_ids":true,"return_prompt_text":true,"max_tokens":2})");
  ChatFormat format(plan, header, *tokenizer);
  std::string events;
  ASSERT_TRUE(format.take(1, mark, {}, events));
  std::vector<std::string> deltas;
  for (size_t at = 0; (at = events.find("\"index\":", at)) != std::string::npos; ++at) {
    deltas.push_back(events.substr(at + 8, events.find(",\"logprobs\"", at) - at - 8));
  }
  EXPECT_EQ(deltas,
            (std::vector<std::string>{R"(0,"delta":{"role":"assistant","content":""})",
                                      R"(1,"delta":{"role":"assistant","content":""})", R"(0,"delta":{"content":"So"})",
                                      R"(1,"delta":{"content":"So"})", R"(1,"delta":{"content":"!"})"}));
  EXPECT_EQ(events.find(R"("prompt_token_ids":[117,58)"), events.rfind(R"("prompt_token_ids":[)")) << events;
  EXPECT_NE(events.find(R"("prompt_text":"u:q<eos>a:So")"), std::string::npos) << events;
  EXPECT_NE(events.find(R"("finish_reason":null,"token_ids":[33])"), std::string::npos) << events;
}

TEST_F(ChatReply, WithTokenIdsEveryEntryNamesItsOwn) {
  const GenerationPlan plan =
      with(R"("logprobs":true,"top_logprobs":2,"return_token_ids":true,"return_prompt_text":true)");
  ChatFormat format(plan, header, *tokenizer);
  std::string events;
  ASSERT_TRUE(format.take(0, yes, {}, events) && format.take(0, end, {}, events));
  const std::string json = format.reply({20, 2});
  EXPECT_NE(
      json.find(
          R"("bytes":[89,101,115],"token_id":89,"top_logprobs":[{"token":"N","logprob":-0.5,"bytes":[78],"token_id":78})"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("token_ids":[89,256])"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("prompt_token_ids":[117,58,104,105,256,33],"prompt_text":"u:hi<eos>!")"), std::string::npos)
      << json;
}

TEST_F(ChatReply, ANumberThatIsNoneFailsTheRequestBeforeAnyByte) {
  OutputDelta nan = mark;
  nan.entries[0].logprob = NAN;
  for (const char* members : {R"("logprobs":true)", R"("logprobs":true,"stream":true)"}) {
    const GenerationPlan plan = with(members);
    ChatFormat format(plan, header, *tokenizer);
    std::string events;
    const Status status = format.take(0, nan, {}, events);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::kInternal);
    EXPECT_EQ(events, "");
  }
}

}  // namespace
}  // namespace helios::testing
