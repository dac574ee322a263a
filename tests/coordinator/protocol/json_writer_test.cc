#include "coordinator/protocol/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
