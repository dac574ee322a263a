// The chat API's side of templates: loading, messages in the template's form, continuing, errors, threads.
#include "coordinator/template/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace helios {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const ChatTemplate> chat(std::string_view source, std::string_view tokens = {}) {
  auto made = ChatTemplate::from_source(source, tokens);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? *made : nullptr;
}

std::string render(const ChatTemplate& chat, const ChatTemplateInput& input) {
  const auto text = chat.render(input);
  return text.ok() ? *text : "error " + text.error().param + ": " + text.error().message;
}

std::string render(std::string_view source, std::string_view messages) {
  ChatTemplateInput input;
  input.messages = messages;
  return render(*chat(source), input);
}

constexpr std::string_view kSimple =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ChatTemplate, WritesMessagesTokensAndThePrompt) {
  const auto simple = chat(kSimple, R"({"bos_token":"<s>"})");
  ChatTemplateInput input;
  input.messages = R"([{"role":"user","content":"hé"}])";
  EXPECT_EQ(render(*simple, input), "<s><user>hé</user><assistant>");
  input.add_generation_prompt = false;
  EXPECT_EQ(render(*simple, input), "<s><user>hé</user>");
  input.kwargs = R"({"add_generation_prompt":true,"bos_token":"!"})";
  EXPECT_EQ(render(*simple, input), "!<user>hé</user><assistant>");
}

TEST(ChatTemplate, TextPartsAreJoinedUnlessTheTemplateReadsParts) {
  constexpr std::string_view kParts =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])";
  EXPECT_EQ(render("{{ messages[0].content }}", kParts), "a\nb");
  EXPECT_EQ(render("{% for p in messages[0].content %}{{ p.type }}={{ p.text }};{% endfor %}", kParts),
            "text=a;text=b;");
  EXPECT_EQ(render("{% set c = messages[0]['content'] %}{% for p in c %}{{ p.text }};{% endfor %}", kParts), "a;b;");
}

TEST(ChatTemplate, ADeveloperSpeaksAsTheSystemWhereATemplateKnowsNoDeveloper) {
  constexpr std::string_view kMessages = R"([{"role":"developer","content":"d"},{"role":"user","content":"u"}])";
  EXPECT_EQ(render("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", kMessages),
            "developer:d;user:u;");
  constexpr std::string_view kSkips =
      "{% for m in messages %}{% if m.role in ['system', 'user'] %}{{ m.role }}:{{ m.content }};{% endif %}{% endfor "
      "%}";
  EXPECT_EQ(render(kSkips, kMessages), "system:d;user:u;");
  constexpr std::string_view kRefuses =
      "{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('who') }}{% endif %}"
      "{{ m.role }}:{{ m.content }};{% endfor %}";
  EXPECT_EQ(render(kRefuses, kMessages), "system:d;user:u;");
  EXPECT_EQ(render("{{ raise_exception('no') if messages[0].role != 'user' }}", kMessages), "error messages: no");
}

TEST(ChatTemplate, PartsThatAreNotTextAreRefusedByName) {
  EXPECT_EQ(render("x", R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}])"),
            "error messages.0.content.0.type: messages.0.content.0.type: content of type 'image_url' is not supported: "
            "this model reads text only");
  EXPECT_EQ(render("x", R"([{"role":"user","content":7}])"),
            "error messages.0.content: messages.0.content: expected a string or an array of parts");
  EXPECT_EQ(render("x", R"([{"role":"user","content":"a"},7])"), "error messages.1: messages.1: expected an object");
  EXPECT_EQ(render("x", R"({})"), "error messages: messages: expected an array");
  EXPECT_EQ(render("x", "[1"), "error messages: messages: not valid JSON at byte 2: incomplete JSON");
}

constexpr std::string_view kCall =
    R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
    R"("function":{"name":"f","arguments":"{\"k\": 1.0, \"n\": 123456789012345678901}"}}]}])";

TEST(ChatTemplate, ArgumentsTakeTheFormThatTheTemplateWants) {
  // Objects, exactly as they were written.
  EXPECT_EQ(
      render("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
             "{% endfor %}",
             kCall),
      R"({"k": 1.0, "n": 123456789012345678901})");
  // Text, where the template concatenates it.
  EXPECT_EQ(
      render("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '>' + c.function.arguments }}{% endfor %}"
             "{% endfor %}",
             kCall),
      R"(>{"k": 1.0, "n": 123456789012345678901})");
  EXPECT_EQ(
      render("x", R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{oops"}}]}])"),
      "error messages.0.tool_calls.0.function.arguments: messages.0.tool_calls.0.function.arguments: expected the "
      "JSON text of an object");
}

TEST(ChatTemplate, AbsentContentIsNullOrEmptyAsTheTemplateTakesIt) {
  EXPECT_EQ(render("{% for m in messages %}{% if m.tool_calls %}{% if m.content is none %}null{% else %}text{% endif %}"
                   "{{ m.tool_calls[0].function.arguments|tojson }}{% endif %}{% endfor %}",
                   kCall)
                .substr(0, 4),
            "null");
  EXPECT_EQ(render("{% for m in messages %}[{{ m.content }}]{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments|"
                   "tojson }}{% endif %}{% endfor %}",
                   kCall),
            R"([q][]{"k": 1.0, "n": 123456789012345678901})");
  // Without tool calls nothing is ever null, and null members are as good as absent.
  EXPECT_EQ(render("{{ messages[0] }}", R"([{"role":"assistant","content":null,"tool_calls":null,"audio":null}])"),
            "{'role': 'assistant', 'content': ''}");
  EXPECT_EQ(render("{{ 'tool_calls' in messages[0] }}", R"([{"role":"assistant","content":"a","tool_calls":[]}])"),
            "False");
}

TEST(ChatTemplate, ReasoningHasBothOfItsNames) {
  constexpr std::string_view kBoth = "{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}";
  EXPECT_EQ(render(kBoth, R"([{"role":"assistant","content":"a","reasoning":"r"}])"), "r|r");
  EXPECT_EQ(render(kBoth, R"([{"role":"assistant","content":"a","reasoning_content":"r","reasoning":null}])"), "r|r");
}

TEST(ChatTemplate, EffortAlsoSwitchesThinking) {
  const auto t = chat("{{ reasoning_effort }} {{ enable_thinking }}");
  ChatTemplateInput input;
  input.messages = "[]";
  EXPECT_EQ(render(*t, input), " ");
  input.reasoning_effort = "none";
  EXPECT_EQ(render(*t, input), "none False");
  input.reasoning_effort = "high";
  EXPECT_EQ(render(*t, input), "high True");
  input.kwargs = R"({"enable_thinking":false})";
  EXPECT_EQ(render(*t, input), "high False");
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  ChatTemplateInput input;
  input.continue_final_message = true;
  input.add_generation_prompt = false;
  input.messages = R"([{"role":"user","content":"Say"},{"role":"assistant","content":"One, two, "}])";
  EXPECT_EQ(render(*chat(kSimple), input), "<user>Say</user><assistant>One, two, ");
  EXPECT_EQ(render(*chat("{% for m in messages %}{{ m.content | trim }}.{% endfor %}"), input), "Say.One, two,");
  EXPECT_EQ(render(*chat("nothing"), input),
            "error continue_final_message: continue_final_message: the chat template does not write the final message");
  // A user who writes the mark itself moves nothing.
  input.messages =
      R"([{"role":"assistant","content":"CONTINUE_FINAL_MESSAGE_TAG end"},{"role":"user","content":"_CONTINUE_FINAL_MESSAGE_TAG x"}])";
  EXPECT_EQ(render(*chat("{{ messages[1].content }}|{{ messages[0].content }}"), input),
            "_CONTINUE_FINAL_MESSAGE_TAG x");
  input.messages = "[]";
  EXPECT_EQ(render(*chat(kSimple), input),
            "error continue_final_message: continue_final_message: there is no message to continue");
}

TEST(ChatTemplate, ErrorsAreTheRequests) {
  ChatTemplateInput input;
  input.messages = R"([{"role":"user","content":"a"}])";
  const auto raised = chat("{{ raise_exception('Roles must\nalternate') }}")->render(input);
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().code, Errc::kInvalidArgument);
  EXPECT_EQ(raised.error().message, "Roles must alternate");
  EXPECT_EQ(raised.error().param, "messages");
  const auto failed = chat("a\n{{ 'x' + messages }}")->render(input);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::kInvalidArgument);
  EXPECT_EQ(
      failed.error().message,
      "the chat template cannot render this conversation: line 2: can only concatenate str (not \"list\") to str");
  input.kwargs = R"({"messages":[]})";
  EXPECT_EQ(chat(kSimple)->render(input).error().param, "chat_template_kwargs");
  input.kwargs = "[]";
  EXPECT_EQ(chat(kSimple)->render(input).error().message, "chat_template_kwargs: expected an object");
  EXPECT_EQ(ChatTemplate::from_source("{% if %}").error().code, Errc::kCorruptFile);
  EXPECT_EQ(ChatTemplate::from_source("{% include 'x' %}").error().code, Errc::kUnsupported);
}

class ModelDir : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("chat_template_test_" + std::to_string(getpid()) + "_" +
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  void write(const std::string& name, std::string_view text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::string rendered(std::string_view tools = {}, std::string_view name = {}) {
    const auto loaded = ChatTemplate::load(dir_.string());
    if (!loaded.ok()) return loaded.error().message;
    ChatTemplateInput input;
    input.messages = "[]";
    input.tools = tools;
    input.template_name = name;
    return render(**loaded, input);
  }
  fs::path dir_;
};

TEST_F(ModelDir, WithoutATemplateIsNotFound) {
  write("tokenizer_config.json", R"({"bos_token":"<s>"})");
  const auto loaded = ChatTemplate::load(dir_.string());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::kNotFound);
}

TEST_F(ModelDir, TakesTheTemplateAndTokensOfTheConfiguration) {
  write(
      "tokenizer_config.json",
      R"({"chat_template":"{{ bos_token }}{{ eos_token }}{{ additional_special_tokens }}{{ image_token }}{{ pad_token is defined }}",)"
      R"("bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,)"
      R"("additional_special_tokens":["<a>",{"content":"<b>"}],"extra_special_tokens":{"image_token":"<i>"}})");
  EXPECT_EQ(rendered(), "<s></s>['<a>', '<b>']<i>False");
}

TEST_F(ModelDir, NamedListsChooseToolUseWhenThereAreTools) {
  write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"plain"},{"name":"tool_use","template":"tools"},{"name":"rag","template":"rag"}]})");
  EXPECT_EQ(rendered(), "plain");
  EXPECT_EQ(rendered("[]"), "tools");
  EXPECT_EQ(rendered({}, "rag"), "rag");
  EXPECT_EQ(rendered({}, "nope"),
            "error chat_template: the model has no chat template named 'nope', only default, rag, tool_use");
  const auto named = ChatTemplate::load(dir_.string()).value();
  EXPECT_EQ(named->source(), "plain");
  EXPECT_EQ(named->tool_source(), "tools");
  EXPECT_EQ(ChatTemplate::from_source("alone").value()->tool_source(), "alone");
}

TEST_F(ModelDir, FilesWinOverTheConfiguration) {
  write("tokenizer_config.json", R"({"chat_template":"config"})");
  write("chat_template.json", R"({"chat_template":"processor"})");
  EXPECT_EQ(rendered(), "config");
  write("chat_template.jinja", "file\n");
  write("additional_chat_templates/tool_use.jinja", "tools file");
  EXPECT_EQ(rendered(), "file");
  EXPECT_EQ(rendered("[]"), "tools file");
}

TEST_F(ModelDir, BrokenFilesAreNamed) {
  write("chat_template.jinja", "a\n{% for %}");
  EXPECT_EQ(rendered(), (dir_ / "chat_template.jinja").string() + ": line 2: unexpected '%}', expected a name");
  write("tokenizer_config.json", "{");
  EXPECT_NE(rendered().find("tokenizer_config.json: not valid JSON"), std::string::npos);
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const auto t = chat("{% for m in messages %}{{ m.content|upper }}{{ 'é' * loop.index }}{{ 'é'[0] }}{% endfor %}");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string messages = R"([{"role":"user","content":"t)" + std::to_string(i) + R"("}])";
      for (int k = 0; k < 200; ++k) {
        ChatTemplateInput input;
        input.messages = messages;
        if (render(*t, input) != "T" + std::to_string(i) + "éé") ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RawJsonMember, FindsTheTextOfATopLevelMember) {
  constexpr std::string_view kBody =
      R"( {"a" : [1.0, {"messages":"no"}], "s":"x,\"messages\":1}", "messages": [ 1e20 ] , "n":null} )";
  EXPECT_EQ(raw_json_member(kBody, "messages"), "[ 1e20 ]");
  EXPECT_EQ(raw_json_member(kBody, "a"), R"([1.0, {"messages":"no"}])");
  EXPECT_EQ(raw_json_member(kBody, "n"), "null");
  EXPECT_EQ(raw_json_member(kBody, "zz"), "");
  EXPECT_EQ(raw_json_member(R"({"a":1,"a":2})", "a"), "2");
}

}  // namespace
}  // namespace helios
