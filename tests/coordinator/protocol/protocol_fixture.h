// What the protocol's tests share: a byte-level tokenizer read by the real loader, and a context with full
// capabilities.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/chat_plan.h"
#include "coordinator/protocol/completions_plan.h"
#include "coordinator/protocol/responses_plan.h"
#include "tests/coordinator/protocol/tiny_tokenizer.h"

namespace helios::testing {

/// `role:content` and the eos token for each message, `tools:` before them, `!` where the assistant begins.
inline ChatTemplates tiny_templates() {
  auto loaded = ChatTemplate::from_source(
      "{% if tools %}tools:{{ tools | length }};{% endif %}{% for m in messages %}"
      "{% if m.role == 'tool' and loop.first %}{{ raise_exception('a tool speaks first') }}{% endif %}"
      "{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}"
      "{% if style %}{{ style }}{% endif %}{% if add_generation_prompt %}!{% endif %}",
      R"({"eos_token":"<eos>"})");
  HELIOS_CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
  return {.loaded = *loaded, .reason = ""};
}

/// A request, and the error that answers it.
struct Refusal {
  const char* body;
  int status;
  const char* param;
  const char* mentions;
};

inline void expect_refusal(const Result<GenerationPlan>& result, const Refusal& expected) {
  ASSERT_FALSE(result) << expected.body;
  const ApiError error = to_api_error(result.error());
  EXPECT_EQ(error.status, expected.status) << expected.body << ": " << error.message;
  EXPECT_EQ(error.param, expected.param) << expected.body << ": " << error.message;
  EXPECT_NE(error.message.find(expected.mentions), std::string::npos) << expected.body << ": " << error.message;
}

struct ProtocolFixture : ::testing::Test {
  std::shared_ptr<const Tokenizer> tokenizer = tiny_tokenizer();
  Capabilities capabilities{.vocab_size = 300,
                            .max_model_len = 64,
                            .slot_capacity = 4,
                            .token_capacity = 8,
                            .prefill_chunk = 16,
                            .kv_block_size = 16,
                            .kv_num_blocks = 64,
                            .max_logprobs = 20,
                            .logprob_token_ids = true};
  GenerationDefaults defaults{.eos_ids = {256, 257}};
  ServedModel model{
      .name = "tiny", .root = "/models/tiny", .created = 1767225600, .fingerprint = "tiny-0.1.0-tp1-00000000"};
  ProtocolLimits limits;
  // Ids that the tokenizer does not know are no text.
  mutable GrammarCache grammars{GrammarVocabulary::from_tokenizer(*tokenizer, 300, {256, 257}).value(), 64u << 20};
  ChatTemplates templates = tiny_templates();
  OutputFormat output_format;

  Result<GenerationPlan> plan(const std::string& body) const {
    Result<CompletionsRequest> request = parse_completions_request(body);
    if (!request) return request.error();
    return plan_completions(std::move(*request),
                            {*tokenizer, capabilities, defaults, model, limits, grammars, output_format});
  }
  Result<GenerationPlan> chat_plan(const std::string& body) const {
    Result<ChatRequest> request = parse_chat_request(body);
    if (!request) return request.error();
    return plan_chat(std::move(*request), {*tokenizer, capabilities, defaults, model, limits, grammars, output_format},
                     templates);
  }
  Result<GenerationPlan> responses_plan(const std::string& body) const {
    Result<ResponsesRequest> request = parse_responses_request(body);
    if (!request) return request.error();
    return plan_responses(*request, {*tokenizer, capabilities, defaults, model, limits, grammars, output_format},
                          templates);
  }
};

}  // namespace helios::testing
