// Which file wins, and that odd values are errors with path and key.
#include "coordinator/tokenizer/generation_defaults.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/coordinator/tokenizer/golden_data.h"

namespace helios {
namespace {

Result<GenerationDefaults> load(const std::string& config, const std::string& generation) {
  testing::TemporaryDirectory dir;
  if (!config.empty()) std::ofstream(dir.path() + "/config.json") << config;
  if (!generation.empty()) std::ofstream(dir.path() + "/generation_config.json") << generation;
  return load_generation_defaults(dir.path());
}

TEST(GenerationDefaults, GenerationConfigWins) {
  const auto defaults = load(
      R"({"eos_token_id": 7, "max_position_embeddings": 512, "temperature": 0.1})",
      R"({"eos_token_id": [2, 1, 2], "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05})");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message;
  EXPECT_EQ(defaults->eos_ids, (std::vector<TokenId>{2, 1}));
  EXPECT_EQ(defaults->max_position_embeddings, 512);
  EXPECT_EQ(defaults->temperature, 0.7f);
  EXPECT_EQ(defaults->top_k, 40);
  EXPECT_EQ(defaults->top_p, 0.95f);
  EXPECT_EQ(defaults->min_p, 0.05f);
  EXPECT_EQ(defaults->repetition_penalty, 1.05f);
}

TEST(GenerationDefaults, ConfigFillsWhatIsMissing) {
  const auto defaults = load(R"({"eos_token_id": 7, "max_position_embeddings": 512})", R"({"eos_token_id": null})");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->eos_ids, std::vector<TokenId>{7});
  EXPECT_FALSE(defaults->temperature || defaults->top_k || defaults->top_p || defaults->min_p ||
               defaults->repetition_penalty);
  EXPECT_TRUE(load("", "").ok());
}

TEST(GenerationDefaults, OddValuesAreErrors) {
  for (const char* text :
       {R"({"eos_token_id": -1})", R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, null]})",
        R"({"eos_token_id": 4294967296})", R"({"temperature": -1})", R"({"temperature": "hot"})", R"({"top_p": 1.5})",
        R"({"min_p": -0.1})", R"({"repetition_penalty": 0})", R"({"repetition_penalty": "x"})", R"({"top_k": 1.5})",
        R"({"top_k": -2})", "[]", "{", "\xFF"}) {
    const auto defaults = load("{}", text);
    ASSERT_FALSE(defaults.ok()) << text;
    EXPECT_EQ(defaults.error().code, Errc::kCorruptFile);
    EXPECT_NE(defaults.error().message.find("generation_config.json"), std::string::npos) << defaults.error().message;
  }
  EXPECT_FALSE(load(R"({"max_position_embeddings": 0})", "").ok());
  EXPECT_TRUE(load(R"({"vocab_size": 8, "eos_token_id": 7})", "").ok());
  const auto beyond = load(R"({"vocab_size": 8})", R"({"eos_token_id": [7, 8]})");
  ASSERT_FALSE(beyond.ok()) << "no request could be served";
  EXPECT_NE(beyond.error().message.find("generation_config.json: eos_token_id"), std::string::npos);
  EXPECT_NE(beyond.error().message.find("8"), std::string::npos);
  EXPECT_FALSE(load(R"({"vocab_size": 8, "eos_token_id": 8})", "").ok());
}

TEST(GenerationDefaults, ReadsTheReferenceModels) {
  HELIOS_NEED_TEST_DATA(models, "models");
  const auto demo = load_generation_defaults(models + "/helios-demo");
  ASSERT_TRUE(demo.ok());
  EXPECT_EQ(demo->eos_ids, (std::vector<TokenId>{1529, 1527}));
  EXPECT_EQ(demo->max_position_embeddings, 2048);
  EXPECT_EQ(demo->top_k, 40);
  EXPECT_EQ(load_generation_defaults(models + "/stories260k/f32")->eos_ids, (std::vector<TokenId>{2, 1}));
}

}  // namespace
}  // namespace helios
