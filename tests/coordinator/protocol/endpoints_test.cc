#include <gtest/gtest.h>

#include "coordinator/protocol/models.h"
#include "coordinator/protocol/tokenize.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

using Endpoints = ProtocolFixture;

std::string text_or_param(const Result<std::string>& result) {
  return result ? *result : "error: " + result.error().param;
}

TEST_F(Endpoints, TokenizeRecognisesSpecialTokensAndShowsPieces) {
  EXPECT_EQ(text_or_param(
                tokenize_reply(R"({"prompt":"a é<eos>","return_token_strs":true})", *tokenizer, templates, model, 64)),
            R"({"count":5,"max_model_len":64,"tokens":[97,32,195,169,256],"token_strs":["a","Ġ","Ã","©","<eos>"]})");
  EXPECT_EQ(
      text_or_param(tokenize_reply(R"({"prompt":"","model":"tiny"})", *tokenizer, templates, model, std::nullopt)),
      R"({"count":0,"max_model_len":null,"tokens":[],"token_strs":null})");
}

TEST_F(Endpoints, TokenizeNamesWhatIsWrong) {
  EXPECT_EQ(text_or_param(tokenize_reply(R"({})", *tokenizer, templates, model, 64)), "error: prompt");
  EXPECT_EQ(text_or_param(tokenize_reply(R"({"prompt":["a"]})", *tokenizer, templates, model, 64)), "error: prompt");
  EXPECT_EQ(text_or_param(tokenize_reply(R"({"prompt":"a","model":"x"})", *tokenizer, templates, model, 64)),
            "error: model");
  EXPECT_EQ(text_or_param(tokenize_reply(R"({"messages":[]})", *tokenizer, templates, model, 64)), "error: messages");
  EXPECT_EQ(text_or_param(tokenize_reply(R"({"prompt":"a","messages":[]})", *tokenizer, templates, model, 64)),
            "error: messages");
}

TEST_F(Endpoints, TokenizeReadsMessagesAsChatDoes) {
  tokenizer = load_tiny_tokenizer(true);
  EXPECT_EQ(text_or_param(
                tokenize_reply(R"({"messages":[{"role":"user","content":"h"}]})", *tokenizer, templates, model, 64)),
            R"({"count":5,"max_model_len":64,"tokens":[117,58,104,256,33],"token_strs":null})");
  EXPECT_EQ(
      text_or_param(tokenize_reply(
          R"({"messages":[{"role":"user","content":"h"}],"add_generation_prompt":false,"add_special_tokens":true})",
          *tokenizer, templates, model, 64)),
      R"({"count":6,"max_model_len":64,"tokens":[258,117,58,104,256,257],"token_strs":null})");
  EXPECT_EQ(text_or_param(
                tokenize_reply(R"({"messages":[{"role":"robot","content":"h"}]})", *tokenizer, templates, model, 64)),
            "error: messages.0.role");
}

TEST_F(Endpoints, DetokenizeKeepsSpecialTokensAndChecksIds) {
  EXPECT_EQ(text_or_param(detokenize_reply(R"({"tokens":[97,32,195,169,256,299]})", *tokenizer, model, 300)),
            R"({"prompt":"a é<eos>"})");
  EXPECT_EQ(text_or_param(detokenize_reply(R"({"tokens":[]})", *tokenizer, model, 300)), R"({"prompt":""})");
  EXPECT_EQ(text_or_param(detokenize_reply(R"({"tokens":[300]})", *tokenizer, model, 300)), "error: tokens");
  EXPECT_EQ(text_or_param(detokenize_reply(R"({"tokens":[-1]})", *tokenizer, model, 300)), "error: tokens");
  EXPECT_EQ(text_or_param(detokenize_reply(R"({"tokens":[4294967393]})", *tokenizer, model, 300)), "error: tokens");
  EXPECT_EQ(text_or_param(detokenize_reply(R"({})", *tokenizer, model, 300)), "error: tokens");
}

TEST_F(Endpoints, TokenizerInfoHasTheKeysThatLmEvalProbes) {
  EXPECT_EQ(
      tokenizer_info_reply(*tokenizer, {}),
      R"({"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<bos>","eos_token":"<eos>","pad_token":null,"chat_template":null})");
}

TEST_F(Endpoints, R34ModelsAdvertisesWhatTheCoreCanReport) {
  const std::string full = models_reply(model, capabilities);
  EXPECT_NE(
      full.find(
          R"("id":"tiny","object":"model","created":1767225600,"owned_by":"helios","root":"/models/tiny","parent":null,"max_model_len":64)"),
      std::string::npos)
      << full;
  EXPECT_NE(full.find(R"("allow_logprobs":true)"), std::string::npos);
  EXPECT_NE(full.find(R"("logprobs":{"max_top":20,"max_token_ids":128,"prompt":false})"), std::string::npos);
  Capabilities scoring = capabilities;
  scoring.prompt_scoring = true;  // R45
  EXPECT_NE(models_reply(model, scoring).find(R"("max_token_ids":128,"prompt":true})"), std::string::npos);
  capabilities.max_logprobs = 0;
  capabilities.logprob_token_ids = false;
  const std::string none = models_reply(model, capabilities);
  EXPECT_NE(none.find(R"("allow_logprobs":false)"), std::string::npos);
  EXPECT_NE(none.find(R"("logprobs":{"max_top":0,"max_token_ids":0,"prompt":false})"), std::string::npos);
  EXPECT_NE(models_reply(model, std::nullopt).find(R"("max_model_len":null)"), std::string::npos);
}

TEST_F(Endpoints, OneModelIsItsCardOr404) {
  EXPECT_EQ(text_or_param(model_reply("tiny", model, capabilities)).substr(0, 13), R"({"id":"tiny",)");
  EXPECT_EQ(text_or_param(model_reply("other", model, capabilities)), "error: model");
}

}  // namespace
}  // namespace helios::testing
