// Mutated, truncated and hostile request bodies: each is a plan or a client's error. Run under ASan and UBSan in CI.

#include <gtest/gtest.h>

#include <random>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/tokenize.h"
#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

const char* const kSeeds[] = {
    R"({"model":"tiny","prompt":"Hello é 😀","max_tokens":4,"temperature":0.5,"logprobs":3,"stream":true,"stream_options":{"include_usage":true}})",
    R"({"prompt":[[1,2,3],[4]],"n":2,"seed":-9223372036854775808,"stop":["a","\u00e9\ud83d\ude00"],"logprobs":0,"logprob_token_ids":[5,6]})",
    R"({"prompt":["é","b"],"echo":true,"max_tokens":0,"logprobs":2,"prompt_logprobs":5,"n":2})",
    R"({"prompt":["a","b"],"echo":true,"max_tokens":0,"top_p":1e-3,"top_k":5,"min_p":0.1,"stop_token_ids":[1,2],"logit_bias":{"5":0}})",
    R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,"logprobs":true})",
    R"({"messages":[{"role":"system","content":"é"},{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}],"logprobs":true,"top_logprobs":2,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"none","chat_template_kwargs":{"a":1.50},"max_tokens":1,"prompt":"a"})",
    R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object","a":[1.50,"]"]}}],"include":["message.output_text.logprobs"],"top_logprobs":2,"max_output_tokens":1})",
    R"({"input":"a","instructions":"b","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"integer"}}},"tool_choice":"none","reasoning":{"effort":"low"},"truncation":"auto"})",
    R"({"prompt":[1,2,3.0],"response_format":{"type":"json_schema","json_schema":{"schema":{}}},"structured_outputs":{"regex":"x"}})",
    R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"p","schema":{"type":"object","properties":{"a":{"enum":[1,"b"]}}}}}})",
    R"({"prompt":"a","structured_outputs":{"regex":"([a-z]{2,5}|x)y","disable_any_whitespace":true}})",
    R"({"prompt":"a","guided_grammar":"root ::= \"a\" [0-9]+ | \"b\"","guided_choice":null})"};

const std::string_view kPieces[] = {"null",
                                    "true",
                                    "-1",
                                    "1e999",
                                    "-0",
                                    "0.1e-400",
                                    "18446744073709551616",
                                    "\"\\ud800\"",
                                    "\"\\udc00\\ud800\"",
                                    "[[[[[[",
                                    "]]]]",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    "\"",
                                    "\\",
                                    "\xFF",
                                    "\xC3",
                                    "\xED\xA0\x80",
                                    "\"logprobs\":",
                                    "\"prompt\":",
                                    "[]",
                                    "{}",
                                    "99999999999999999999999999",
                                    "\\u0000"};

struct RequestFuzz : ProtocolFixture {
  RequestFuzz() { capabilities.prompt_scoring = true; }
  void expect_plan_or_client_error(const std::string& body) const {
    expect_plan_or_client_error(plan(body));
    expect_plan_or_client_error(chat_plan(body));
    expect_plan_or_client_error(responses_plan(body));
  }
  void expect_plan_or_client_error(const Result<GenerationPlan>& result) const {
    if (result) {
      EXPECT_LE(result->sequences.size(), static_cast<size_t>(limits.max_choices));
      for (const SequenceRequest& sequence : result->sequences) {
        EXPECT_LE(static_cast<int64_t>(sequence.prompt.size()) + sequence.sampling.max_tokens,
                  context_limit(capabilities));
        for (const TokenId id : sequence.prompt) EXPECT_TRUE(id >= 0 && id < capabilities.vocab_size) << id;
      }
      return;
    }
    const ApiError error = to_api_error(result.error());
    EXPECT_TRUE((error.status >= 400 && error.status < 500) || error.status == 501)
        << error.status << ": " << error.message;
    EXPECT_TRUE(parse_completions_request(error_json(error))) << "an error body is itself valid JSON";
  }
};

std::string mutated(std::string body, std::mt19937& random) {
  const int rounds = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < rounds && !body.empty(); ++i) {
    const size_t at = random() % body.size();
    switch (random() % 5) {
      case 0:
        body[at] = static_cast<char>(random());
        break;
      case 1:
        body.erase(at, 1 + random() % 8);
        break;
      case 2:
        body.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 3:
        body.replace(at, std::min<size_t>(random() % 6, body.size() - at), kPieces[random() % std::size(kPieces)]);
        break;
      default:
        body.insert(at, body.substr(random() % body.size(), random() % 40));
        break;
    }
  }
  return body;
}

TEST_F(RequestFuzz, MutatedBodiesNeverCrash) {
  std::mt19937 random(20261129);
  size_t accepted = 0, chats = 0, responses = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string body = mutated(kSeeds[random() % std::size(kSeeds)], random);
    expect_plan_or_client_error(body);
    accepted += plan(body).ok() ? 1 : 0;
    chats += chat_plan(body).ok() ? 1 : 0;
    responses += responses_plan(body).ok() ? 1 : 0;
    (void)tokenize_reply(body, *tokenizer, templates, model, 64);
    (void)detokenize_reply(body, *tokenizer, model, 300);
  }
  EXPECT_GT(accepted, 100u) << "the mutations are too wild to reach validation";
  EXPECT_GT(chats, 50u) << "the mutations are too wild to reach the template";
  EXPECT_GT(responses, 50u) << "the mutations are too wild to reach a conversation of items";
}

TEST_F(RequestFuzz, EveryPrefixOfABodyIsAnError) {
  for (const std::string_view seed : kSeeds) {
    for (size_t length = 0; length < seed.size(); ++length) EXPECT_FALSE(plan(std::string(seed.substr(0, length))));
  }
}

TEST_F(RequestFuzz, DeepNestingIsRefused) {
  for (const int depth : {63, 64, 65, 1000, 1000000}) {
    expect_plan_or_client_error(R"({"x":)" + std::string(depth, '[') + std::string(depth, ']') + R"(,"prompt":"a"})");
    expect_plan_or_client_error(std::string(depth, '['));
    std::string objects;
    for (int i = 0; i < std::min(depth, 100000); ++i) objects += R"({"x":)";
    expect_plan_or_client_error(objects);
  }
}

TEST_F(RequestFuzz, HugeNumbersNeverNarrow) {
  for (const char* number :
       {"9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e19",
        "4294967296", "2147483648", "-2147483649", "1e308", "1e309", "-1e309", "5e-324", "-0.0", "0e0"}) {
    for (const char* field : {"max_tokens", "n", "seed", "logprobs", "top_k", "min_tokens", "temperature", "top_p",
                              "min_p", "best_of", "priority"}) {
      expect_plan_or_client_error(std::string(R"({"prompt":"a",")") + field + "\":" + number + "}");
    }
    expect_plan_or_client_error(std::string(R"({"prompt":[)") + number + "]}");
    expect_plan_or_client_error(std::string(R"({"prompt":"a","stop_token_ids":[)") + number + "]}");
    expect_plan_or_client_error(std::string(R"({"prompt":"a","logprobs":1,"logprob_token_ids":[)") + number + "]}");
  }
}

}  // namespace
}  // namespace helios::testing
