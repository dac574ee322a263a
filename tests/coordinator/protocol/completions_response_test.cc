#include "coordinator/protocol/completions_response.h"

#include <gtest/gtest.h>

#include <cmath>

namespace helios {
namespace {

const ReplyHeader kHeader{
    .id = "cmpl-7", .created = 1767225600, .model = "demo-7b", .fingerprint = "demo-1.0-tp1-9f8e7d6c"};

OutputDelta delta(std::string text, std::vector<OutputEntry> entries, std::vector<TokenId> ids,
                  std::optional<OutputFinish> finish = std::nullopt) {
  return {
      .text = std::move(text), .entries = std::move(entries), .token_ids = std::move(ids), .finish = std::move(finish)};
}

OutputFinish length() { return {.reason = "length", .stop_string = {}, .stop_token = {}}; }

OutputEntry entry(TokenId id, std::string text, int64_t offset, float logprob,
                  std::vector<OutputAlternative> alternatives) {
  return {.id = id,
          .text = text,
          .bytes = text,
          .text_offset = offset,
          .logprob = logprob,
          .alternatives = std::move(alternatives)};
}

std::string dictionary_of(const OutputEntry& one) {
  LogprobArrays arrays;
  const Status status = arrays.append(one);
  if (!status) return status.error().message;
  std::string out;
  arrays.append_object(out);
  const size_t at = out.find("\"top_logprobs\":[") + 16;
  return out.substr(at, out.size() - at - 2);
}

// The example of wire formats 3.4.
TEST(CompletionReply, MatchesTheDocumentedExample) {
  CompletionChoice choice(true, false, "");
  ASSERT_TRUE(choice.append(
      delta(" there", {entry(1070, " there", 0, -1.2039728f, {{11, ",", -0.91629076f}, {1070, " there", -1.2039728f}})},
            {1070})));
  ASSERT_TRUE(choice.append(delta(
      " my", {entry(856, " my", 6, -3.5065579f, {{0, "!", -0.51082563f}, {13, ".", -1.2039728f}})}, {856}, length())));
  std::string choices;
  choice.append_json(choices, 0, {9906});
  EXPECT_EQ(
      completion_reply(kHeader, choices, {1, 2}),
      R"({"id":"cmpl-7","object":"text_completion","created":1767225600,"model":"demo-7b","choices":[{"index":0,"text":" there my",)"
      R"("logprobs":{"text_offset":[0,6],"token_logprobs":[-1.2039728164672852,-3.5065579414367676],"tokens":[" there"," my"],)"
      R"("top_logprobs":[{",":-0.9162907600402832," there":-1.2039728164672852},)"
      R"({"!":-0.5108256340026855,".":-1.2039728164672852," my":-3.5065579414367676}]},)"
      R"("finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}],)"
      R"("service_tier":null,"system_fingerprint":"demo-1.0-tp1-9f8e7d6c",)"
      R"("usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":null},)"
      R"("kv_transfer_params":null})");
}

TEST(CompletionReply, WithTokenIdsAndEchoAndAStopString) {
  CompletionChoice choice(false, true, "Hello");
  ASSERT_TRUE(choice.append(delta(" there", {}, {1070})));
  ASSERT_TRUE(
      choice.append(delta("", {}, {2}, OutputFinish{.reason = "stop", .stop_string = "END", .stop_token = {}})));
  std::string choices;
  choice.append_json(choices, 3, {9906});
  EXPECT_EQ(
      choices,
      R"({"index":3,"text":"Hello there","logprobs":null,"finish_reason":"stop","stop_reason":"END","token_ids":[1070,2],)"
      R"("prompt_logprobs":null,"prompt_token_ids":[9906]})");
}

// The example of wire formats 3.6.
TEST(CompletionChunk, MatchesTheDocumentedExample) {
  std::string events;
  ASSERT_TRUE(CompletionChunks(kHeader).append(
      events, {}, delta(" there", {entry(1070, " there", 0, -0.22314355f, {{1070, " there", -0.22314355f}})}, {1070})));
  EXPECT_EQ(
      events,
      "data: "
      R"({"id":"cmpl-7","object":"text_completion","created":1767225600,"model":"demo-7b","choices":[{"index":0,"text":" there",)"
      R"("logprobs":{"text_offset":[0],"token_logprobs":[-0.2231435477733612],"tokens":[" there"],"top_logprobs":[{" there":-0.2231435477733612}]},)"
      R"("finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]})"
      "\n\n");
  EXPECT_EQ(
      usage_chunk(kHeader, "text_completion", {1, 2}),
      R"({"id":"cmpl-7","object":"text_completion","created":1767225600,"model":"demo-7b","choices":[],)"
      R"("usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2},"system_fingerprint":"demo-1.0-tp1-9f8e7d6c"})");
}

TEST(CompletionUsage, ShowsCachedTokensOnlyWithDetails) {
  EXPECT_NE(usage_chunk(kHeader, "text_completion", {10, 2, 8})
                .find(R"("usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2,)"
                      R"("prompt_tokens_details":{"cached_tokens":8}},"system_fingerprint")"),
            std::string::npos);
  EXPECT_NE(completion_reply(kHeader, "", {10, 2, 8})
                .find(R"("prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":null},)"),
            std::string::npos);
}

TEST(CompletionChunk, WithoutEntriesHasNullLogprobs) {
  const std::vector<TokenId> prompt = {1, 2};
  const CompletionChunk chunk{.index = 2,
                              .echo = "ab",
                              .prompt_token_ids = &prompt,
                              .token_ids = true,
                              .usage = Usage{2, 1},
                              .fingerprint = true};
  std::string events;
  ASSERT_TRUE(CompletionChunks(kHeader).append(
      events, chunk, delta("c", {}, {7}, OutputFinish{.reason = "stop", .stop_string = {}, .stop_token = 7})));
  EXPECT_EQ(
      events,
      R"(data: {"id":"cmpl-7","object":"text_completion","created":1767225600,"model":"demo-7b","choices":[{"index":2,"text":"abc","logprobs":null,)"
      R"("finish_reason":"stop","stop_reason":7,"prompt_token_ids":[1,2],"token_ids":[7]}],)"
      R"("usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1},"system_fingerprint":"demo-1.0-tp1-9f8e7d6c"})"
      "\n\n");
}

TEST(CompletionChunk, NaNFailsInsteadOfBeingPrinted) {
  CompletionChunks chunks(kHeader);
  std::string events;
  EXPECT_FALSE(chunks.append(events, {}, delta("x", {entry(1, "x", 0, NAN, {})}, {1})));
  EXPECT_FALSE(chunks.append(events, {}, delta("x", {entry(1, "x", 0, -1.0f, {{2, "y", NAN}})}, {1})));
  EXPECT_EQ(events, "") << "there is still time for a real status";
}

TEST(TopLogprobs, SelectedIdsKeepTheirOrderAndTheChosenTokenIsLast) {
  EXPECT_EQ(
      dictionary_of(entry(856, " my", 0, -3.5f, {{9906, "Hello", -6.5f}, {0, "!", -0.5f}, {1070, " there", -4.5f}})),
      R"({"Hello":-6.5,"!":-0.5," there":-4.5," my":-3.5})");
}

TEST(TopLogprobs, ZeroAlternativesLeaveTheChosenTokenAlone) {
  EXPECT_EQ(dictionary_of(entry(5, "x", 0, -1.5f, {})), R"({"x":-1.5})");
}

TEST(TopLogprobs, TheLikeliestOfTwoEqualTextsKeepsTheText) {
  EXPECT_EQ(dictionary_of(entry(17, "", 0, -0.5f, {{17, "", -0.5f}, {42, "", -2.5f}})),
            R"({"":-0.5,"token_id:42":-2.5})");
  // In the caller's order the likelier may come last, and it may be the chosen one.
  EXPECT_EQ(dictionary_of(entry(9, "a", 0, -0.25f, {{3, "a", -2.5f}, {4, "b", -1.5f}})),
            R"({"token_id:3":-2.5,"b":-1.5,"a":-0.25})");
  EXPECT_EQ(dictionary_of(entry(9, "a", 0, -3.5f, {{3, "a", -2.5f}})), R"({"a":-2.5,"token_id:9":-3.5})");
  EXPECT_EQ(dictionary_of(entry(9, "a", 0, -2.5f, {{3, "a", -2.5f}})), R"({"a":-2.5,"token_id:9":-2.5})")
      << "a tie goes to the smaller id";
}

TEST(TopLogprobs, ATextThatReadsLikeAnIdKeyNeverHidesAnotherToken) {
  EXPECT_EQ(dictionary_of(entry(1, "x", 0, -1.5f, {{7, "token_id:42", -0.5f}, {1, "x", -1.5f}, {42, "x", -2.5f}})),
            R"({"token_id:7":-0.5,"x":-1.5,"token_id:42":-2.5})");
}

}  // namespace
}  // namespace helios
