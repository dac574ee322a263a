// A byte-level tokenizer for tests, read by the real loader: id = byte value, then <eos> 256, <eos2> 257 and <bos> 258.
//
// Every character beyond ASCII is split over tokens, which is what tests of text want.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios::testing {

/// GPT-2's printable stand-in for a byte, as UTF-8.
inline std::string printable_byte(int byte) {
  const auto shown = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int code = byte;
  if (!shown(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += shown(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// `adds_bos`: every text begins with <bos> and ends with <eos2>, as a post-processor says. `thinks`: <think> is 259
/// and
/// </think> 260, not special, as reasoning models have them.
inline std::string tiny_tokenizer_json(bool adds_bos = false, bool thinks = false) {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece = printable_byte(byte);
    if (piece == "\"" || piece == "\\") piece = "\\" + piece;
    vocab += (byte > 0 ? ",\"" : "\"") + piece + "\":" + std::to_string(byte);
  }
  std::string added;
  const char* names[] = {"<eos>", "<eos2>", "<bos>", "<think>", "</think>"};
  for (int i = 0; i < (thinks ? 5 : 3); ++i) {
    added += std::string(i > 0 ? "," : "") + R"({"id":)" + std::to_string(256 + i) + R"(,"content":")" + names[i] +
             R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)" +
             (i < 3 ? "true}" : "false}");
  }
  const std::string around =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},)"
      R"({"SpecialToken":{"id":"<eos2>","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
      R"("special_tokens":{"<bos>":{"id":"<bos>","ids":[258],"tokens":["<bos>"]},"<eos2>":{"id":"<eos2>","ids":[257],"tokens":["<eos2>"]}}})";
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)" +
         R"("post_processor":)" + (adds_bos ? around : "null") +
         R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)" +
         R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)" +
         R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" + vocab + R"(},"merges":[]}})";
}

inline std::shared_ptr<const Tokenizer> load_tiny_tokenizer(bool adds_bos, bool thinks = false) {
  const std::string dir =
      std::filesystem::temp_directory_path() / ("helios_tiny_tokenizer_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/tokenizer.json") << tiny_tokenizer_json(adds_bos, thinks);
  std::ofstream(dir + "/tokenizer_config.json")
      << R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<eos>","bos_token":"<bos>"})";
  auto loaded = Tokenizer::load(dir);
  std::filesystem::remove_all(dir);
  HELIOS_CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
  return *loaded;
}

inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = load_tiny_tokenizer(false);
  return tokenizer;
}

}  // namespace helios::testing
