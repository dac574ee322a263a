#include "coordinator/protocol/json_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/logprob_json.h"

namespace helios {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string printed(float logprob) {
  std::string out;
  const Status status = append_logprob(out, logprob);
  return status ? out : "error: " + status.error().message;
}

TEST(JsonString, EscapesOnlyWhatJsonRequires) {
  EXPECT_EQ(quoted("a/b é 😀 \x7F"), "\"a/b é 😀 \x7F\"");
  EXPECT_EQ(quoted("\"\\\n\r\t\b\f"), R"("\"\\\n\r\t\b\f")");
  EXPECT_EQ(quoted(std::string_view("\0\x1F", 2)), R"("\u0000\u001f")");
}

TEST(JsonString, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(quoted("a\xFF"
                   "b"),
            "\"a" + r + "b\"");
  EXPECT_EQ(quoted("\xC0\xAF"), "\"" + r + r + "\"") << "overlong";
  EXPECT_EQ(quoted("\xED\xA0\x80"), "\"" + r + r + r + "\"") << "a surrogate";
  EXPECT_EQ(quoted("\xF4\x90\x80\x80"), "\"" + r + r + r + r + "\"") << "above U+10FFFF";
  EXPECT_EQ(quoted("\xF0\x9F\x98"), "\"" + r + r + r + "\"") << "cut short";
}

TEST(JsonString, InPlaceIsTheSameAsAppended) {
  std::mt19937 random(1);
  const std::string_view pieces[] = {"plain text", "\"",   "\\", "\n", "\x01", "\x1F",    " ",
                                     "\x7F",       "\x80", "é",  "中", "😀",    "\xF0\x9F"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % (i % 16 == 0 ? 400 : 8); n > 0; --n) text += pieces[random() % std::size(pieces)];
    if (!text.empty() && i % 2 == 0) text[random() % text.size()] = static_cast<char>(random());
    std::string written(json_string_room(text), '\0');
    written.resize(static_cast<size_t>(write_json_string(written.data(), text) - written.data()));
    ASSERT_EQ(written, quoted(std::string_view(text)));  // std::quoted would take a string
  }
}

TEST(JsonNumber, KeepsAPointOrAnExponent) {
  const auto number = [](double value) {
    std::string out;
    append_json_number(out, value);
    return out;
  };
  EXPECT_EQ(number(0.0), "0.0");
  EXPECT_EQ(number(-0.0), "0.0");
  EXPECT_EQ(number(-9999.0), "-9999.0");
  EXPECT_EQ(number(1e30), "1e+30");
  EXPECT_EQ(number(0.5), "0.5");
}

TEST(Logprob, IsTheShortestDoubleOfTheFp32Value) {
  EXPECT_EQ(printed(-0.69314718f), "-0.6931471824645996");
  EXPECT_EQ(printed(-0.0f), "0.0");
  EXPECT_EQ(printed(-1.0f), "-1.0");
}

// std::to_chars is the definition: equal texts over all kinds of values, whichever way they are printed.
TEST(Logprob, IsWhatToCharsMakesOfTheDouble) {
  const auto expect_same = [](float value) {
    char digits[32];
    std::string text(digits, std::to_chars(digits, digits + sizeof digits, static_cast<double>(value) + 0.0).ptr);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    ASSERT_EQ(printed(value), text) << std::bit_cast<uint32_t>(value);
  };
  std::mt19937 random(1);
  std::uniform_real_distribution<float> unit(0.0f, 1.0f);
  for (int i = 0; i < 300000; ++i) {
    const auto any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (any >= -9999.0f && any < INFINITY) expect_same(any);
    expect_same(-30.0f * unit(random));
    expect_same(-std::exp2(-60.0f * unit(random)));            // near zero, where likely tokens are
    expect_same(-std::floor(9999.0f * unit(random)) / 64.0f);  // few digits
    expect_same(-static_cast<float>(i) * 1e-3f);
  }
  for (int exponent = -149; exponent < 14; ++exponent) {
    for (int significand = 1; significand < 40; ++significand) {  // powers of two and their like, subnormal ones too
      const float value = -std::ldexp(static_cast<float>(significand), exponent);
      if (value >= -9999.0f) expect_same(value);
    }
  }
}

TEST(Logprob, IsClampedBelowAndNeverNaN) {
  EXPECT_EQ(printed(-INFINITY), "-9999.0");
  EXPECT_EQ(printed(std::numeric_limits<float>::lowest()), "-9999.0");
  EXPECT_EQ(printed(-9998.0f), "-9998.0");
  EXPECT_EQ(printed(NAN).substr(0, 6), "error:");
  EXPECT_EQ(printed(INFINITY).substr(0, 6), "error:");
}

TEST(ApiErrorBody, HasAllFourKeysAndABoundedMessage) {
  EXPECT_EQ(error_json(invalid_argument("logprobs", "too many")),
            R"({"error":{"message":"too many","type":"BadRequestError","param":"logprobs","code":400}})");
  EXPECT_EQ(error_json(Error{Errc::kUnavailable, "draining", ""}),
            R"({"error":{"message":"draining","type":"ServiceUnavailableError","param":null,"code":503}})");
  std::string message(999, 'x');
  message += "😀 and more";  // the cut must not fall into the character
  EXPECT_EQ(error_json(invalid_argument("", message)), R"({"error":{"message":")" + std::string(999, 'x') +
                                                           R"(","type":"BadRequestError","param":null,"code":400}})");
}

}  // namespace
}  // namespace helios
