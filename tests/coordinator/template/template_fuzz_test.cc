// Templates that nobody would write: mutated, spliced and random ones end in a text or an error, soon, and never take
// the process with them. Seeds are fixed; HELIOS_FUZZ_ROUNDS multiplies the rounds.
#include <filesystem>
#include <fstream>
#include <random>

#include "coordinator/template/chat_template.h"
#include "coordinator/template/jinja_template.h"
#include "tests/coordinator/template/jinja_cases.h"
#include "tests/support/test_data.h"

namespace helios::jinja {
namespace {

int rounds(int count) {
  const char* factor = std::getenv("HELIOS_FUZZ_ROUNDS");
  return count * (factor ? std::max(1, std::atoi(factor)) : 1);
}

RenderLimits tight() {
  RenderLimits limits;
  limits.max_output_bytes = 1u << 20;
  limits.max_memory_bytes = 16u << 20;
  limits.max_steps = 100'000;
  return limits;
}

// Returns whether it rendered. An error has a message of one line or is the template's own.
bool survives(std::string_view source, std::string_view variables) {
  const auto parsed = JinjaTemplate::parse(source);
  if (!parsed.ok()) {
    EXPECT_FALSE(parsed.error().message.empty());
    return false;
  }
  const auto rendered = (*parsed)->render(variables, tight(), {});
  if (rendered.ok()) {
    EXPECT_LE(rendered->size(), tight().max_output_bytes);
  }
  return rendered.ok();
}

constexpr std::string_view kPieces[] = {"{{",
                                        "}}",
                                        "{%",
                                        "%}",
                                        "{#",
                                        "#}",
                                        "{%-",
                                        "-%}",
                                        "{{-",
                                        "-}}",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "'",
                                        "\"",
                                        "|",
                                        ".",
                                        ",",
                                        ":",
                                        "~",
                                        "+",
                                        "-",
                                        "*",
                                        "**",
                                        "//",
                                        "%",
                                        "==",
                                        "<",
                                        " in ",
                                        " is ",
                                        " not ",
                                        " if ",
                                        " else ",
                                        " and ",
                                        " or ",
                                        "for ",
                                        "endfor",
                                        "set ",
                                        "endset",
                                        "macro m(a, b=1)",
                                        "endmacro",
                                        "call m()",
                                        "endcall",
                                        "filter upper",
                                        "endfilter",
                                        "if ",
                                        "endif",
                                        "elif ",
                                        "raw",
                                        "endraw",
                                        "break",
                                        "continue",
                                        "generation",
                                        "endgeneration",
                                        "with ",
                                        "endwith",
                                        "loop",
                                        "loop.index",
                                        "loop(x)",
                                        "recursive",
                                        "namespace(a=1)",
                                        "ns.a",
                                        "caller()",
                                        "range(9)",
                                        "words",
                                        "d",
                                        "s",
                                        "nums",
                                        "rows",
                                        "none",
                                        "true",
                                        "0",
                                        "7",
                                        "1e308",
                                        "99999999999999999999",
                                        "-1",
                                        "'x'",
                                        "'é'",
                                        "|map('upper')",
                                        "|list",
                                        "|tojson(indent=2)",
                                        "|join",
                                        "|sort",
                                        "|groupby('role')",
                                        "|batch(2)",
                                        "|int",
                                        "|round(1)",
                                        "|format(1)",
                                        "|replace('a','b')",
                                        ".split()",
                                        ".strip('a')",
                                        ".items()",
                                        "[::-1]",
                                        "[1:]",
                                        "[-9:9:2]",
                                        "'%s%d'",
                                        "'{:>{}}'.format",
                                        "\n",
                                        " ",
                                        "é",
                                        "\\",
                                        "\\u0041",
                                        "=",
                                        ";"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string operator()(std::string text) {
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(text.size() + 1);
      const size_t length = std::min(text.size() - at, below(12));
      switch (below(5)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, piece());
          break;
        case 2:
          text.replace(at, length, piece());
          break;
        case 3:
          text.insert(at, text.substr(below(text.size() + 1), below(60)));
          break;
        default:
          if (!text.empty()) text[at % text.size()] = static_cast<char>(below(256));
      }
    }
    return text;
  }

  std::string assembled() {
    std::string out;
    for (size_t n = below(30); n > 0; --n) out += piece();
    return out;
  }

  std::string bytes() {
    std::string out(below(200), '\0');
    for (char& c : out) c = static_cast<char>(below(256));
    return out;
  }

  size_t below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }

 private:
  std::string_view piece() { return kPieces[below(std::size(kPieces))]; }
  std::mt19937_64 random_;
};

TEST(TemplateFuzz, MutatedCasesEndInATextOrAnError) {
  Mutator mutate(11);
  const auto& [context, cases] = testing::case_table();
  int rendered = 0;
  const int count = rounds(6000);
  for (int i = 0; i < count; ++i) {
    const auto& seed = cases[mutate.below(cases.size())];
    rendered += survives(mutate(seed.source), context);
  }
  EXPECT_GT(rendered, count / 20);  // the mutations are not all nonsense
}

TEST(TemplateFuzz, AssembledAndRandomSourcesEndInATextOrAnError) {
  Mutator mutate(12);
  for (int i = 0; i < rounds(4000); ++i) {
    survives("{{ " + mutate.assembled() + " }}", testing::case_table().context);
    survives(mutate.assembled(), testing::case_table().context);
    survives(mutate.bytes(), "{}");
    survives("{% set ns = namespace(a=words) %}{% for x in words %}{{ " + mutate.assembled() + " }}{% endfor %}",
             testing::case_table().context);
  }
}

TEST(TemplateFuzz, MutatedVariablesEndInATextOrAnError) {
  const auto parsed = JinjaTemplate::parse(
      "{% for k, v in d|dictsort %}{{ k }}{{ v|tojson }}{% endfor %}{{ rows|map(attribute='role')|join(name) }}{{ "
      "s.split() }}{{ f + n }}");
  ASSERT_TRUE(parsed.ok());
  Mutator mutate(13);
  for (int i = 0; i < rounds(3000); ++i) {
    const auto rendered = (*parsed)->render(mutate(testing::case_table().context), tight(), {});
    if (!rendered.ok()) {
      EXPECT_FALSE(rendered.error().message.empty());
    }
  }
}

TEST(TemplateFuzz, MutatedRequestsEndInATextOrAnError) {
  const auto chat = ChatTemplate::from_source(
      "{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "
      "%}{{ p.text }}"
      "{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor "
      "%}");
  ASSERT_TRUE(chat.ok());
  const std::string seed =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"assistant","content":"x","reasoning":"r"}],)"
      R"("tools":[{"type":"function"}],"kwargs":{"enable_thinking":true}})";
  Mutator mutate(14);
  for (int i = 0; i < rounds(3000); ++i) {
    const std::string body = mutate(seed);
    ChatTemplateInput input;
    input.messages = raw_json_member(body, "messages");
    input.tools = raw_json_member(body, "tools");
    input.kwargs = raw_json_member(body, "kwargs");
    input.continue_final_message = mutate.below(2) == 0;
    const auto rendered = (*chat)->render(input);
    if (!rendered.ok()) {
      EXPECT_FALSE(rendered.error().message.empty());
    }
  }
}

TEST(TemplateFuzz, MutatedPublishedTemplatesEndInATextOrAnError) {
  HELIOS_NEED_TEST_DATA(dir, "golden/chat-templates/templates");
  Mutator mutate(15);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream in(entry.path());
    const std::string source{std::istreambuf_iterator<char>(in), {}};
    for (int i = 0; i < rounds(40); ++i) {
      survives(mutate(source),
               R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a","tool_calls":)"
               R"([{"function":{"name":"f","arguments":{"a":1}}}]},{"role":"user","content":"x"}],)"
               R"("tools":null,"documents":null,"add_generation_prompt":true,"bos_token":"<s>","eos_token":"</s>"})");
    }
  }
}

}  // namespace
}  // namespace helios::jinja
