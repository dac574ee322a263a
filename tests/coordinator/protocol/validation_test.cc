#include "coordinator/protocol/validation.h"

#include <gtest/gtest.h>

#include "coordinator/protocol/api_error.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

struct Validation : ProtocolFixture {
  void expect_refused(const Refusal& expected) const { expect_refusal(plan(expected.body), expected); }
  void expect_refused(std::initializer_list<Refusal> list) const {
    for (const Refusal& one : list) expect_refused(one);
  }
  GenerationPlan accepted(const std::string& body) const {
    auto result = plan(body);
    EXPECT_TRUE(result) << body << ": " << (result ? "" : result.error().message);
    return result ? std::move(*result) : GenerationPlan{};
  }
};

TEST_F(Validation, Row1JsonAndObject) {
  expect_refused({{"", 400, "", "not valid JSON"},
                  {"{\"prompt\":\"a\"", 400, "", "not valid JSON"},
                  {"{\"prompt\":\"a\"} x", 400, "", "not valid JSON"},
                  {"[1]", 400, "", "object"},
                  {"{\"prompt\":\"a\",\"temperature\":NaN}", 400, "", "not valid JSON"},
                  {"{\"prompt\":\"a\",\"temperature\":Infinity}", 400, "", "not valid JSON"},
                  {"{\"prompt\":\"\xFF\"}", 400, "", "not valid JSON"},
                  {"{\"prompt\":\"\\ud800\"}", 400, "", "not valid JSON"}});
  std::string deep = R"({"x":)" + std::string(1000, '[') + std::string(1000, ']') + "}";
  expect_refused({deep.c_str(), 400, "", "not valid JSON"});
  EXPECT_EQ(accepted(R"({"prompt":"a","prompt":"bc"})").prompts[0].ids.size(), 2u) << "the last of repeated keys";
  accepted(" {\"prompt\":\"a\", \"unknown\": {\"x\": [1, null]}}\n");
}

TEST_F(Validation, Row2Types) {
  expect_refused({{R"({"prompt":"a","max_tokens":"5"})", 400, "max_tokens", "a string"},
                  {R"({"prompt":"a","max_tokens":true})", 400, "max_tokens", "a boolean"},
                  {R"({"prompt":"a","max_tokens":2.5})", 400, "max_tokens", "integer"},
                  {R"({"prompt":"a","temperature":"nan"})", 400, "temperature", "a string"},
                  {R"({"prompt":"a","temperature":1e400})", 400, "temperature", "finite"},
                  {R"({"prompt":"a","temperature":true})", 400, "temperature", "a boolean"},
                  {R"({"prompt":"a","stream":1})", 400, "stream", "boolean"},
                  {R"({"prompt":"a","seed":100000000000000000000})", 400, "seed", "integer"},
                  {R"({"prompt":"a","seed":9223372036854775808})", 400, "seed", "integer"},
                  {R"({"prompt":"a","seed":-100000000000000000000})", 400, "seed", "integer"},
                  {R"({"prompt":"a","seed":1.5})", 400, "seed", "integer"},
                  {R"({"prompt":"a","stop":[1]})", 400, "stop", "strings"},
                  {R"({"prompt":"a","stop":{}})", 400, "stop", "string"},
                  {R"({"prompt":"a","stop_token_ids":[true]})", 400, "stop_token_ids", "integers"},
                  {R"({"prompt":"a","logprobs":"5"})", 400, "logprobs", "a string"},
                  {R"({"prompt":"a","logprobs":2.5})", 400, "logprobs", "integer"},
                  {R"({"prompt":"a","logprobs":[1]})", 400, "logprobs", "an array"},
                  {R"({"prompt":"a","logprobs":1e30})", 400, "logprobs", "integer"},
                  {R"({"prompt":"a","stream":true,"stream_options":{"include_usage":1}})", 400,
                   "stream_options.include_usage", "boolean"},
                  {R"({"prompt":"a","logit_bias":{"5":"x"}})", 400, "logit_bias.5", "a string"},
                  {R"({"prompt":"a","thinking_token_budget":true})", 400, "thinking_token_budget", "integer"},
                  {R"({"model":5,"prompt":"a"})", 400, "model", "a string"}});
  EXPECT_EQ(accepted(R"({"prompt":"a","max_tokens":2.0})").sequences[0].sampling.max_tokens, 2);
  EXPECT_EQ(accepted(R"({"prompt":"a","temperature":null,"n":null,"stop":null,"stream_options":null})").n, 1);
}

TEST_F(Validation, Row3Model) {
  expect_refused({R"({"model":"other","prompt":"a"})", 404, "model", "tiny"});
  expect_refused({R"({"model":"other","prompt":"a","max_tokens":-1})", 404, "model", "tiny"});
  accepted(R"({"model":"tiny","prompt":"a"})");
  accepted(R"({"model":"","prompt":"a"})");
}

TEST_F(Validation, Row4StreamOptions) {
  expect_refused({R"({"prompt":"a","stream_options":{"include_usage":null}})", 400, "stream_options", "stream"});
  accepted(R"({"prompt":"a","stream_options":{}})");
  const GenerationPlan p =
      accepted(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  EXPECT_TRUE(p.stream && p.stream_options.include_usage && p.stream_options.continuous_usage_stats);
}

TEST_F(Validation, Row5Ranges) {
  expect_refused({{R"({"prompt":"a","temperature":-0.5})", 400, "temperature", "[0, 2]"},
                  {R"({"prompt":"a","temperature":2.1})", 400, "temperature", "[0, 2]"},
                  {R"({"prompt":"a","top_p":0})", 400, "top_p", "(0, 1]"},
                  {R"({"prompt":"a","top_p":1e-300})", 400, "top_p", "small"},
                  {R"({"prompt":"a","top_p":1.1})", 400, "top_p", "(0, 1]"},
                  {R"({"prompt":"a","top_k":-2})", 400, "top_k", "-1"},
                  {R"({"prompt":"a","min_p":-0.1})", 400, "min_p", "[0, 1]"},
                  {R"({"prompt":"a","presence_penalty":3})", 400, "presence_penalty", "[-2, 2]"},
                  {R"({"prompt":"a","frequency_penalty":-3})", 400, "frequency_penalty", "[-2, 2]"},
                  {R"({"prompt":"a","repetition_penalty":0})", 400, "repetition_penalty", "above 0"},
                  {R"({"prompt":"a","repetition_penalty":-1})", 400, "repetition_penalty", "above 0"},
                  {R"({"prompt":"a","repetition_penalty":1e-50})", 400, "repetition_penalty", "32-bit"},
                  {R"({"prompt":"a","repetition_penalty":1e50})", 400, "repetition_penalty", "32-bit"},
                  {R"({"prompt":"a","stream_interval":0})", 400, "stream_interval", "1"},
                  {R"({"prompt":"a","truncate_prompt_tokens":0})", 400, "truncate_prompt_tokens", "1"},
                  {R"({"prompt":"a","truncate_prompt_tokens":-2})", 400, "truncate_prompt_tokens", "1"},
                  {R"({"prompt":"a","truncation_side":"middle"})", 400, "truncation_side", "left"},
                  {R"({"prompt":"a","n":0})", 400, "n", "[1, 16384]"},
                  {R"({"prompt":"a","n":4000000})", 400, "n", "[1, 16384]"},
                  {R"({"prompt":"a","n":16384})", 400, "n", "2048"},
                  {R"({"prompt":"a","best_of":2})", 400, "best_of", "n = 1"},
                  {R"({"prompt":"a","max_tokens":0})", 400, "max_tokens", "at least 1"},
                  {R"({"prompt":"a","max_tokens":-1,"echo":true})", 400, "max_tokens", "at least 1"},
                  {R"({"prompt":"a","max_tokens":2,"min_tokens":3})", 400, "min_tokens", "max_tokens = 2"},
                  {R"({"prompt":"a","min_tokens":-1})", 400, "min_tokens", "0"},
                  {R"({"prompt":"a","stop":""})", 400, "stop", "empty"},
                  {R"({"prompt":"a","stop":["x",""]})", 400, "stop", "empty"},
                  {R"({"prompt":"a","cache_salt":"a@b"})", 400, "cache_salt", "none of"},
                  {R"({"prompt":"a","request_id":""})", 400, "request_id", "1 to"}});
  std::string many = R"({"prompt":"a","stop":["x")";
  for (int i = 0; i < 64; ++i) many += ",\"y" + std::to_string(i) + '"';
  expect_refused({(many + "]}").c_str(), 400, "stop", "64"});
  expect_refused({(R"({"prompt":"a","stop":")" + std::string(70000, 'x') + "\"}").c_str(), 400, "stop", "bytes"});
}

TEST_F(Validation, Row6Prompt) {
  expect_refused({{R"({})", 400, "prompt", "required"},
                  {R"({"prompt":null})", 400, "prompt", "required"},
                  {R"({"prompt":""})", 400, "prompt", "empty"},
                  {R"({"prompt":[]})", 400, "prompt", "empty"},
                  {R"({"prompt":[[]]})", 400, "prompt", "empty"},
                  {R"({"prompt":["a",""]})", 400, "prompt", "empty"},
                  {R"({"prompt":5})", 400, "prompt", "an integer"},
                  {R"({"prompt":{"a":1}})", 400, "prompt", "an object"},
                  {R"({"prompt":[true]})", 400, "prompt", "a boolean"},
                  {R"({"prompt":["a",1]})", 400, "prompt", "found an integer"},
                  {R"({"prompt":[1,"a"]})", 400, "prompt", "found a string"},
                  {R"({"prompt":[[1],["a"]]})", 400, "prompt", "found a string"},
                  {R"({"prompt":[1.5]})", 400, "prompt", "number"}});
  std::string many = R"({"prompt":["x")";
  for (int i = 0; i < 1024; ++i) many += ",\"x\"";
  expect_refused({(many + "]}").c_str(), 400, "prompt", "1024"});
}

TEST_F(Validation, Row7LogprobsWithinK) {
  expect_refused({{R"({"prompt":"a","logprobs":21})", 400, "logprobs", "logprobs=21 is greater than max allowed: 20"},
                  {R"({"prompt":"a","logprobs":2147483648})", 400, "logprobs", "20"},
                  {R"({"prompt":"a","logprobs":-1})", 400, "logprobs", "20"},
                  {R"({"prompt":"a","logprobs":-2})", 400, "logprobs", "negative"}});
  EXPECT_FALSE(accepted(R"({"prompt":"a"})").logprobs);
  EXPECT_FALSE(accepted(R"({"prompt":"a","logprobs":false})").logprobs);
  const GenerationPlan zero = accepted(R"({"prompt":"a","logprobs":0})");
  EXPECT_TRUE(zero.logprobs && zero.sequences[0].logprobs);
  EXPECT_EQ(zero.sequences[0].num_logprobs, 0);
  EXPECT_EQ(accepted(R"({"prompt":"a","logprobs":true})").sequences[0].num_logprobs, 1);
  EXPECT_EQ(accepted(R"({"prompt":"a","logprobs":2.0})").sequences[0].num_logprobs, 2);
  EXPECT_EQ(accepted(R"({"prompt":"a","logprobs":20})").sequences[0].num_logprobs, 20);
}

TEST_F(Validation, Row9SelectedIds) {
  const auto with = [](const std::string& ids) {
    return R"({"prompt":"a","logprobs":0,"logprob_token_ids":)" + ids + "}";
  };
  for (const char* ids : {"[]", "[300]", "[-1]", "[4294967296]", "[9223372036854775808]", "[1.5]", "[true]", "[\"5\"]",
                          "[[0],[1]]", "{\"a\":1}", "7", "[5,5]"}) {
    expect_refused({with(ids).c_str(), 400, "logprob_token_ids", "logprob_token_ids"});
  }
  std::string ids128 = "[0", ids129;
  for (int i = 1; i < 128; ++i) ids128 += "," + std::to_string(i);
  ids129 = ids128 + ",128]";
  ids128 += "]";
  expect_refused({with(ids129).c_str(), 400, "logprob_token_ids", "128"});
  EXPECT_EQ(accepted(with(ids128)).sequences[0].logprob_token_ids.size(), 128u);
  EXPECT_EQ(accepted(with("[299,2.0,7]")).sequences[0].logprob_token_ids, (std::vector<TokenId>{299, 2, 7}));
  expect_refused({{R"({"prompt":"a","logprob_token_ids":[1]})", 400, "logprob_token_ids", "needs logprobs"},
                  {R"({"prompt":"a","logprobs":0,"echo":true,"max_tokens":0,"logprob_token_ids":[1]})", 400,
                   "logprob_token_ids", "max_tokens"}});
}

TEST_F(Validation, Row10PromptLogprobs) {
  expect_refused({{R"({"prompt":"a","prompt_logprobs":1,"stream":true})", 400, "prompt_logprobs", "streaming"},
                  {R"({"prompt":"a","prompt_logprobs":-1})", 400, "prompt_logprobs", "20"},
                  {R"({"prompt":"a","prompt_logprobs":21})", 400, "prompt_logprobs", "20"}});
}

TEST_F(Validation, Row11PromptScoringNamesItsRemedy) {
  expect_refused({{R"({"prompt":"a","prompt_logprobs":0})", 400, "prompt_logprobs", "--prompt-logprobs"},
                  {R"({"prompt":"a","prompt_logprobs":1,"max_tokens":0})", 400, "prompt_logprobs", "--prompt-logprobs"},
                  {R"({"prompt":"a","echo":true,"logprobs":1})", 400, "echo", "--prompt-logprobs"}});
}

TEST_F(Validation, APlanSaysHowItsPromptIsScored) {  // R46
  capabilities.prompt_scoring = true;
  const GenerationPlan echo = accepted(R"({"prompt":["ab","c"],"echo":true,"logprobs":2,"max_tokens":0,"n":2})");
  ASSERT_EQ(echo.sequences.size(), 2u) << "once a prompt, whatever n";
  EXPECT_TRUE(echo.scores_in_every_choice);
  const GenerationPlan each = accepted(R"({"prompt":["ab","c"],"prompt_logprobs":2,"n":2})");
  ASSERT_EQ(each.sequences.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(each.sequences[i].prompt_scores, i % 2 == 0);
  for (const SequenceRequest& sequence : echo.sequences) {
    EXPECT_TRUE(sequence.prompt_scores);
    EXPECT_EQ(sequence.num_prompt_logprobs, 2);
    EXPECT_EQ(sequence.sampling.max_tokens, 0);
  }
  EXPECT_EQ(echo.prompt_scoring.echo_alternatives, 2);
  EXPECT_FALSE(echo.prompt_scoring.list_alternatives.has_value());
  EXPECT_TRUE(echo.output.keep_terminating_entry) << "wire formats, 0.1";
  EXPECT_EQ(echo.prompts[0].text_offsets, (std::vector<int64_t>{0, 1}));

  const GenerationPlan both = accepted(R"({"prompt":[1,2],"echo":true,"logprobs":0,"prompt_logprobs":20})");
  EXPECT_EQ(both.sequences[0].num_prompt_logprobs, 20);
  const GenerationPlan list = accepted(R"({"prompt":"ab","prompt_logprobs":0,"max_tokens":0})");
  EXPECT_EQ(list.sequences.size(), 1u);
  EXPECT_FALSE(list.output.keep_terminating_entry);
  EXPECT_FALSE(list.logprobs);

  const GenerationPlan stream = accepted(R"({"prompt":"ab","prompt_logprobs":0,"stream":true})");
  EXPECT_FALSE(stream.sequences[0].prompt_scores) << "a stream returns no list";
  for (const char* unscored : {R"({"prompt":"ab","logprobs":3})", R"({"prompt":"ab","echo":true})"}) {
    EXPECT_FALSE(accepted(unscored).sequences[0].prompt_scores) << "R43";
  }
  EXPECT_TRUE(accepted(R"({"prompt":"ab","echo":true,"max_tokens":0})").sequences.empty());
}

TEST_F(Validation, ABatchOfScoredPromptsHasABoundASinglePromptHasNone) {
  capabilities.prompt_scoring = true;
  limits.max_prompt_values = 12;
  accepted(R"({"prompt":["abc","def"],"prompt_logprobs":1})");
  accepted(R"({"prompt":"abcdefghijkl","prompt_logprobs":20})");
  accepted(R"({"prompt":["abcd","def"],"echo":true,"logprobs":1,"stream":true})");
  expect_refused({{R"({"prompt":["abcd","def"],"prompt_logprobs":1})", 400, "prompt", "14 prompt logprobs, at most 12"},
                  {R"({"prompt":"abcd","n":2,"echo":true,"logprobs":1})", 400, "prompt", "16 prompt logprobs"}});
}

TEST_F(Validation, OffsetsLeaveOutWhatTheTokenizerPutAroundAText) {
  capabilities.prompt_scoring = true;
  tokenizer = load_tiny_tokenizer(true);
  const GenerationPlan text = accepted(R"({"prompt":"é!","echo":true,"logprobs":0})");
  EXPECT_EQ(text.prompts[0].ids, (std::vector<TokenId>{258, 0xC3, 0xA9, '!', 257}));
  EXPECT_EQ(text.prompts[0].text_offsets, (std::vector<int64_t>{0, 0, 0, 1, 2}));
  const GenerationPlan ids = accepted(R"({"prompt":[258,33],"echo":true,"logprobs":0})");
  EXPECT_EQ(ids.prompts[0].echo_text, "<bos>!");
  EXPECT_EQ(ids.prompts[0].text_offsets, (std::vector<int64_t>{0, 5}));
  const GenerationPlan cut = accepted(R"({"prompt":"abcd","truncate_prompt_tokens":4,"echo":true,"logprobs":0})");
  EXPECT_EQ(cut.prompts[0].echo_text, "cd");
  EXPECT_EQ(cut.prompts[0].text_offsets, (std::vector<int64_t>{0, 0, 1, 2}));
}

TEST_F(Validation, R34ACoreWithoutLogprobsRefusesThemAndServesTheRest) {
  capabilities.max_logprobs = 0;
  capabilities.logprob_token_ids = false;
  expect_refused({{R"({"prompt":"a","logprobs":0})", 400, "logprobs", "--max-logprobs"},
                  {R"({"prompt":"a","logprobs":5})", 400, "logprobs", "--max-logprobs"}});
  EXPECT_FALSE(accepted(R"({"prompt":"a"})").logprobs);
}

TEST_F(Validation, R35ACoreWithoutIdInputsReportsNaturalAlternativesOnly) {
  capabilities.max_logprobs = 5;
  capabilities.logprob_token_ids = false;
  expect_refused({{R"({"prompt":"a","logprobs":6})", 400, "logprobs", "greater than max allowed: 5"},
                  {R"({"prompt":"a","logprobs":1,"logprob_token_ids":[1]})", 400, "logprob_token_ids", "id inputs"}});
  EXPECT_EQ(accepted(R"({"prompt":"a","logprobs":5})").sequences[0].num_logprobs, 5);
}

TEST_F(Validation, Row12AndWhatIsKnownButNotBuilt) {
  expect_refused({{R"({"prompt":"a","prompt_embeds":"x"})", 501, "prompt_embeds", "built"},
                  {R"({"prompt":"a","bad_words":[""]})", 400, "bad_words", "empty"},
                  {R"({"prompt":"a","bad_words":"x"})", 400, "bad_words", "array"},
                  {R"({"prompt":"a","suffix":"x"})", 400, "suffix", "supported"},
                  {R"({"prompt":"a","use_beam_search":true})", 400, "use_beam_search", "supported"},
                  {R"({"prompt":"a","thinking_token_budget":-1})", 400, "thinking_token_budget", "reasoning"}});
  accepted(
      R"({"prompt":"a","response_format":{"type":"text"},"presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1,
    "logit_bias":{"5":0,"6":-0.0},"bad_words":[],"suffix":"","use_beam_search":false,"length_penalty":0.7,"best_of":1,"stream_interval":1,
    "guided_json":null,"priority":3,"user":"u","session_id":7,"spaces_between_special_tokens":false,"cache_salt":"s"})");
}

TEST_F(Validation, BadWordsAreTheTokensThatSpellThem) {
  using Ids = std::vector<std::vector<TokenId>>;
  EXPECT_EQ(accepted(R"({"prompt":"a","bad_words":["hi"," hi"]})").sequences[0].bad_words,
            (Ids{{' ', 'h', 'i'}, {'h', 'i'}}));
  EXPECT_EQ(accepted(R"({"prompt":"a","bad_words":["\n","<eos>"]})").sequences[0].bad_words,
            (Ids{{'\n'}, {' ', 256}, {256}}));
  EXPECT_TRUE(accepted(R"({"prompt":"a","bad_words":[]})").sequences[0].bad_words.empty());
  limits.max_bad_words = 2;
  limits.max_bad_word_bytes = 5;
  accepted(R"({"prompt":"a","bad_words":["abc","de"]})");
  expect_refused({{R"({"prompt":"a","bad_words":["a","b","c"]})", 400, "bad_words", "at most 2 words, got 3"},
                  {R"({"prompt":"a","bad_words":["abc","def"]})", 400, "bad_words", "at most 5 bytes in all, got 6"}});
  capabilities.vocab_size = 100;
  expect_refused({{R"({"prompt":"a","bad_words":["x"]})", 400, "bad_words", "out of vocabulary"}});
}

TEST_F(Validation, PriorityAndCacheSaltReachTheScheduler) {
  const GenerationPlan plan = accepted(R"({"prompt":["a","b"],"priority":-7,"cache_salt":"s"})");
  for (const SequenceRequest& sequence : plan.sequences) {
    EXPECT_EQ(sequence.priority, -7);
    EXPECT_EQ(sequence.cache_salt, "s");
  }
  EXPECT_EQ(accepted(R"({"prompt":"a"})").sequences[0].priority, 0);
  EXPECT_EQ(accepted(R"({"prompt":"a"})").sequences[0].cache_salt, "");
}

TEST_F(Validation, Row13Vocabulary) {
  expect_refused({{R"({"prompt":[300]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":[-1]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":[[1],[-1]]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":[4294967301]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":[18446744073709551617]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":[9223372036854775808]})", 400, "prompt", "out of vocabulary"},
                  {R"({"prompt":"a","stop_token_ids":[300]})", 400, "stop_token_ids", "out of vocabulary"}});
  EXPECT_EQ(accepted(R"({"prompt":[299, 2.0]})").prompts[0].ids, (std::vector<TokenId>{299, 2}));
  capabilities.vocab_size = 100;  // a tokenizer that knows more than the model
  expect_refused({R"({"prompt":"é"})", 400, "prompt", "out of vocabulary"});
}

TEST_F(Validation, Row13BiasedAndAllowedIds) {
  expect_refused({{R"({"prompt":"a","logit_bias":{"300":0}})", 400, "logit_bias", "[0, 300)"},
                  {R"({"prompt":"a","logit_bias":{"-1":0}})", 400, "logit_bias", "[0, 300)"},
                  {R"({"prompt":"a","logit_bias":{"4294967301":0}})", 400, "logit_bias", "[0, 300)"},
                  {R"({"prompt":"a","logit_bias":{"99999999999999999999":0}})", 400, "logit_bias", "[0, 300)"},
                  {R"({"prompt":"a","logit_bias":{"x":0}})", 400, "logit_bias", "token id"},
                  {R"({"prompt":"a","logit_bias":{"":0}})", 400, "logit_bias", "token id"},
                  {R"({"prompt":"a","logit_bias":{"5 ":0}})", 400, "logit_bias", "token id"},
                  {R"({"prompt":"a","logit_bias":{"5.0":0}})", 400, "logit_bias", "token id"},
                  {R"({"prompt":"a","logit_bias":{"5":0,"05":0}})", 400, "logit_bias", "5 is listed twice"},
                  {R"({"prompt":"a","logit_bias":{"5":1e999}})", 400, "logit_bias.5", "finite"},
                  {R"({"prompt":"a","logit_bias":[1]})", 400, "logit_bias", "an array"}});
  expect_refused({{R"({"prompt":"a","allowed_token_ids":[]})", 400, "allowed_token_ids", "empty"},
                  {R"({"prompt":"a","allowed_token_ids":[300]})", 400, "allowed_token_ids", "out of vocabulary"},
                  {R"({"prompt":"a","allowed_token_ids":[-1]})", 400, "allowed_token_ids", "out of vocabulary"},
                  {R"({"prompt":"a","allowed_token_ids":["1"]})", 400, "allowed_token_ids", "a string"},
                  {R"({"prompt":"a","allowed_token_ids":[256,257],"min_tokens":1})", 400, "allowed_token_ids", "EOS"},
                  {R"({"prompt":"a","allowed_token_ids":[7],"stop_token_ids":[7],"min_tokens":1})", 400,
                   "allowed_token_ids", "EOS"}});
  accepted(R"({"prompt":"a","allowed_token_ids":[256,7],"min_tokens":1})");
  accepted(R"({"prompt":"a","allowed_token_ids":[256]})");
  std::string many = R"({"prompt":"a","logit_bias":{"0":0)";
  for (int i = 1; i <= 1024; ++i) many += ",\"" + std::to_string(i) + "\":0";
  expect_refused({(many + "}}").c_str(), 400, "logit_bias", "at most 1024 token ids, got 1025"});
}

TEST_F(Validation, Row14Length) {
  const std::string text60(60, 'x'), text64(64, 'x');
  expect_refused({{(R"({"prompt":")" + text60 + R"(","max_tokens":5})").c_str(), 400, "prompt", "64"},
                  {(R"({"prompt":")" + text64 + R"("})").c_str(), 400, "prompt", "64"},
                  {R"({"prompt":"a","max_tokens":9223372036854775807})", 400, "prompt", "64"}});
  EXPECT_EQ(accepted(R"({"prompt":")" + text60 + R"(","max_tokens":4})").sequences[0].sampling.max_tokens, 4);
  EXPECT_EQ(accepted(R"({"prompt":")" + text60 + R"("})").sequences[0].sampling.max_tokens, 4)
      << "the default is cut to what fits";
  EXPECT_EQ(accepted(R"({"prompt":"a"})").sequences[0].sampling.max_tokens, 16);
  capabilities.kv_num_blocks = 2;  // 32 positions: what can never fit is refused at once
  expect_refused({(R"({"prompt":")" + text60 + R"(","max_tokens":4})").c_str(), 400, "prompt", "32"});
}

TEST_F(Validation, TheOrderOfChecksIsTheTables) {
  expect_refused({{R"({"model":"other","prompt":"a","max_tokens":"x"})", 400, "max_tokens", "string"},
                  {R"({"prompt":"","temperature":9})", 400, "temperature", "[0, 2]"},
                  {R"({"prompt":"","logprobs":99})", 400, "prompt", "empty"},
                  {R"({"prompt":[999],"logprobs":99})", 400, "logprobs", "99"},
                  {R"({"prompt":[999],"logprobs":1,"logprob_token_ids":[]})", 400, "logprob_token_ids", "empty"},
                  {R"({"prompt":[999],"echo":true,"logprobs":1})", 400, "echo", "--prompt-logprobs"},
                  {R"({"prompt":[999],"guided_regex":"("})", 400, "guided_regex", "missing"}});
}

TEST_F(Validation, PromptFormsBecomeSequencesInChoiceOrder) {
  EXPECT_EQ(accepted(R"({"prompt":"Hi"})").prompts[0].ids, (std::vector<TokenId>{'H', 'i'}));
  EXPECT_EQ(accepted(R"({"prompt":[72,105]})").prompts[0].ids, (std::vector<TokenId>{'H', 'i'}));
  const GenerationPlan batch = accepted(R"({"prompt":["ab","c"],"n":2,"seed":5,"temperature":0.7})");
  ASSERT_EQ(batch.sequences.size(), 4u);
  EXPECT_EQ(batch.sequences[1].prompt, (std::vector<TokenId>{'a', 'b'}));
  EXPECT_EQ(batch.sequences[2].prompt, (std::vector<TokenId>{'c'}));
  EXPECT_EQ(accepted(R"({"prompt":[[1,2],[3]]})").prompts[1].ids, (std::vector<TokenId>{3}));
}

TEST_F(Validation, SeedsAreTheClientsOrRandomAndDifferByChoice) {
  const auto seeds = [&](const std::string& body) {
    std::vector<uint64_t> out;
    for (const SequenceRequest& sequence : accepted(body).sequences) out.push_back(sequence.sampling.seed);
    return out;
  };
  const auto five = seeds(R"({"prompt":["a","b"],"n":2,"seed":5})");
  EXPECT_EQ(five[0], 5u);
  EXPECT_NE(five[1], 5u);
  EXPECT_EQ(five[0], five[2]);
  EXPECT_EQ(five[1], five[3]);
  EXPECT_NE(five[1], seeds(R"({"prompt":"a","n":2,"seed":6})")[0]);
  EXPECT_EQ(seeds(R"({"prompt":"a","seed":9223372036854775807})")[0], 9223372036854775807u);
  EXPECT_NE(seeds(R"({"prompt":"a"})"), seeds(R"({"prompt":"a"})"));
  EXPECT_NE(seeds(R"({"prompt":"a","seed":-1})"), seeds(R"({"prompt":"a","seed":-1})"));
}

TEST_F(Validation, SamplingComesFromTheRequestThenTheModelThenTheApi) {
  SamplingParams sampling = accepted(R"({"prompt":"a"})").sequences[0].sampling;
  EXPECT_EQ(sampling.temperature, 1.0f);
  EXPECT_EQ(sampling.top_k, 0);
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.top_p = 0.95f;
  sampling = accepted(R"({"prompt":"a"})").sequences[0].sampling;
  EXPECT_EQ(sampling.temperature, 0.6f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, 0.95f);
  sampling = accepted(R"({"prompt":"a","temperature":0.000001,"top_k":-1,"top_p":1,"min_p":0.25,"min_tokens":3})")
                 .sequences[0]
                 .sampling;
  EXPECT_EQ(sampling.temperature, 0.0f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.25f);
  EXPECT_EQ(sampling.min_tokens, 3);
  EXPECT_EQ(accepted(R"({"prompt":"a","top_k":99999999999})").sequences[0].sampling.top_k, 0) << "no narrowing";
}

TEST_F(Validation, TransformationsReachTheSequencesDistinctAndClamped) {
  const auto sampling = [&](const std::string& fields) {
    return accepted(R"({"prompt":"a",)" + fields + "}").sequences[0].sampling;
  };
  EXPECT_EQ(sampling(R"("logit_bias":{"299":1.5,"0":-1000,"7":0,"8":1e30,"9":-0.25})").logit_bias,
            (std::vector<LogitBias>{{299, 1.5f}, {0, -100.0f}, {8, 100.0f}, {9, -0.25f}}));
  EXPECT_EQ(sampling(R"("allowed_token_ids":[9,3,9,299])").allowed_ids, (std::vector<TokenId>{3, 9, 299}));
  const SamplingParams all =
      sampling(R"("repetition_penalty":1.25,"frequency_penalty":-0.5,"presence_penalty":2,"allowed_token_ids":null)");
  EXPECT_EQ(all.repetition_penalty, 1.25f);
  EXPECT_EQ(all.frequency_penalty, -0.5f);
  EXPECT_EQ(all.presence_penalty, 2.0f);
  EXPECT_TRUE(all.allowed_ids.empty());
  defaults.repetition_penalty = 1.05f;  // the model's own, unless the request says
  EXPECT_EQ(sampling(R"("n":1)").repetition_penalty, 1.05f);
  EXPECT_EQ(sampling(R"("repetition_penalty":1)").repetition_penalty, 1.0f);
}

TEST_F(Validation, StopIdsAreTheRequestsAndTheModelsFurtherEosIds) {
  SamplingParams sampling = accepted(R"({"prompt":"a","stop_token_ids":[7,7,257]})").sequences[0].sampling;
  EXPECT_EQ(sampling.eos_id, 256);
  EXPECT_EQ(sampling.stop_ids, (std::vector<TokenId>{7, 257}));
  sampling = accepted(R"({"prompt":"a","stop_token_ids":[7],"ignore_eos":true})").sequences[0].sampling;
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.stop_ids, (std::vector<TokenId>{7}));
  std::string many = R"({"prompt":"a","stop_token_ids":[0)";
  for (int i = 1; i < 64; ++i) many += "," + std::to_string(i);
  expect_refused({(many + "]}").c_str(), 400, "stop_token_ids", "64"});
}

TEST_F(Validation, ATruncatedPromptKeepsItsLastTokensOrItsFirst) {
  const auto ids = [&](const std::string& fields) { return accepted("{" + fields + "}").prompts[0].ids; };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids(R"("prompt":[1,2,3,4,5],"truncate_prompt_tokens":2)"), (Ids{4, 5}));
  EXPECT_EQ(ids(R"("prompt":[1,2,3,4,5],"truncate_prompt_tokens":2,"truncation_side":"left")"), (Ids{4, 5}));
  EXPECT_EQ(ids(R"("prompt":[1,2,3,4,5],"truncate_prompt_tokens":2,"truncation_side":"right")"), (Ids{1, 2}));
  EXPECT_EQ(ids(R"("prompt":[1,2],"truncate_prompt_tokens":2,"truncation_side":"right")"), (Ids{1, 2}));
  EXPECT_EQ(ids(R"("prompt":[1,2,3],"truncate_prompt_tokens":null)"), (Ids{1, 2, 3}));
  EXPECT_EQ(ids(R"("prompt":"abcde","truncate_prompt_tokens":3)"), (Ids{'c', 'd', 'e'}));
  EXPECT_EQ(ids(R"("prompt":"abcde","truncate_prompt_tokens":3,"truncation_side":"right")"), (Ids{'a', 'b', 'c'}));
  const GenerationPlan batch = accepted(R"({"prompt":["abc","d"],"truncate_prompt_tokens":2,"n":2,"echo":true})");
  EXPECT_EQ(batch.sequences[0].prompt, (Ids{'b', 'c'})) << "what runs is what was planned";
  EXPECT_EQ(batch.prompts[0].echo_text, "bc") << "what the model saw";
  EXPECT_EQ(batch.prompts[1].echo_text, "d");
  EXPECT_EQ(batch.sequences[3].prompt, (Ids{'d'}));
}

TEST_F(Validation, TruncationKeepsTheTokensThatSurroundAText) {
  tokenizer = load_tiny_tokenizer(true);
  const auto ids = [&](const std::string& fields) {
    return accepted(R"({"prompt":"abcde",)" + fields + "}").prompts[0].ids;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids(R"("max_tokens":1)"), (Ids{258, 'a', 'b', 'c', 'd', 'e', 257}));
  EXPECT_EQ(ids(R"("truncate_prompt_tokens":4)"), (Ids{258, 'd', 'e', 257}));
  EXPECT_EQ(ids(R"("truncate_prompt_tokens":4,"truncation_side":"right")"), (Ids{258, 'a', 'b', 257}));
  EXPECT_EQ(ids(R"("truncate_prompt_tokens":2)"), (Ids{'e', 257})) << "no room for more than them";
  EXPECT_EQ(ids(R"("truncate_prompt_tokens":4,"add_special_tokens":false)"), (Ids{'b', 'c', 'd', 'e'}));
  EXPECT_EQ(accepted(R"({"prompt":"abcde","truncate_prompt_tokens":4,"echo":true})").prompts[0].echo_text, "de");
}

TEST_F(Validation, TruncationToWhatFitsLeavesRoomForTheBudget) {
  const std::string text100(100, 'x');
  const auto with = [&](const std::string& fields) { return R"({"prompt":")" + text100 + R"(",)" + fields + "}"; };
  expect_refused({with(R"("max_tokens":4)").c_str(), 400, "prompt", "64"});
  EXPECT_EQ(accepted(with(R"("max_tokens":4,"truncate_prompt_tokens":-1)")).prompts[0].ids.size(), 60u);
  EXPECT_EQ(accepted(with(R"("truncate_prompt_tokens":-1)")).prompts[0].ids.size(), 48u) << "the default budget is 16";
  EXPECT_EQ(accepted(R"({"prompt":"ab","truncate_prompt_tokens":-1})").prompts[0].ids.size(), 2u);
  std::string ids100 = R"({"prompt":[7)";
  for (int i = 1; i < 100; ++i) ids100 += ",7";
  EXPECT_EQ(accepted(ids100 + R"(],"max_tokens":4,"truncate_prompt_tokens":-1})").prompts[0].ids.size(), 60u);
  expect_refused({{with(R"("max_tokens":64,"truncate_prompt_tokens":-1)").c_str(), 400, "truncate_prompt_tokens", "64"},
                  {with(R"("truncate_prompt_tokens":65)").c_str(), 400, "truncate_prompt_tokens", "64"},
                  {with(R"("max_tokens":5,"truncate_prompt_tokens":60)").c_str(), 400, "prompt", "64"}});
}

TEST_F(Validation, StreamIntervalIsTokensAChunk) {
  EXPECT_EQ(accepted(R"({"prompt":"a"})").stream_interval, 1);
  EXPECT_EQ(accepted(R"({"prompt":"a","stream":true,"stream_interval":5})").stream_interval, 5);
}

TEST_F(Validation, EchoKeepsThePromptAsSentOrDecodesItsIds) {
  EXPECT_EQ(accepted(R"({"prompt":"a <eos> é","echo":true})").prompts[0].echo_text, "a <eos> é");
  EXPECT_EQ(accepted(R"({"prompt":[72,105,256],"echo":true})").prompts[0].echo_text, "Hi<eos>");
  EXPECT_EQ(accepted(R"({"prompt":"a"})").prompts[0].echo_text, "");
  const GenerationPlan nothing = accepted(R"({"prompt":["a","b"],"echo":true,"max_tokens":0})");
  EXPECT_TRUE(nothing.sequences.empty());
  EXPECT_EQ(nothing.num_choices(), 2u);
}

}  // namespace
}  // namespace helios::testing
