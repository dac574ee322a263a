// tokenizer.json from strangers: what is refused, and that nothing crashes.
#include <gtest/gtest.h>

#include <random>

#include "coordinator/tokenizer/bpe_tokenizer.h"
#include "coordinator/tokenizer/utf8.h"
#include "tests/coordinator/tokenizer/golden_data.h"

namespace helios {
namespace {

namespace json = boost::json;

// A small byte-level tokenizer: a, b, ab, space, <s> and <x>.
json::object small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 6, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
      "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4},
      "merges": ["a b", "Ġ ab"]}})")
      .as_object();
}

// A small SentencePiece-style one: every byte, U+2581, a, U+2581 a.
json::object small_sentencepiece() {
  json::object root = small();
  json::object vocab;
  vocab["<unk>"] = 0;
  for (int byte = 0; byte < 256; ++byte) {
    char piece[8];
    std::snprintf(piece, sizeof piece, "<0x%02X>", byte);
    vocab[piece] = byte + 1;
  }
  vocab["▁"] = 257;
  vocab["a"] = 258;
  vocab["▁a"] = 259;
  root["added_tokens"] = json::array();
  root["post_processor"] = nullptr;
  root["pre_tokenizer"] = nullptr;
  root["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  root["decoder"] = json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  json::object& model = root["model"].as_object();
  model["vocab"] = vocab;
  model["merges"] = json::parse(R"([["▁", "a"]])");
  model["unk_token"] = "<unk>";
  model["byte_fallback"] = true;
  model["fuse_unk"] = true;
  return root;
}

json::value& at(json::object& root, std::initializer_list<const char*> path) {
  json::value* value = nullptr;
  for (const char* key : path) value = value ? &value->as_object()[key] : &root[key];
  return *value;
}

std::unique_ptr<BpeTokenizer> build(const json::object& root) {
  Result<TokenizerSpec> spec = parse_tokenizer_json(json::serialize(root), "tokenizer.json");
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return spec.ok() ? std::make_unique<BpeTokenizer>(std::move(spec).value(), TokenizerConfig{}) : nullptr;
}

void expect_refused(const std::string& text, Errc code, const std::string& reason) {
  Result<TokenizerSpec> spec = parse_tokenizer_json(text, "dir/tokenizer.json");
  ASSERT_FALSE(spec.ok()) << "accepted, expected: " << reason;
  EXPECT_EQ(spec.error().code, code) << spec.error().message;
  EXPECT_NE(spec.error().message.find("dir/tokenizer.json: "), std::string::npos) << spec.error().message;
  EXPECT_NE(spec.error().message.find(reason), std::string::npos) << spec.error().message;
  EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
}
void expect_refused(const json::object& root, Errc code, const std::string& reason) {
  expect_refused(json::serialize(root), code, reason);
}

using Ids = std::vector<TokenId>;

TEST(TokenizerJson, TheSmallTokenizersWork) {
  const auto byte_level = build(small());
  EXPECT_EQ(*byte_level->encode("ab ab<s>b<x>", false), (Ids{2, 4, 5, 1, 6}));
  EXPECT_EQ(*byte_level->encode("a", true), (Ids{5, 0}));
  EXPECT_EQ(byte_level->decode(Ids{5, 4, 6}, true), " ab<x>");
  EXPECT_EQ(byte_level->vocab_size(), 7);
  EXPECT_FALSE(byte_level->contains(7));
  EXPECT_FALSE(byte_level->contains(-1));
  EXPECT_TRUE(byte_level->is_special(5));
  EXPECT_FALSE(byte_level->is_special(6));
  EXPECT_EQ(byte_level->token_bytes(4), " ab");
  EXPECT_EQ(byte_level->piece(4), "Ġab");
  EXPECT_EQ(byte_level->token_bytes(99), "");
  EXPECT_EQ(byte_level->find_piece("<x>"), 6);
  EXPECT_EQ(byte_level->find_piece("nothing"), std::nullopt);
  const auto sentencepiece = build(small_sentencepiece());
  EXPECT_EQ(*sentencepiece->encode("a é", false), (Ids{259, 257, 0xC3 + 1, 0xA9 + 1}));
  EXPECT_EQ(sentencepiece->decode(Ids{259, 257, 0xC3 + 1, 0xA9 + 1}, false), "a é");
  EXPECT_EQ(sentencepiece->decode(Ids{259, 0xC3 + 1, 0xA9 + 1, 0xC3 + 1}, false), "a\uFFFD\uFFFD\uFFFD");
  EXPECT_TRUE(sentencepiece->is_byte_fallback(1));
  EXPECT_FALSE(sentencepiece->is_byte_fallback(258));
  EXPECT_EQ(sentencepiece->token_bytes(0x0A + 1), "\n");
}

TEST(TokenizerJson, InvalidUtf8IsAnErrorNotText) {
  const auto tokenizer = build(small());
  for (const char* text : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_FALSE(tokenizer->encode(text, false).ok());
  }
}

TEST(TokenizerJson, StripsWhiteSpaceBesideAddedTokens) {
  json::object root = small();
  at(root, {"added_tokens"}).as_array()[1].as_object()["lstrip"] = true;
  at(root, {"added_tokens"}).as_array()[0].as_object()["rstrip"] = true;
  const auto tokenizer = build(root);
  EXPECT_EQ(*tokenizer->encode("a \t\u00A0<x> a", false), (Ids{0, 6, 3, 0}));
  EXPECT_EQ(*tokenizer->encode("a <s>\u3000 a", false), (Ids{0, 3, 5, 0}));
  EXPECT_EQ(*tokenizer->encode("<s> <x>", false), (Ids{5, 6}));
}

TEST(TokenizerJson, LongestAddedTokenWinsAtTheLeftmostPlace) {
  json::object root = small();
  at(root, {"added_tokens"}).as_array()[1].as_object()["content"] = "<s>a";
  const auto tokenizer = build(root);
  EXPECT_EQ(*tokenizer->encode("<s>ab<s>b<<s>", false), (Ids{6, 1, 5, 1, 5}));  // '<' has no token: it gives none
}

TEST(TokenizerJson, RefusesWhatIsNotATokenizer) {
  expect_refused("", Errc::kCorruptFile, "not valid JSON");
  expect_refused("[]", Errc::kCorruptFile, "not an object");
  expect_refused("{\"model\": \"\xFF\"}", Errc::kCorruptFile, "not valid JSON");
  expect_refused(std::string(100000, '['), Errc::kCorruptFile, "not valid JSON");
  expect_refused(std::string(100000, '{'), Errc::kCorruptFile, "not valid JSON");
  expect_refused("{}", Errc::kCorruptFile, "tokenizer.model is missing");
  std::string cut = json::serialize(small());
  cut.resize(cut.size() / 2);
  expect_refused(cut, Errc::kCorruptFile, "not valid JSON");
}

TEST(TokenizerJson, RefusesModelsThatAreNotBpe) {
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    json::object root = small();
    at(root, {"model", "type"}) = type;
    expect_refused(root, Errc::kUnsupported, type);
  }
  json::object dropout = small();
  at(dropout, {"model", "dropout"}) = 0.1;
  expect_refused(dropout, Errc::kUnsupported, "dropout");
  json::object suffix = small();
  at(suffix, {"model", "end_of_word_suffix"}) = "</w>";
  expect_refused(suffix, Errc::kUnsupported, "end_of_word_suffix");
  json::object unknown = small();
  at(unknown, {"model", "merge_everything"}) = true;
  expect_refused(unknown, Errc::kUnsupported, "merge_everything");
}

TEST(TokenizerJson, RefusesUnknownSteps) {
  const std::vector<std::pair<const char*, const char*>> steps = {
      {"normalizer", R"({"type": "NFKC"})"},
      {"normalizer", R"({"type": "Precompiled", "precompiled_charsmap": ""})"},
      {"normalizer", R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": "b"})"},
      {"normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "b"})"},
      {"normalizer", R"({"type": "NFC", "form": 2})"},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})"},
      {"pre_tokenizer", R"({"type": "Whitespace"})"},
      {"pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated", "invert": false})"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a*"}, "behavior": "Isolated", "invert": false})"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false})"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Sideways", "invert": false})"},
      {"post_processor", R"({"type": "BertProcessing", "sep": ["a", 0], "cls": ["a", 0]})"},
      {"decoder", R"({"type": "Metaspace", "replacement": "▁"})"},
      {"decoder", R"({"type": "WordPiece"})"},
      {"decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})"},
      {"decoder",
       R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})"},
      {"decoder", R"(null)"},
  };
  for (const auto& [key, value] : steps) {
    SCOPED_TRACE(value);
    json::object root = small();
    root[key] = json::parse(value);
    expect_refused(root, Errc::kUnsupported, key);
  }
}

TEST(TokenizerJson, RefusesIdsOutOfRangeBeforeSizingAnythingByThem) {
  for (const int64_t id : {int64_t{-1}, int64_t{-2147483648}, int64_t{2147483647}, int64_t{1} << 40, int64_t{200000}}) {
    json::object root = small();
    at(root, {"model", "vocab", "a"}) = id;
    expect_refused(root, Errc::kCorruptFile, "out of range");
    json::object added = small();
    at(added, {"added_tokens"}).as_array()[0].as_object()["id"] = id;
    expect_refused(added, Errc::kCorruptFile, "<s>");
  }
  json::object fraction = small();
  at(fraction, {"model", "vocab", "a"}) = 0.5;
  expect_refused(fraction, Errc::kCorruptFile, "not an integer");
  json::object twice = small();
  at(twice, {"model", "vocab", "a"}) = 1;
  expect_refused(twice, Errc::kCorruptFile, "share id 1");
  json::object taken = small();
  at(taken, {"added_tokens"}).as_array()[0].as_object()["id"] = 2;
  expect_refused(taken, Errc::kCorruptFile, "<s>");
}

TEST(TokenizerJson, RefusesMergesOfUnknownPieces) {
  const std::vector<std::pair<const char*, const char*>> merges = {
      {R"(["a z"])", "'z'"},          {R"(["b a"])", "'ba'"},    {R"(["ab"])", "two pieces"},
      {R"(["a b a"])", "two pieces"}, {R"([["a"]])", "neither"}, {R"([["a", 1]])", "neither"},
      {R"([7])", "neither"},          {R"({})", "not a list"},
  };
  for (const auto& [value, reason] : merges) {
    json::object root = small();
    at(root, {"model", "merges"}) = json::parse(value);
    expect_refused(root, Errc::kCorruptFile, reason);
  }
}

TEST(TokenizerJson, RefusesBadAddedTokens) {
  const auto with = [](const char* key, json::value value) {
    json::object root = small();
    at(root, {"added_tokens"}).as_array()[1].as_object()[key] = std::move(value);
    return root;
  };
  expect_refused(with("content", "<s>"), Errc::kCorruptFile, "twice");
  expect_refused(with("content", ""), Errc::kUnsupported, "empty");
  expect_refused(with("content", json::string(5000, 'x')), Errc::kUnsupported, "5000 bytes");
  expect_refused(with("single_word", true), Errc::kUnsupported, "single_word");
  expect_refused(with("special", "yes"), Errc::kCorruptFile, "true or false");
  expect_refused(with("id", nullptr), Errc::kCorruptFile, "missing");
}

TEST(TokenizerJson, RefusesTemplatesThatNameNoToken) {
  json::object root = small();
  at(root, {"post_processor", "special_tokens", "<s>", "ids"}) = json::array{77};
  expect_refused(root, Errc::kCorruptFile, "77");
  json::object missing = small();
  at(missing, {"post_processor", "special_tokens"}) = json::object();
  expect_refused(missing, Errc::kCorruptFile, "missing");
  json::object no_text = small();
  at(no_text, {"post_processor", "single"}) = json::array();
  expect_refused(no_text, Errc::kUnsupported, "leaves the text out");
}

TEST(TokenizerJson, APatternThatExplodesIsAnErrorForThatText) {
  json::object root = small();
  root["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
      "pattern": {"Regex": "(?:a+)+[bc]"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "use_regex": false,
      "add_prefix_space": false}]})");
  const auto tokenizer = build(root);
  EXPECT_EQ(tokenizer->encode("aab", false)->size(), 2u);
  Result<Ids> ids = tokenizer->encode(std::string(5000, 'a'), false);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, Errc::kInvalidArgument);
}

// Random edits of real structure must end in a tokenizer or an Error, and a tokenizer must then take any text.
TEST(TokenizerJson, RandomlyDamagedFilesNeverCrash) {
  std::mt19937 random(20240611);
  int accepted = 0;
  for (const std::string& original : {json::serialize(small()), json::serialize(small_sentencepiece())}) {
    for (int round = 0; round < 1500; ++round) {
      std::string text = original;
      for (int edit = 0; edit < 1 + static_cast<int>(random() % 3); ++edit) {
        const size_t where = random() % text.size();
        const size_t length = 1 + random() % 8;
        switch (random() % 4) {
          case 0:
            text.erase(where, length);
            break;
          case 1:
            text.insert(where, text.substr(random() % text.size(), length));
            break;
          case 2:
            text[where] = static_cast<char>("0123456789-{}[],:\"nte\xFF\x01"[random() % 23]);
            break;
          default:
            text.replace(where, 1, "99999999");
            break;
        }
        if (text.empty()) text = "{}";
      }
      Result<TokenizerSpec> spec = parse_tokenizer_json(text, "x");
      if (!spec.ok()) {
        EXPECT_FALSE(spec.error().message.empty());
        continue;
      }
      ++accepted;
      const BpeTokenizer tokenizer(std::move(spec).value(), {});
      ASSERT_LT(tokenizer.vocab_size(), 1 << 20);
      Result<Ids> ids = tokenizer.encode("ab <s>é\u2581 a<x>\U0001F600", true);
      if (ids.ok()) {
        EXPECT_TRUE(valid_utf8(tokenizer.decode(*ids, false)));
      }
    }
  }
  EXPECT_GT(accepted, 50);
}

TEST(TokenizerJson, ReadsSpecialTokensAndTemplatesOfTheConfig) {
  Result<TokenizerConfig> config = parse_tokenizer_config(
      R"({"bos_token": null, "eos_token": {"content": "</s>", "__type": "AddedToken"}, "pad_token": "<pad>",
          "tokenizer_class": "X", "chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]})",
      "x");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->bos_token, "");
  EXPECT_EQ(config->eos_token, "</s>");
  EXPECT_EQ(config->pad_token, "<pad>");
  EXPECT_EQ(config->chat_template, "d");
  EXPECT_EQ(config->tokenizer_class, "X");
  EXPECT_FALSE(parse_tokenizer_config(R"({"eos_token": 3})", "x").ok());
  EXPECT_FALSE(parse_tokenizer_config(R"({"chat_template": 3})", "x").ok());
}

TEST(TokenizerLoad, AMissingOrUnreadableDirectoryIsAnErrorWithThePath) {
  for (const char* dir : {"/nonexistent/model", "/"}) {
    Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(dir);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace helios
