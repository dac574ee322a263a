// Every field that the APIs document is read, known to change nothing, or refused by name: none is passed over
// silently.
//
// That a field is read shows in that a value of the wrong type is refused with its name.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/coordinator/protocol/protocol_fixture.h"

namespace helios::testing {
namespace {

enum class Fate {
  kRead,     // `value` has the wrong type: 400, with its name
  kNothing,  // documented as accepted without effect: `value` is accepted
  kRefused,  // 400, with its name
  kUnbuilt,  // 501, with its name
};

struct Field {
  const char* name;
  Fate fate = Fate::kRead;
  const char* value = "{}";
};

// Of all three endpoints (wire formats, 3.1).
constexpr Field kCommon[] = {
    {"model"},
    {"temperature"},
    {"top_p"},
    {"top_k"},
    {"min_p"},
    {"presence_penalty"},
    {"frequency_penalty"},
    {"repetition_penalty"},
    {"seed"},
    {"n"},
    {"best_of"},
    {"stop"},
    {"stop_token_ids"},
    {"ignore_eos"},
    {"min_tokens"},
    {"include_stop_str_in_output"},
    {"skip_special_tokens"},
    {"spaces_between_special_tokens"},
    {"add_special_tokens"},
    {"truncate_prompt_tokens"},
    {"truncation_side"},
    {"logit_bias", Fate::kRead, "7"},
    {"allowed_token_ids"},
    {"bad_words"},
    {"logprob_token_ids"},
    {"return_tokens_as_token_ids"},
    {"return_token_ids"},
    {"structured_outputs", Fate::kRead, "7"},
    {"structured_outputs", Fate::kUnbuilt, R"({"structural_tag":"{}"})"},
    {"guided_json", Fate::kRead, "7"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"stream"},
    {"stream_options", Fate::kRead, "7"},
    {"thinking_token_budget"},
    {"thinking_token_budget", Fate::kRead, "true"},
    {"priority"},
    {"request_id"},
    {"cache_salt"},
    {"stream_interval"},
    {"suffix"},
    {"suffix", Fate::kRefused, R"("x")"},
    {"use_beam_search"},
    {"use_beam_search", Fate::kRefused, "true"},
    {"length_penalty"},
    {"session_id", Fate::kNothing},
    {"vllm_xargs", Fate::kNothing},
    {"kv_transfer_params", Fate::kUnbuilt},
    {"prompt_embeds", Fate::kUnbuilt, R"("x")"},
    {"repetition_detection", Fate::kUnbuilt},
};

constexpr Field kCompletions[] = {
    {"prompt"},
    {"echo"},
    {"logprobs"},
    {"max_tokens"},
    {"prompt_logprobs"},
    {"response_format", Fate::kRead, "7"},
    {"response_format", Fate::kUnbuilt, R"({"type":"structural_tag"})"},
    {"best_of", Fate::kRefused, "2"},
    {"user", Fate::kNothing, R"("u")"},
};

// Wire formats, 4.1.
constexpr Field kChat[] = {
    {"messages"},
    {"logprobs"},
    {"top_logprobs"},
    {"max_completion_tokens"},
    {"max_completion_tokens", Fate::kRefused, "0"},
    {"max_tokens"},
    {"tools"},
    {"tools", Fate::kRefused, "[]"},
    {"tool_choice"},
    {"parallel_tool_calls"},
    {"response_format", Fate::kRead, "7"},
    {"reasoning_effort"},
    {"include_reasoning"},
    {"chat_template_kwargs", Fate::kRead, "7"},
    {"chat_template", Fate::kRefused, R"("{{ messages }}")"},
    {"add_generation_prompt"},
    {"continue_final_message"},
    {"echo"},
    {"documents"},
    {"prompt_logprobs"},
    {"functions", Fate::kRefused, "[]"},
    {"function_call", Fate::kRefused, R"("auto")"},
    {"mm_processor_kwargs", Fate::kNothing},
    {"media_io_kwargs", Fate::kNothing},
    {"user", Fate::kNothing, R"("u")"},
    {"store", Fate::kNothing, "true"},
    {"metadata", Fate::kNothing},
    {"service_tier", Fate::kNothing, R"("auto")"},
    {"modalities", Fate::kNothing, R"(["text"])"},
    {"verbosity", Fate::kNothing, R"("low")"},
    {"prediction", Fate::kNothing},
    {"prompt_cache_key", Fate::kNothing, R"("k")"},
    {"safety_identifier", Fate::kNothing, R"("s")"},
    {"return_prompt_text"},
};

// Wire formats, 5.1.
constexpr Field kResponses[] = {
    {"input"},
    {"instructions"},
    {"include"},
    {"include", Fate::kRefused, R"(["logprobs"])"},
    {"top_logprobs"},
    {"max_output_tokens"},
    {"text", Fate::kRead, "7"},
    {"tools"},
    {"tools.0", Fate::kRefused, R"([{"type":"web_search"}])"},
    {"tool_choice"},
    {"parallel_tool_calls"},
    {"reasoning", Fate::kRead, "7"},
    {"chat_template_kwargs", Fate::kRead, "7"},
    {"store"},
    {"background"},
    {"background", Fate::kRefused, "true"},
    {"previous_response_id"},
    {"prompt", Fate::kRefused},
    {"conversation", Fate::kRefused},
    {"truncation"},
    {"truncation", Fate::kRefused, R"("sometimes")"},
    {"metadata", Fate::kRead, "7"},
    {"user"},
    {"max_tool_calls"},
    {"service_tier", Fate::kNothing, R"("auto")"},
    {"prompt_cache_key", Fate::kNothing, R"("k")"},
    {"safety_identifier", Fate::kNothing, R"("s")"},
    {"messages", Fate::kRefused, "[]"},
    {"max_tokens", Fate::kRefused, "5"},
    {"max_completion_tokens", Fate::kRefused, "5"},
    {"response_format", Fate::kRefused, R"({"type":"text"})"},
    {"reasoning_effort", Fate::kRefused, R"("low")"},
    {"logprobs", Fate::kRefused, "true"},
    {"prompt_logprobs", Fate::kRefused, "1"},
    {"echo", Fate::kRefused, "true"},
    {"n", Fate::kRefused, "2"},
    {"return_token_ids", Fate::kRefused, "true"},
};

struct Fields : ProtocolFixture {
  using Plan = std::function<Result<GenerationPlan>(const std::string&)>;

  /// `required`: the members without which nothing is a request; one that is named twice counts as named last.
  void check(const Plan& plan, const std::string& required, std::span<const Field> fields) {
    for (const Field& field : fields) {
      const std::string_view path = field.name;
      const std::string name(path.substr(0, path.find('.')));
      const std::string body = "{" + required + ",\"" + name + "\":" + field.value + "}";
      const Result<GenerationPlan> made = plan(body);
      if (field.fate == Fate::kNothing) {
        EXPECT_TRUE(made.ok()) << body << ": " << made.error().message;
        continue;
      }
      ASSERT_FALSE(made.ok()) << body << " was passed over";
      const ApiError error = to_api_error(made.error());
      EXPECT_EQ(error.status, field.fate == Fate::kUnbuilt ? 501 : 400) << body << ": " << error.message;
      EXPECT_TRUE(error.param.starts_with(path)) << body << ": " << error.param;
    }
  }
  void SetUp() override {
    output_format = {ReasoningFormat::kThinkTags, ToolFormat::kHermes};
    capabilities.prompt_scoring = true;
  }
};

TEST_F(Fields, OfCompletions) {
  const Plan planned = [this](const std::string& body) { return plan(body); };
  check(planned, R"("prompt":"a")", kCommon);
  check(planned, R"("prompt":"a")", kCompletions);
}

TEST_F(Fields, OfChat) {
  const Plan planned = [this](const std::string& body) { return chat_plan(body); };
  const std::string required = R"("messages":[{"role":"user","content":"a"}])";
  check(planned, required, kCommon);
  check(planned, required, kChat);
}

TEST_F(Fields, OfResponses) {
  const Plan planned = [this](const std::string& body) { return responses_plan(body); };
  check(planned, R"("input":"a")", kCommon);
  check(planned, R"("input":"a")", kResponses);
}

}  // namespace
}  // namespace helios::testing
