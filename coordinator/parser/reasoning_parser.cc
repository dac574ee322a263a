// See reasoning_parser.h.
#include "coordinator/parser/reasoning_parser.h"

namespace helios {

ReasoningParser::ReasoningParser(ReasoningFormat format, bool in_reasoning)
    : stage_(format == ReasoningFormat::kNone ? Stage::kContent
             : in_reasoning                   ? Stage::kOpening
                                              : Stage::kBefore) {}

void ReasoningParser::push(std::string_view text, std::vector<OutputPiece>* out) {
  pending_.append(text, read_);
  read_ += static_cast<int64_t>(text.size());
  while (!pending_.view().empty() && step(false, out)) {
  }
}

void ReasoningParser::finish(std::vector<OutputPiece>* out) {
  while (!pending_.view().empty() && step(true, out)) {
  }
}

bool ReasoningParser::step(bool at_end, std::vector<OutputPiece>* out) {
  switch (stage_) {
    case Stage::kBefore:
    case Stage::kOpening:
      return step_opening(at_end);
    case Stage::kReasoning:
      return step_reasoning(at_end, out);
    case Stage::kReasoningLead:
    case Stage::kContentLead:
      pending_.drop(leading_space(pending_.view()));
      if (pending_.view().empty()) return false;
      stage_ = stage_ == Stage::kReasoningLead ? Stage::kReasoning : Stage::kContent;
      return true;
    case Stage::kContent:
      break;
  }
  pending_.emit(OutputPiece::Kind::kContent, pending_.view().size(), -1, out);
  return true;
}

// Some models repeat the opening delimiter that the prompt already ends with.
bool ReasoningParser::step_opening(bool at_end) {
  const size_t space = leading_space(pending_.view());
  const std::string_view rest = pending_.view().substr(space);
  if (space <= kMaxStrippedBytes) {
    if (rest.starts_with(kThinkOpen)) {
      pending_.drop(space + kThinkOpen.size());
      stage_ = Stage::kReasoningLead;
      begin_ = pending_.begin();
      return true;
    }
    if (!at_end && kThinkOpen.starts_with(rest)) return false;
  }
  if (stage_ == Stage::kOpening) begin_ = pending_.begin();
  stage_ = stage_ == Stage::kOpening ? Stage::kReasoningLead : Stage::kContent;
  return true;
}

bool ReasoningParser::step_reasoning(bool at_end, std::vector<OutputPiece>* out) {
  const std::string_view text = pending_.view();
  const size_t close = text.find(kThinkClose);
  if (close != std::string_view::npos) {
    const size_t space = trailing_space(text.substr(0, close));
    end_ = pending_.begin() + static_cast<int64_t>(close);
    pending_.emit(OutputPiece::Kind::kReasoning, close - space, -1, out);
    pending_.drop(space + kThinkClose.size());
    stage_ = Stage::kContentLead;
    return true;
  }
  size_t held = 0;
  if (!at_end) {
    held = partial_delimiter(text, kThinkClose);
    held += trailing_space(text.substr(0, text.size() - held));
  }
  pending_.emit(OutputPiece::Kind::kReasoning, text.size() - held, -1, out);
  return false;
}

}  // namespace helios
