// One choice's text told apart for chat: reasoning, content, tool calls; and how many tokens the reasoning took.
//
// Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/output/sequence_output.h"
#include "coordinator/parser/output_parser.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/reasoning_tokens.h"

namespace helios {

/// What one step added.
struct ParsedDelta {
  struct Call {
    int64_t index = 0;
    std::string id, name;   // both empty when the call has begun before
    std::string arguments;  // the next part
  };
  std::string reasoning, content;
  std::vector<Call> calls;  // ascending, each index once
};

class ParsedChoice {
 public:
  explicit ParsedChoice(const OutputParsing& parsing);

  /// A delta with `finish` set is the last.
  ParsedDelta push(const OutputDelta& delta);

  /// Whole or not.
  int64_t num_calls() const { return num_calls_; }
  /// Tokens whose text starts between the reasoning's delimiters.
  int64_t reasoning_tokens() const { return reasoning_tokens_.count(); }

 private:
  void add_call_piece(OutputPiece piece, ParsedDelta* out);

  const bool parallel_calls_;
  OutputParser parser_;
  std::vector<OutputPiece> pieces_;   // scratch
  int64_t num_calls_ = 0;
  ReasoningTokens reasoning_tokens_;
};

}  // namespace helios
