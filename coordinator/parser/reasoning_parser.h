// Takes a model's reasoning out of its text, with its delimiters and the whitespace around them.
//
// Reasoning stands before everything else or nowhere: a delimiter later in the text is text. Thread: its owner's.
#pragma once

#include <string_view>
#include <vector>

#include "coordinator/parser/output_parser.h"
#include "coordinator/parser/pending_text.h"

namespace helios {

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";

class ReasoningParser {
 public:
  ReasoningParser(ReasoningFormat format, bool in_reasoning);

  /// Appends kReasoning and kContent pieces.
  void push(std::string_view text, std::vector<OutputPiece>* out);
  void finish(std::vector<OutputPiece>* out);

  int64_t decided() const { return pending_.begin(); }
  int64_t begin() const { return begin_; }  // of what is between the delimiters; -1: none so far
  int64_t end() const { return end_; }      // -1: not so far
  bool in_reasoning() const { return stage_ != Stage::kBefore && stage_ < Stage::kContentLead; }

 private:
  enum class Stage { kBefore, kOpening, kReasoningLead, kReasoning, kContentLead, kContent };

  /// One decision; false when it takes more text.
  bool step(bool at_end, std::vector<OutputPiece>* out);
  bool step_opening(bool at_end);
  bool step_reasoning(bool at_end, std::vector<OutputPiece>* out);

  Stage stage_;
  PendingText pending_;
  int64_t read_ = 0;
  int64_t begin_ = -1, end_ = -1;
};

}  // namespace helios
