// Splits what a model wrote into reasoning, content and tool calls, each piece with the bytes it came from (R33).
//
// Feeds on the text of one sequence as it is released and hands out whatever no later byte can change: however the text
// is cut, the pieces of each kind join to the same. It keeps only what is undecided: the beginning of a delimiter,
// whitespace that a delimiter would take away, the head of a tool call; each is bounded (R31, R32). What looks like a
// call and is none stays content, byte for byte. Thread: the connection's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/parser/output_format.h"

namespace helios {

/// The most bytes of a call's head that are held back until its name is known; a longer one is content.
inline constexpr int64_t kMaxCallHeadBytes = 16 * 1024;
/// The most bytes of a function's name. A name that JSON must escape is none that is read.
inline constexpr size_t kMaxCallNameBytes = 256;
/// The most bytes of whitespace that a delimiter takes away with it on its left.
inline constexpr int64_t kMaxStrippedBytes = 256;

struct OutputPiece {
  enum class Kind {
    kReasoning,
    kContent,
    kToolCall,       // a call begins; `text` is the function's name
    kToolArguments,  // the next part of its arguments, as the model wrote them: a JSON object, unless it broke off
    kToolCallEnd,    // its arguments are whole; absent when the text ended before
  };
  Kind kind = Kind::kContent;
  std::string text;
  int64_t tool_index = -1;  // of kTool*: 0, 1, ...
  // [begin, end) in the sequence's released text. Content pieces ascend and are verbatim: text == source[begin, end).
  int64_t begin = 0;
  int64_t end = 0;
};

class OutputParser {
 public:
  /// `in_reasoning`: the prompt ended inside reasoning (starts_in_reasoning).
  OutputParser(const OutputFormat& format, bool in_reasoning);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  /// The next part of the text; appends what it decided.
  void push(std::string_view text, std::vector<OutputPiece>* out);
  /// The text ends here. Nothing may be pushed afterwards.
  void finish(std::vector<OutputPiece>* out);

  /// Every byte before this one has been handed out, or never will be.
  int64_t decided() const;
  /// Whether the next byte is the model's reasoning, as far as decided.
  bool in_reasoning() const;
  /// Where the text between the reasoning's delimiters lies, whitespace included, as far as decided: begin is -1 when
  /// there is none, end while it goes on.
  int64_t reasoning_begin() const;
  int64_t reasoning_end() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
