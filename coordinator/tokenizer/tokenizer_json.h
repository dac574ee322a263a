// tokenizer.json and tokenizer_config.json as plain values: parsed, bounded, and refused where not reproducible.
//
// The file comes from a stranger: every id is range-checked against the number of tokens before anything is sized by
// it.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/tokenizer/bpe_model.h"
#include "coordinator/tokenizer/normalizer.h"
#include "coordinator/tokenizer/pre_tokenizer.h"

namespace helios {

struct AddedTokenSpec {
  TokenId id = -1;
  std::string content;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalized text, spelled as the normalizer leaves it
  bool special = false;
};

struct DecoderSpec {
  bool byte_level = false;
  std::vector<ReplaceStep> replacements;  // in each token, before the rest
  bool byte_fallback = false;
  bool strip_leading_space = false;  // one, of the whole text
};

struct TokenizerSpec {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> pre_tokenizer;
  Vocabulary vocabulary;  // of the model, without the added tokens that only added_tokens lists
  std::vector<BpeMerge> merges;
  BpeOptions model;
  std::vector<AddedTokenSpec> added_tokens;
  std::vector<TokenId> prefix;  // that the post-processor puts before and after a text
  std::vector<TokenId> suffix;
  DecoderSpec decoder;
};

struct TokenizerConfig {
  std::string bos_token, eos_token, pad_token, chat_template, tokenizer_class;
};

/// Errors: kCorruptFile and kUnsupported, with `path` and the reason.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& path);
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, const std::string& path);

/// Errors: kCorruptFile with path and reason; kNotFound when there is no such file.
Result<std::string> read_text_file(const std::string& path, size_t max_bytes);

}  // namespace helios
