// The template language: a table of cases from Jinja2 itself, then what the table cannot say: bounds, messages, lines.
#include "coordinator/template/jinja_template.h"

#include <gtest/gtest.h>

#include "tests/coordinator/template/jinja_cases.h"

namespace helios::jinja {
namespace {

Result<std::string> render_source(std::string_view source, std::string_view variables = "{}",
                                  const RenderLimits& limits = {}) {
  const auto parsed = JinjaTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 1;
  time.tm_mday = 3;
  time.tm_hour = 16;
  time.tm_min = 5;
  time.tm_sec = 6;
  time.tm_isdst = -1;
  return (*parsed)->render(variables, limits, std::chrono::system_clock::from_time_t(std::mktime(&time)));
}

std::string text(std::string_view source, std::string_view variables = "{}") {
  const auto rendered = render_source(source, variables);
  return rendered.ok() ? *rendered : "error: " + rendered.error().message;
}

Errc code(std::string_view source, std::string_view variables = "{}", const RenderLimits& limits = {}) {
  const auto rendered = render_source(source, variables, limits);
  return rendered.ok() ? Errc::kInternal : rendered.error().code;
}

TEST(JinjaTemplate, RendersTheTableAsJinja2Does) {
  for (const testing::Case& c : testing::case_table().cases) {
    SCOPED_TRACE(c.source);
    const auto rendered = render_source(c.source, testing::case_table().context);
    if (c.outcome == testing::Outcome::kText) {
      ASSERT_TRUE(rendered.ok()) << rendered.error().message;
      EXPECT_EQ(*rendered, c.text);
      continue;
    }
    ASSERT_FALSE(rendered.ok()) << *rendered;
    const Errc got = rendered.error().code;
    const bool syntax = got == Errc::kCorruptFile || got == Errc::kUnsupported;
    EXPECT_EQ(syntax, c.outcome == testing::Outcome::kSyntaxError) << rendered.error().message;
  }
}

TEST(JinjaTemplate, NumbersOfTheVariablesKeepTheirKind) {
  EXPECT_EQ(text("{{ v }} {{ v|tojson }}",
                 R"({"v":[1,1.0,-0.0,1e20,1e-7,-0,0.1,2.5e-310,18446744073709551616,-9223372036854775809]})"),
            "[1, 1.0, -0.0, 1e+20, 1e-07, 0, 0.1, 2.5e-310, 18446744073709551616, -9223372036854775809] "
            "[1, 1.0, -0.0, 1e+20, 1e-07, 0, 0.1, 2.5e-310, 18446744073709551616, -9223372036854775809]");
  EXPECT_EQ(text("{{ v }}", R"({"v":{"b":1,"a":2,"b":3}})"), "{'b': 3, 'a': 2}");
}

TEST(JinjaTemplate, ErrorsSayWhatAndAtWhichLine) {
  EXPECT_EQ(text("a\nb {{ 1 + }}"), "error: line 2: unexpected '}}', expected an expression");
  EXPECT_EQ(text("{% if x %}\n\n"), "error: line 2: unexpected end of template, expected 'endif' or 'elif' or 'else'");
  EXPECT_EQ(text("{% bogus %}"), "error: line 1: unknown tag 'bogus'");
  EXPECT_EQ(text("\n\n{{ x.y }}"), "error: line 3: 'x' is undefined");
  EXPECT_EQ(text("{% for i in [1] %}\n{{ {}.a.b }}{% endfor %}"), "error: line 2: 'dict object' has no attribute 'a'");
  EXPECT_EQ(text("{{ x.append(1) }}", R"({"x":[]})"),
            "error: line 1: access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(text("{{ raise_exception('no: ' ~ 1) }}"), "error: no: 1");
  EXPECT_EQ(code("{{ raise_exception('x') }}"), Errc::kInvalidArgument);
  EXPECT_EQ(code("{{ 1 + none }}"), Errc::kMismatch);
  EXPECT_EQ(code("{{ 'x'|nofilter }}"), Errc::kCorruptFile);
  EXPECT_EQ(code("\xff"), Errc::kCorruptFile);
}

TEST(JinjaTemplate, WhatIsLeftOutIsRefusedByName) {
  EXPECT_EQ(text("{% include 'x' %}"), "error: line 1: tag 'include': a chat template stands alone");
  EXPECT_EQ(text("{{ x|random }}"), "error: line 1: filter 'random': a prompt must come out the same each time");
  EXPECT_EQ(text("{{ 'x'.encode() }}"), "error: line 1: method 'encode' of 'str'");
  EXPECT_EQ(code("{{ x|urlize }}"), Errc::kUnsupported);
  // Python prints an address.
  EXPECT_EQ(code("{{ {}.items }}"), Errc::kMismatch);
  EXPECT_EQ(code("{{ [1]|map('string') }}"), Errc::kMismatch);
}

// Variables hide functions; names that nobody set are undefined; nothing else can be seen.
TEST(JinjaTemplate, SeesItsVariablesAndNothingElse) {
  EXPECT_EQ(text("{{ range }}", R"({"range":5})"), "5");
  EXPECT_EQ(text("{{ [self, environment, config, lipsum, request]|map('string')|join }}"), "");
  EXPECT_EQ(text("{{ ''.__class__ }}{{ x.__init__ }}{{ x['__class__'] }}", R"({"x":{}})"), "");
  EXPECT_EQ(code("{{ ''.__class__.__mro__ }}"), Errc::kMismatch);
  EXPECT_EQ(code("{{ '{0.__class__.__mro__}'.format(1) }}"), Errc::kMismatch);
}

RenderLimits small_limits() {
  RenderLimits limits;
  limits.max_output_bytes = 10'000;
  limits.max_memory_bytes = 1u << 20;
  limits.max_steps = 100'000;
  limits.max_depth = 200;
  return limits;
}

TEST(JinjaTemplate, OutputIsBounded) {
  EXPECT_EQ(code("{{ 'x' * 10001 }}", "{}", small_limits()), Errc::kTooLarge);
  EXPECT_EQ(code("{% for i in range(1000) %}{{ 'xxxxxxxxxxxxxxxx' }}{% endfor %}", "{}", small_limits()),
            Errc::kTooLarge);
  EXPECT_EQ(code("{{ 'x' * 10**18 }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{{ [0] * 10**18 }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{{ '%999999999d' % 1 }}", "{}", small_limits()), Errc::kTooLarge);
  EXPECT_EQ(code("{{ 'x'.ljust(10**9) }}"), Errc::kMismatch);
}

TEST(JinjaTemplate, StepsAndMemoryAreBounded) {
  EXPECT_EQ(code("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", "{}", small_limits()),
            Errc::kTooLarge);
  EXPECT_EQ(code("{% set ns = namespace(l=[0]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
            Errc::kTooLarge);
  EXPECT_EQ(code("{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}"),
            Errc::kTooLarge);
  EXPECT_EQ(code("{{ 2 ** 100000 }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"),
            Errc::kTooLarge);
}

TEST(JinjaTemplate, NestingIsBounded) {
  EXPECT_EQ(code("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), Errc::kTooLarge);
  EXPECT_EQ(code("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}"), Errc::kTooLarge);
  EXPECT_EQ(
      code("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}"),
      Errc::kTooLarge);
  EXPECT_EQ(code("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}"
                 "{{ ns.l|tojson }}"),
            Errc::kTooLarge);
  std::string deep(5000, '(');
  EXPECT_EQ(code("{{ " + deep + "1" + std::string(5000, ')') + " }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}"), Errc::kTooLarge);
  std::string sum = "1", blocks, nots;
  for (int i = 0; i < 5000; ++i) sum += "+1", blocks += "{% if 1 %}", nots += "not ";
  EXPECT_EQ(code("{{ " + sum + " }}"), Errc::kTooLarge);
  EXPECT_EQ(code(blocks), Errc::kTooLarge);
  EXPECT_EQ(code("{{ " + nots + "1 }}"), Errc::kTooLarge);
  EXPECT_EQ(code("{{ x }}", R"({"x":)" + std::string(500, '[') + std::string(500, ']') + "}"), Errc::kInvalidArgument);
  // A long chain of elif is no nesting.
  std::string chain = "{% if 0 %}";
  for (int i = 0; i < 3000; ++i) chain += "{% elif 0 %}";
  EXPECT_EQ(text(chain + "{% else %}x{% endif %}"), "x");
}

// What templates do with long conversations: append to one text or list, message by message. Copying each time would
// take 5 GB here.
TEST(JinjaTemplate, AppendingCostsWhatItAdds) {
  RenderLimits limits;
  limits.max_memory_bytes = 64u << 20;
  limits.max_steps = 2'000'000;
  const std::string message(100, 'm');
  const auto rendered = render_source(
      "{% set ns = namespace(t='', u='', l=[]) %}{% for i in range(10000) %}{% set ns.t = ns.t + m %}"
      "{% set ns.u = ns.u ~ m ~ i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.t|length }} {{ ns.u|length }} {{ "
      "ns.l|length }}",
      R"({"m":")" + message + R"("})", limits);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(*rendered, "1000000 1038890 10000");
}

// Two appends to the same text must not see one another.
TEST(JinjaTemplate, AppendingInPlaceLeavesTheOldTextAlone) {
  const std::string source =
      "{% set a = 'x' * 300 + 'y' %}{% set b = a + 'BB' %}{% set c = a + 'CCC' %}{% set d = b + 'd' %}{% set e = b + "
      "'e' %}"
      "{{ a[300:] }} {{ b[300:] }} {{ c[300:] }} {{ d[300:] }} {{ e[300:] }}"
      "{% set l = [0] * 20 + [1] %}{% set m = l + [2] %}{% set n = l + [3] %} {{ l[20:] }}{{ m[20:] }}{{ n[20:] }}";
  EXPECT_EQ(text(source), "y yBB yCCC yBBd yBBe [1][1, 2][1, 3]");
}

TEST(JinjaTemplate, ManyKeysAreFoundByHash) {
  std::string object = "{";
  for (int i = 0; i < 20000; ++i) object += (i ? "," : "") + ("\"k" + std::to_string(i) + "\":" + std::to_string(i));
  RenderLimits limits;
  limits.max_steps = 1'000'000;
  const auto rendered = render_source("{{ d.k19999 }} {{ d['k0'] }} {{ 'k7' in d }} {{ 'q' in d }} {{ d|length }}",
                                      R"({"d":)" + object + "}}", limits);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(*rendered, "19999 0 True False 20000");
}

TEST(JinjaTemplate, SearchingIsLinear) {
  RenderLimits limits;
  limits.max_steps = 4'000'000;
  const std::string many(1'000'000, 'a');
  const auto rendered = render_source("{{ t.find(p) }} {{ t.count('a') }} {{ t.replace('a', '')|length }} {{ p in t }}",
                                      R"({"t":")" + many + R"(","p":")" + std::string(5000, 'a') + "b\"}", limits);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(*rendered, "-1 1000000 0 False");
}

TEST(JinjaTemplate, ClockIsAnInput) {
  EXPECT_EQ(text("{{ strftime_now('%d %b %Y %H:%M:%S.%f%z') }}"), "03 Feb 2025 16:05:06.000000");
}

}  // namespace
}  // namespace helios::jinja
