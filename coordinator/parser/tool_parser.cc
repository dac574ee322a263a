// See tool_parser.h.
#include "coordinator/parser/tool_parser.h"

#include <utility>

namespace helios {

using Kind = OutputPiece::Kind;

namespace {

constexpr size_t kMaxNamedHeadBytes = 1024;

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

size_t name_bytes(std::string_view text) {
  return static_cast<size_t>(std::ranges::find_if_not(text, is_name_byte) - text.begin());
}

}  // namespace

ToolParser::Delimiters ToolParser::delimiters_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {"<tool_call>", "</tool_call>", '\0', false, false};
    case ToolFormat::kLlama3Json:
      return {"<|python_tag|>", "", ';', false, true};
    case ToolFormat::kMistral:
      return {"[TOOL_CALLS]", "", ',', true, false};
    case ToolFormat::kNone:
      break;
  }
  return {};
}

ToolParser::ToolParser(ToolFormat format) : format_(delimiters_of(format)) {}

void ToolParser::push(std::string_view text, int64_t begin, std::vector<OutputPiece>* out) {
  pending_.append(text, begin);
  while (!pending_.view().empty() && step(false, out)) {
  }
}

void ToolParser::finish(std::vector<OutputPiece>* out) {
  while (!pending_.view().empty() && step(true, out)) {
  }
}

bool ToolParser::step(bool at_end, std::vector<OutputPiece>* out) {
  switch (stage_) {
    case Stage::kText:
      return step_text(at_end, out);
    case Stage::kHead:
      return step_head(at_end, out);
    case Stage::kArguments:
      return step_arguments(out);
    case Stage::kTail:
      return step_tail();
    case Stage::kAfter:
      return step_after(at_end);
    case Stage::kBroken:
      break;
  }
  return step_broken(at_end, out);
}

void ToolParser::emit(Kind kind, size_t size, std::vector<OutputPiece>* out) {
  pending_.emit(kind, size, kind == Kind::kContent ? -1 : num_calls_ - 1, out);
}

void ToolParser::emit_mark(Kind kind, std::string text, int64_t begin, int64_t end, std::vector<OutputPiece>* out) {
  out->push_back({kind, std::move(text), num_calls_ - 1, begin, end});
}

bool ToolParser::step_text(bool at_end, std::vector<OutputPiece>* out) {
  if (strip_leading_) {
    pending_.drop(leading_space(pending_.view()));
    if (pending_.view().empty()) return false;
    strip_leading_ = false;
  }
  const std::string_view text = pending_.view();
  if (at_start_ && format_.bare) {
    const size_t space = leading_space(text);
    const bool few = space <= kMaxStrippedBytes;
    if (few && space == text.size() && !at_end) return false;
    if (few && space < text.size() && text[space] == '{') {
      begin_head(space, 0, false);
      return true;
    }
  }
  at_start_ = false;
  const size_t open = text.find(format_.open);
  const size_t close = open_ ? text.find(format_.close) : std::string_view::npos;
  if (const size_t first = std::min(open, close); first != std::string_view::npos) {
    const size_t space = trailing_space(text.substr(0, first));
    emit(Kind::kContent, first - space, out);
    if (first == open) {
      begin_head(space, format_.open.size(), format_.bracket);
    } else {
      pending_.drop(space + format_.close.size());
      open_ = false;
      strip_leading_ = true;
    }
    return true;
  }
  size_t held = 0;
  if (!at_end) {
    held = std::max(partial_delimiter(text, format_.open), open_ ? partial_delimiter(text, format_.close) : 0);
    held += trailing_space(text.substr(0, text.size() - held));
  }
  emit(Kind::kContent, text.size() - held, out);
  return false;
}

void ToolParser::begin_head(size_t space, size_t delimiter, bool bracket) {
  at_start_ = false;
  strip_leading_ = false;
  stage_ = Stage::kHead;
  scanner_ = CallScanner();
  need_bracket_ = bracket;
  space_ = space;
  head_ = scanned_ = space + delimiter;
  object_ = -1;
  name_.clear();
}

ToolParser::Head ToolParser::scan_named_head() {
  const std::string_view head = pending_.view().substr(head_);
  std::string_view rest = head.substr(leading_space(head));
  const std::string_view name = rest.substr(0, name_bytes(rest));
  rest.remove_prefix(name.size());
  for (const std::string_view mark : {std::string_view("[CALL_ID]"), std::string_view("[ARGS]")}) {
    if (rest.size() < mark.size() && mark.starts_with(rest))
      return head.size() > kMaxNamedHeadBytes ? Head::kNone : Head::kMore;
    if (!rest.starts_with(mark)) continue;
    rest.remove_prefix(mark.size());
    if (mark == "[CALL_ID]") rest.remove_prefix(name_bytes(rest));
  }
  rest.remove_prefix(leading_space(rest));
  if (head.size() - rest.size() > kMaxNamedHeadBytes || (!rest.empty() && rest.front() != '{')) return Head::kNone;
  if (rest.empty()) return Head::kMore;
  name_ = name;
  scanner_ = CallScanner(true);
  scanned_ = head_ + (head.size() - rest.size());
  object_ = pending_.begin() + static_cast<int64_t>(scanned_);
  return Head::kCall;
}

ToolParser::Head ToolParser::scan_head() {
  const std::string_view text = pending_.view();
  while (scanned_ < text.size()) {
    const char byte = text[scanned_];
    if (object_ < 0) {
      if (byte == '{' && !need_bracket_) {
        object_ = pending_.begin() + static_cast<int64_t>(scanned_);
      } else if (byte == '[' && need_bracket_) {
        need_bracket_ = false;
      } else if (need_bracket_ && is_name_byte(byte)) {
        return scan_named_head();
      } else if (!is_json_space(byte)) {
        return Head::kNone;
      }
    }
    // The object closed without a head: not a call.
    if (object_ >= 0 && scanner_.feed(byte) != CallScanner::State::kMore) return Head::kNone;
    ++scanned_;
    if (scanner_.has_name() && scanner_.arguments_begin() >= 0) {
      name_ = scanner_.name();
      return Head::kCall;
    }
    if (scanned_ - head_ > static_cast<size_t>(kMaxCallHeadBytes)) return Head::kNone;
  }
  return Head::kMore;
}

bool ToolParser::step_head(bool at_end, std::vector<OutputPiece>* out) {
  const Head head = scan_head();
  if (head == Head::kMore && !at_end) return false;
  if (head != Head::kCall) {
    // The delimiter was text. What follows it is looked at again: it may hold a delimiter that is one.
    stage_ = Stage::kText;
    emit(Kind::kContent, head_, out);
    return true;
  }
  ++num_calls_;
  const int64_t arguments = object_ + scanner_.arguments_begin();
  emit_mark(Kind::kToolCall, name_, pending_.begin() + static_cast<int64_t>(space_), arguments, out);
  const auto before = static_cast<size_t>(arguments - pending_.begin());
  pending_.drop(before);
  scanned_ -= before;
  open_ = !format_.close.empty();
  stage_ = Stage::kArguments;
  return true;
}

bool ToolParser::step_arguments(std::vector<OutputPiece>* out) {
  const std::string_view text = pending_.view();
  CallScanner::State state = CallScanner::State::kMore;
  while (scanner_.arguments_end() < 0 && state == CallScanner::State::kMore && scanned_ < text.size()) {
    state = scanner_.feed(text[scanned_++]);
  }
  if (scanner_.arguments_end() >= 0) {
    const int64_t end = object_ + scanner_.arguments_end();
    const auto size = static_cast<size_t>(end - pending_.begin());
    emit(Kind::kToolArguments, size, out);
    emit_mark(Kind::kToolCallEnd, "", end, end, out);
    scanned_ -= size;
    stage_ = Stage::kTail;
    if (state == CallScanner::State::kDone) {  // the arguments were the whole object
      stage_ = Stage::kText;
      strip_leading_ = true;
    }
    return true;
  }
  if (state == CallScanner::State::kBroken) {
    emit(Kind::kToolArguments, scanned_ - 1, out);
    stage_ = Stage::kBroken;
    return true;
  }
  emit(Kind::kToolArguments, text.size(), out);
  scanned_ = 0;
  return false;
}

// Members behind the arguments count for nothing; what is no member is no longer the call's.
bool ToolParser::step_tail() {
  const std::string_view text = pending_.view();
  CallScanner::State state = CallScanner::State::kMore;
  while (state == CallScanner::State::kMore && scanned_ < text.size()) state = scanner_.feed(text[scanned_++]);
  pending_.drop(scanned_ - (state == CallScanner::State::kBroken ? 1 : 0));
  scanned_ = 0;
  if (state == CallScanner::State::kMore) return false;
  end_call();
  return true;
}

void ToolParser::end_call() {
  stage_ = format_.separator == '\0' ? Stage::kText : Stage::kAfter;
  strip_leading_ = true;
}

bool ToolParser::step_after(bool at_end) {
  const std::string_view text = pending_.view();
  const size_t space = leading_space(text);
  if (space <= kMaxStrippedBytes) {
    if (space == text.size() && !at_end) return false;
    const std::string_view rest = text.substr(space);
    if (rest.starts_with(format_.separator)) {
      const size_t next = 1 + leading_space(rest.substr(1));
      if (next <= kMaxStrippedBytes) {
        if (next == rest.size() && !at_end) return false;
        if (next < rest.size() && rest[next] == '{') {
          begin_head(0, space + next, false);
          return true;
        }
      }
    } else if (format_.bracket && rest.starts_with(']')) {
      pending_.drop(space + 1);
    }
  }
  stage_ = Stage::kText;
  return true;
}

bool ToolParser::step_broken(bool at_end, std::vector<OutputPiece>* out) {
  const std::string_view text = pending_.view();
  const size_t close = format_.close.empty() ? std::string_view::npos : text.find(format_.close);
  if (close != std::string_view::npos) {
    const size_t space = trailing_space(text.substr(0, close));
    emit(Kind::kToolArguments, close - space, out);
    pending_.drop(space + format_.close.size());
    emit_mark(Kind::kToolCallEnd, "", pending_.begin(), pending_.begin(), out);
    open_ = false;
    strip_leading_ = true;
    stage_ = Stage::kText;
    return true;
  }
  size_t held = 0;
  if (!at_end && !format_.close.empty()) {
    held = partial_delimiter(text, format_.close);
    held += trailing_space(text.substr(0, text.size() - held));
  }
  emit(Kind::kToolArguments, text.size() - held, out);
  return false;
}

}  // namespace helios
