// A template's source as tokens, with Jinja's white-space control set as transformers sets it (trim_blocks,
// lstrip_blocks, no trailing line break kept).
//
// Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/template/sandbox.h"

namespace helios::jinja {

enum class TokenKind : unsigned char {
  kText,        // literal text between tags
  kPrintBegin,  // {{
  kPrintEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // text: the unescaped value
  kInteger,  // text: digits with underscores and prefix
  kFloat,
  kOperator,  // text: the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string_view text;
};

/// Line breaks as \n, one at the end dropped: what token positions and texts refer to.
std::string normalized_source(std::string_view source);

/// `source` is normalized and must outlive the tokens; unescaped strings lie in `box`. Errors (Fault, kCorruptFile).
std::vector<Token> tokenize(std::string_view source, Sandbox& box);

}  // namespace helios::jinja
