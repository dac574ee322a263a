// The prompt_logprobs list, byte for byte (wire formats 2.8), and prompt positions in the completions arrays (3.5).
#include "coordinator/protocol/prompt_logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/protocol/logprob_json.h"

namespace helios {
namespace {

OutputEntry null_entry(TokenId id, std::string text) {
  return {.id = id, .text = std::move(text), .has_value = false};
}

OutputEntry entry(TokenId id, std::string text, int64_t offset, float logprob, int32_t rank,
                  std::vector<OutputAlternative> alternatives) {
  return {.id = id,
          .text = std::move(text),
          .text_offset = offset,
          .logprob = logprob,
          .alternatives = std::move(alternatives),
          .rank = rank};
}

std::string list_of(int32_t n, const std::vector<OutputEntry>& entries) {
  PromptLogprobs list(n);
  const Status status = list.append(entries);
  if (!status) return status.error().message;
  std::string out;
  list.append_json(out);
  return out;
}

// The example of wire formats 2.8.
TEST(PromptLogprobs, MatchTheDocumentedExample) {  // R46
  EXPECT_EQ(list_of(1, {null_entry(785, "The"), entry(374, " is", 3, -1.6094379f, 3, {{11, ",", -0.6931472f}}),
                        entry(9822, " France", 6, -0.105360515f, 1, {{9822, " France", -0.105360515f}})}),
            R"([null,{"374":{"logprob":-1.6094379425048828,"rank":3,"decoded_token":" is"},)"
            R"("11":{"logprob":-0.6931471824645996,"rank":1,"decoded_token":","}},)"
            R"({"9822":{"logprob":-0.10536051541566849,"rank":1,"decoded_token":" France"}}])");
}

TEST(PromptLogprobs, ZeroAsksForTheActualTokenAlone) {
  const OutputEntry one = entry(5, "x", 0, -1.5f, 4, {{6, "y", -0.5f}, {7, "z", -0.75f}});
  EXPECT_EQ(list_of(0, {one}), R"([{"5":{"logprob":-1.5,"rank":4,"decoded_token":"x"}}])");
}

TEST(PromptLogprobs, AnAlternativesRankIsItsPlaceAlsoBehindTheActualToken) {
  const OutputEntry one = entry(6, "y", 0, -0.5f, 1, {{5, "x", -0.5f}, {6, "y", -0.5f}, {7, "y", -0.75f}});
  EXPECT_EQ(list_of(3, {one}), R"([{"6":{"logprob":-0.5,"rank":1,"decoded_token":"y"},)"
                               R"("5":{"logprob":-0.5,"rank":1,"decoded_token":"x"},)"
                               R"("7":{"logprob":-0.75,"rank":3,"decoded_token":"y"}}])")
      << "the rank is strict, places are not; equal texts do not collide";
}

TEST(PromptLogprobs, TheFloorIsMinus9999AndNaNIsAnError) {
  EXPECT_EQ(list_of(0, {entry(5, "x", 0, -INFINITY, 9, {})}),
            R"([{"5":{"logprob":-9999.0,"rank":9,"decoded_token":"x"}}])");
  EXPECT_NE(list_of(0, {entry(5, "x", 0, NAN, 9, {})}).find("not a number"), std::string::npos);
  EXPECT_NE(list_of(1, {entry(5, "x", 0, -1.0f, 9, {{6, "y", NAN}})}).find("not a number"), std::string::npos);
}

// The example of wire formats 3.5.
TEST(EchoedArrays, MatchTheDocumentedExample) {  // R46
  LogprobArrays arrays;
  const std::vector<OutputEntry> entries = {
      null_entry(791, "The"),
      entry(6864, " capital", 3, -4.60517f, 40, {{1176, " first", -2.3025851f}}),
      entry(315, " of", 11, -0.105360515f, 1, {{315, " of", -0.105360515f}, {7, " cut", -3.0f}}),
      entry(9822, " France", 14, -1.6094379f, 2, {{279, " the", -1.2039728f}}),
      entry(374, " is", 21, -0.22314355f, 0, {{374, " is", -0.22314355f}})};
  for (const OutputEntry& one : entries) ASSERT_TRUE(arrays.append(one, 1));
  std::string out;
  arrays.append_object(out);
  EXPECT_EQ(out,
            R"({"text_offset":[0,3,11,14,21],)"
            R"("token_logprobs":[null,-4.605169773101807,-0.10536051541566849,-1.6094379425048828,-0.2231435477733612],)"
            R"("tokens":["The"," capital"," of"," France"," is"],)"
            R"("top_logprobs":[null,{" first":-2.3025851249694824," capital":-4.605169773101807},)"
            R"({" of":-0.10536051541566849},{" the":-1.2039728164672852," France":-1.6094379425048828},)"
            R"({" is":-0.2231435477733612}]})");
}

}  // namespace
}  // namespace helios
