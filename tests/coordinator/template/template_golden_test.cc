// Every published template and every small one, against what Python's Jinja2 made of them (chat-templates goldens).
//
// Output byte for byte; errors by kind, and for raise_exception by message. Requests are cut out of the goldens as
// text, so that 1.0 and 1e20 stay what they are.
#include <fstream>
#include <iostream>

#include <boost/json.hpp>

#include "coordinator/template/chat_template.h"
#include "coordinator/template/jinja_template.h"
#include "tests/support/test_data.h"

namespace helios {
namespace {

namespace json = boost::json;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The goldens' clock stands at 2025-02-03T16:05:06 local time.
std::chrono::system_clock::time_point golden_now() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 1;
  time.tm_mday = 3;
  time.tm_hour = 16;
  time.tm_min = 5;
  time.tm_sec = 6;
  time.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&time));
}

std::string golden_kind(const json::object& row) {
  const auto* error = row.if_contains("error");
  return error ? std::string(error->at("kind").as_string()) : "output";
}

TEST(TemplateGolden, SmallTemplatesRenderAsJinja2Does) {
  HELIOS_NEED_TEST_DATA(path, "golden/chat-templates/jinja-units.jsonl");
  std::ifstream in(path);
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const std::string context(raw_json_member(line, "context"));
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    const json::object row = json::parse(line).as_object();
    SCOPED_TRACE(line.substr(0, 300));
    const auto parsed = jinja::JinjaTemplate::parse(std::string(row.at("template").as_string()));
    const auto rendered =
        parsed.ok() ? (*parsed)->render(context, {}, golden_now()) : Result<std::string>(parsed.error());
    std::string kind = "output";
    if (!rendered.ok()) {
      const Errc code = rendered.error().code;
      kind = code == Errc::kInvalidArgument ? "raise_exception" : code == Errc::kMismatch ? "runtime" : "syntax";
    }
    EXPECT_EQ(kind, golden_kind(row)) << (rendered.ok() ? *rendered : rendered.error().message);
    if (rendered.ok() && kind == "output") {
      EXPECT_EQ(*rendered, std::string(row.at("output").as_string()));
    }
  }
  EXPECT_GT(rows, 90);
}

struct Conversation {
  std::string line;  // owns what `input` views
  json::object row;
  ChatTemplateInput input;
};

Conversation conversation(const std::string& line) {
  Conversation out{line, json::parse(line).as_object(), {}};
  out.input.from_chat_api = false;
  out.input.now = golden_now();
  if (const auto* kept = out.row.if_contains("continue_final_message"))
    out.input.continue_final_message = kept->as_bool();
  return out;
}

void point_at_fields(Conversation* c) {
  c->input.messages = raw_json_member(c->line, "messages");
  c->input.tools = raw_json_member(c->line, "tools");
  c->input.documents = raw_json_member(c->line, "documents");
  c->input.kwargs = raw_json_member(c->line, "kwargs");
}

void check(const Conversation& c, const ChatTemplate& chat) {
  const auto rendered = chat.render(c.input);
  if (const auto* error = c.row.if_contains("error")) {
    ASSERT_FALSE(rendered.ok()) << "expected " << *error << ", got: " << *rendered;
    const bool raised = rendered.error().message.find("cannot render this conversation") == std::string::npos &&
                        rendered.error().code == Errc::kInvalidArgument;
    EXPECT_EQ(raised ? "raise_exception" : "runtime", golden_kind(c.row)) << rendered.error().message;
    if (raised) {
      EXPECT_EQ(rendered.error().message, std::string(error->at("message").as_string()));
    }
    return;
  }
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(*rendered, std::string(c.row.at("output").as_string()));
}

// A figure to print, not to assert: the best of some renders, request JSON to text.
double best_us(const ChatTemplate& chat, const ChatTemplateInput& input) {
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    (void)chat.render(input);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

TEST(TemplateGolden, PublishedTemplatesRenderEveryConversation) {
  HELIOS_NEED_TEST_DATA(dir, "golden/chat-templates");
  int files = 0, rows = 0;
  size_t longest = 0;
  double longest_us = 0;
  std::string longest_name;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jsonl" || entry.path().stem() == "jinja-units") continue;
    std::ifstream in(entry.path());
    std::string line;
    ASSERT_TRUE(std::getline(in, line));
    const json::object header = json::parse(line).as_object();
    const std::string name(header.at("template").as_string());
    const auto chat =
        ChatTemplate::from_source(read_file(dir + "/templates/" + name), raw_json_member(line, "special_tokens"));
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.error().message;
    ++files;
    for (; std::getline(in, line); ++rows) {
      Conversation c = conversation(line);
      point_at_fields(&c);
      SCOPED_TRACE(name + " " + std::string(c.row.at("id").as_string()));
      check(c, **chat);
      const auto* output = c.row.if_contains("output");
      if (!output || output->as_string().size() <= longest) continue;
      longest = output->as_string().size();
      longest_name = name + " " + std::string(c.row.at("id").as_string());
      longest_us = best_us(**chat, c.input);
    }
  }
  EXPECT_GT(files, 20);
  EXPECT_GT(rows, 700);
  std::cout << rows << " conversations over " << files << " templates; the longest prompt, " << longest << " bytes ("
            << longest_name << "), renders in " << longest_us << " us\n";
}

// What a client sends (arguments as JSON text, null content) reaches every template that knows tool calls in the form
// it wants: wherever some form of the golden rows renders the call, the API's form renders the same.
TEST(TemplateGolden, ToolCallsOfTheChatApiRenderAsTheirBestGolden) {
  HELIOS_NEED_TEST_DATA(dir, "golden/chat-templates/templates");
  const std::string tokens_text = read_file(dir + "/special_tokens.json");
  constexpr std::string_view kTools =
      R"([{"type":"function","function":{"name":"now","description":"d","parameters":{"type":"object","properties":{}}}}])";
  constexpr std::string_view kMessages =
      R"([{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":null,"refusal":null,)"
      R"("tool_calls":[{"id":"call00001","type":"function","function":{"name":"now","arguments":"{\"zone\": \"UTC\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"call00001","name":"now","content":"noon"}])";
  for (const char* name : {"qwen3", "qwen2_5", "qwen3_5", "qwen3-coder", "deepseek_v3", "deepseek_v3_1", "glm-4_6",
                           "qwq", "granite4", "hermes3-tool-use", "llama3_1-instruct", "mistral-nemo",
                           "mistral-small-3_2", "minimax-m2", "command-r7b", "gptoss", "smollm3"}) {
    SCOPED_TRACE(name);
    const auto chat =
        ChatTemplate::from_source(read_file(dir + "/" + name + ".jinja"), raw_json_member(tokens_text, name));
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    ChatTemplateInput input;
    input.messages = kMessages;
    input.tools = kTools;
    const auto rendered = (*chat)->render(input);
    if (std::string_view(name) == "smollm3") continue;  // it has no form for past tool calls
    ASSERT_TRUE(rendered.ok()) << rendered.error().message;
    EXPECT_NE(rendered->find("UTC"), std::string::npos) << *rendered;
    EXPECT_EQ(rendered->find("'UTC'"), std::string::npos) << *rendered;
    EXPECT_EQ(rendered->find("\\\"UTC"), std::string::npos) << *rendered;
    EXPECT_EQ(rendered->find("None"), std::string::npos) << *rendered;
  }
}

}  // namespace
}  // namespace helios
