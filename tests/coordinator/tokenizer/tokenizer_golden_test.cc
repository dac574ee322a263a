// Every line of every tokenizer golden: encode, decode, bytes, cuts, long texts, streams. R29, R30.
#include <gtest/gtest.h>

#include <sstream>

#include "coordinator/tokenizer/bpe_tokenizer.h"
#include "tests/coordinator/tokenizer/decoder_property.h"
#include "tests/coordinator/tokenizer/golden_data.h"
#include "tests/coordinator/tokenizer/sha256.h"

namespace helios {
namespace {

using testing::as_ids;
using testing::as_text;
using testing::hex;
namespace json = boost::json;

struct Golden {
  std::string name;
  std::string model;      // directory under the test data
  std::string llama_cpp;  // that project's vectors for it, when there are any
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

class TokenizerGolden : public ::testing::TestWithParam<Golden> {};

std::string member_or(const json::object& line, const char* key, const std::string& otherwise) {
  const json::value* value = line.if_contains(key);
  return value ? as_text(*value) : otherwise;
}

void check_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const json::object& line) {
  const json::value* bytes = line.if_contains("bytes");
  if (!bytes) return;
  ASSERT_EQ(bytes->as_array().size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(hex(tokenizer.token_bytes(ids[i])), as_text(bytes->as_array()[i])) << "token " << i;
  }
}

void check_encoding(const BpeTokenizer& tokenizer, const json::object& line) {
  SCOPED_TRACE(as_text(line.at("id")));
  const std::string text = as_text(line.at("text"));
  const std::vector<TokenId> ids = as_ids(line.at("ids"));
  const json::value* with_special = line.if_contains("ids_special");
  Result<std::vector<TokenId>> plain = tokenizer.encode(text, false);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(*plain, ids) << text;
  EXPECT_EQ(*tokenizer.encode(text, true), with_special ? as_ids(*with_special) : ids);
  const std::string decoded = member_or(line, "decoded", text);
  EXPECT_EQ(tokenizer.decode(ids, false), decoded);
  EXPECT_EQ(tokenizer.decode(ids, true), member_or(line, "decoded_skip", decoded));
  check_bytes(tokenizer, ids, line);
  if (const json::value* cuts = line.if_contains("pre")) {
    std::vector<std::string> expected;
    for (const json::value& word : cuts->as_array()) expected.push_back(as_text(word));
    EXPECT_EQ(*tokenizer.words(text), expected);
  }
}

void check_decoding(const Tokenizer& tokenizer, const json::object& line) {
  SCOPED_TRACE(as_text(line.at("decode")));
  const std::vector<TokenId> ids = as_ids(line.at("ids"));
  const std::string decoded = as_text(line.at("decoded"));
  EXPECT_EQ(tokenizer.decode(ids, false), decoded);
  EXPECT_EQ(tokenizer.decode(ids, true), member_or(line, "decoded_skip", decoded));
  check_bytes(tokenizer, ids, line);
}

void check_prefixes(const Tokenizer& tokenizer, const json::object& line) {
  SCOPED_TRACE(as_text(line.at("stream")));
  const std::vector<TokenId> ids = as_ids(line.at("ids"));
  const json::array& prefixes = line.at("prefixes").as_array();
  for (size_t k = 0; k < ids.size(); ++k) {
    const std::vector<TokenId> begin(ids.begin(), ids.begin() + static_cast<int64_t>(k) + 1);
    EXPECT_EQ(tokenizer.decode(begin, true), as_text(prefixes[k])) << k;
    EXPECT_EQ(testing::stream(tokenizer, true, {}, begin).text, as_text(prefixes[k])) << k;
  }
}

void check_long(const Tokenizer& tokenizer, const json::object& line) {
  SCOPED_TRACE(line.at("long").as_int64());
  std::string text;
  for (int64_t i = 0; i < line.at("times").as_int64(); ++i) text += as_text(line.at("unit"));
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, false);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(static_cast<int64_t>(ids->size()), line.at("count").as_int64());
  std::string joined;
  for (const TokenId id : *ids) joined += (joined.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(testing::sha256_hex(joined), as_text(line.at("sha256")));
}

// X.inp holds texts between marker lines, line i of X.out the ids of text i: made by another project.
void check_llama_cpp(const Tokenizer& tokenizer, const std::string& vectors) {
  SCOPED_TRACE(vectors);
  const std::string base = testing::test_data_dir() + "/golden/tokenizers/llama-cpp/" + vectors;
  const std::string texts = testing::read_file(base + ".inp");
  const std::string marker = "\n__ggml_vocab_test__\n";
  std::ifstream out(base + ".out");
  int count = 0;
  size_t at = 0;
  for (std::string line; std::getline(out, line) && at <= texts.size(); ++count) {
    const size_t end = std::min(texts.find(marker, at), texts.size());
    std::istringstream numbers(line);
    const std::vector<TokenId> ids{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(*tokenizer.encode(texts.substr(at, end - at), false), ids) << "text " << count;
    at = end + marker.size();
  }
  EXPECT_GT(count, 40);
}

TEST_P(TokenizerGolden, EveryLineIsReproduced) {
  HELIOS_NEED_TEST_DATA(goldens, "golden/tokenizers/" + GetParam().name + ".jsonl");
  const std::shared_ptr<const Tokenizer> loaded =
      testing::load_tokenizer(testing::test_data_dir() + "/" + GetParam().model);
  if (!loaded && !HasFailure()) GTEST_SKIP() << "SKIPPED, NOT CHECKED: xz is needed to unpack the tokenizer";
  ASSERT_TRUE(loaded);
  const auto& tokenizer = dynamic_cast<const BpeTokenizer&>(*loaded);
  int encodings = 0, decodings = 0, streams = 0, longs = 0;
  for (const json::object& line : testing::read_json_lines(goldens)) {
    if (line.contains("id")) {
      check_encoding(tokenizer, line), ++encodings;
    } else if (line.contains("decode")) {
      check_decoding(tokenizer, line), ++decodings;
    } else if (line.contains("stream")) {
      check_prefixes(tokenizer, line), ++streams;
    } else if (line.contains("long")) {
      check_long(tokenizer, line), ++longs;
    } else {
      ADD_FAILURE() << "a golden of unknown kind";
    }
  }
  EXPECT_GT(encodings, 100);
  EXPECT_GT(decodings, 10);
  EXPECT_GT(streams, 5);
  EXPECT_GT(longs, 3);
  testing::check_random_decoding(tokenizer);
  if (!GetParam().llama_cpp.empty()) check_llama_cpp(tokenizer, GetParam().llama_cpp);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         ::testing::Values(Golden{"stories260k", "models/stories260k/f32", ""},
                                           Golden{"qwen3", "models/tokenizers/qwen3", "qwen2"},
                                           Golden{"llama3_1", "models/tokenizers/llama3_1", "llama-bpe"},
                                           Golden{"gpt35turbo", "models/tokenizers/gpt35turbo", ""},
                                           Golden{"gptoss", "models/tokenizers/gptoss", ""},
                                           Golden{"deepseek_v3", "models/tokenizers/deepseek_v3", ""},
                                           Golden{"gemma3", "models/tokenizers/gemma3", "gemma-4"},
                                           Golden{"llama2", "models/tokenizers/llama2", "llama-spm"},
                                           Golden{"mistral_v1", "models/tokenizers/mistral_v1", ""}),
                         [](const auto& test) { return test.param.name; });

TEST(TokenizerGoldenDemo, EveryTextAndConversationIsReproduced) {
  HELIOS_NEED_TEST_DATA(dir, "golden/helios-demo");
  const auto tokenizer = testing::load_tokenizer(testing::test_data_dir() + "/models/helios-demo");
  ASSERT_TRUE(tokenizer);
  int cases = 0;
  for (const char* file : {"/tokenizer.json", "/chat_template.json"}) {
    const json::value golden = json::parse(testing::read_file(dir + file));
    for (const json::value& value : golden.as_object().at("cases").as_array()) {
      const json::object& line = value.as_object();
      const std::string text = as_text(line.at("text"));
      SCOPED_TRACE(text);
      const std::vector<TokenId> ids = as_ids(line.at("token_ids"));
      EXPECT_EQ(*tokenizer->encode(text, false), ids);
      EXPECT_EQ(*tokenizer->encode(text, true), ids);
      EXPECT_EQ(tokenizer->decode(ids, false), text);
      if (const json::value* pieces = line.if_contains("pieces")) {
        for (size_t i = 0; i < ids.size(); ++i) {
          EXPECT_EQ(hex(tokenizer->token_bytes(ids[i])), as_text(pieces->as_array()[i]));
        }
      }
      ++cases;
    }
  }
  EXPECT_GT(cases, 50);
  testing::check_random_decoding(*tokenizer);
}

}  // namespace
}  // namespace helios
