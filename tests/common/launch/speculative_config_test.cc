#include "common/launch/speculative_config.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace helios {
namespace {

std::string complaint(const std::string& json) {
  const auto config = parse_speculative_config(json);
  return config ? "accepted" : config.error().message;
}

TEST(SpeculativeConfig, ReadsEveryMemberAndFillsInTheOthers) {
  const struct {
    const char* members;
    int32_t min, max;
  } cases[] = {{"", 5, 5},
               {R"(,"prompt_lookup_max":7)", 7, 7},
               {R"(,"prompt_lookup_max":1)", 1, 1},
               {R"(,"prompt_lookup_min":3)", 3, 3},
               {R"(,"prompt_lookup_min":9)", 9, 9},
               {R"(,"prompt_lookup_min":1,"prompt_lookup_max":16)", 1, 16}};
  for (const auto& one : cases) {
    const auto config =
        parse_speculative_config(std::string(R"({"method":"ngram","num_speculative_tokens":5)") + one.members + "}");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->num_tokens, 5);
    EXPECT_EQ(config->lookup_min, one.min) << one.members;
    EXPECT_EQ(config->lookup_max, one.max) << one.members;
  }
}

TEST(SpeculativeConfig, EveryOtherValueIsRefusedByName) {
  const auto with = [](const std::string& members) { return R"({"method":"ngram",)" + members + "}"; };
  const std::pair<std::string, const char*> cases[] = {
      {"", "expected a JSON object"},
      {"{", "expected a JSON object"},
      {"4", "expected a JSON object"},
      {"[]", "expected a JSON object"},
      {R"({"num_speculative_tokens":4})", "method: expected \"ngram\", found none"},
      {R"({"method":"eagle","num_speculative_tokens":4})", "method: expected \"ngram\", found \"eagle\""},
      {R"({"method":null,"num_speculative_tokens":4})", "method: expected \"ngram\", found null"},
      {R"({"method":"ngram"})", "num_speculative_tokens is missing"},
      {with(R"("num_speculative_tokens":0)"), "num_speculative_tokens: expected a number from 1 to 15, found 0"},
      {with(R"("num_speculative_tokens":16)"), "num_speculative_tokens: expected a number from 1 to 15, found 16"},
      {with(R"("num_speculative_tokens":-1)"), "found -1"},
      {with(R"("num_speculative_tokens":2.5)"), "num_speculative_tokens: expected a number"},
      {with(R"("num_speculative_tokens":"4")"), "found \"4\""},
      {with(R"("num_speculative_tokens":true)"), "found true"},
      {with(R"("num_speculative_tokens":99999999999999999999)"), "num_speculative_tokens: expected a number"},
      {with(R"("num_speculative_tokens":4,"prompt_lookup_max":17)"),
       "prompt_lookup_max: expected a number from 1 to 16"},
      {with(R"("num_speculative_tokens":4,"prompt_lookup_min":0)"),
       "prompt_lookup_min: expected a number from 1 to 16"},
      {with(R"("num_speculative_tokens":4,"prompt_lookup_min":5,"prompt_lookup_max":4)"),
       "prompt_lookup_min 5 is above prompt_lookup_max 4"},
      {with(R"("num_speculative_tokens":4,"model":"draft")"), "unknown member \"model\""},
      {with(R"("num_speculative_tokens":4,"draft_tensor_parallel_size":2)"), "\"draft_tensor_parallel_size\""}};
  for (const auto& [json, mentions] : cases) {
    const std::string message = complaint(json);
    EXPECT_NE(message.find(mentions), std::string::npos) << json << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 200u) << message;
  }
}

TEST(SpeculativeConfig, AnyTextIsReadOrRefused) {
  static constexpr char kBytes[] = "{}[]\",:0919.eE-\\tn \xff";
  const std::string good = R"({"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4})";
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (uint32_t i = 1 + random() % 4; i > 0 && !text.empty(); --i) {
      const size_t at = random() % text.size();
      const char c = kBytes[random() % (sizeof kBytes - 1)];
      random() % 2 ? text.replace(at, 1, 1, c) : random() % 2 ? text.insert(at, 1, c) : text.erase(at, random() % 9);
    }
    const auto config = parse_speculative_config(text);
    if (!config) continue;
    EXPECT_TRUE(config->num_tokens >= 1 && config->num_tokens <= kMostProposals) << text;
    EXPECT_TRUE(config->lookup_min >= 1 && config->lookup_min <= config->lookup_max) << text;
  }
}

}  // namespace
}  // namespace helios
