// The output parser's definition, slow and obvious: whole texts, positions, and JSON by recursive descent.
#pragma once

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/parser/output_parser.h"

namespace helios::testing {

class ReferenceParser {
 public:
  ReferenceParser(const OutputFormat& format, bool in_reasoning, std::string_view text) : text_(text) {
    size_t at = 0;
    if (format.reasoning == ReasoningFormat::kThinkTags && !reason(in_reasoning, &at)) return;
    if (format.tools == ToolFormat::kNone) {
      add(OutputPiece::Kind::kContent, at, text_.size());
    } else {
      read_content(format.tools, at);
    }
  }
  const std::vector<OutputPiece>& pieces() const { return pieces_; }

 private:
  using Kind = OutputPiece::Kind;
  struct Broken {
    size_t at;
  };
  // What is known of a call's object, up to where it is broken or the text ends.
  struct Call {
    std::string name;
    size_t head = std::string::npos;  // behind the byte that made it a call
    std::optional<size_t> arguments, arguments_end;
    size_t end = 0;  // behind the object, or where it breaks
    bool broken = false;
  };

  static bool space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  size_t skip(size_t at) const {
    while (at < text_.size() && space(text_[at])) ++at;
    return at;
  }
  size_t trim(size_t from, size_t to) const {
    size_t at = to;
    while (at > from && to - at < static_cast<size_t>(kMaxStrippedBytes) && space(text_[at - 1])) --at;
    return at;
  }
  bool near(size_t from, size_t to) const { return to - from <= static_cast<size_t>(kMaxStrippedBytes); }
  bool is(size_t at, std::string_view what) const { return text_.substr(at).starts_with(what); }

  void add(Kind kind, size_t begin, size_t end, int64_t call = -1) {
    if (begin == end) return;
    pieces_.push_back({kind, std::string(text_.substr(begin, end - begin)), call, static_cast<int64_t>(begin),
                       static_cast<int64_t>(end)});
  }
  void mark(Kind kind, std::string text, size_t begin, size_t end) {
    pieces_.push_back({kind, std::move(text), calls_ - 1, static_cast<int64_t>(begin), static_cast<int64_t>(end)});
  }

  // False when the text ends inside reasoning.
  bool reason(bool in_reasoning, size_t* at) {
    const size_t first = skip(0);
    const bool opened = near(0, first) && is(first, "<think>");
    if (!opened && !in_reasoning) return true;
    const size_t begin = skip(opened ? first + 7 : 0);
    const size_t close = text_.find("</think>", begin);
    if (close == std::string::npos) {
      add(Kind::kReasoning, begin, text_.size());
      return false;
    }
    add(Kind::kReasoning, begin, trim(begin, close));
    *at = skip(close + 8);
    return true;
  }

  void read_content(ToolFormat format, size_t at) {
    const bool hermes = format == ToolFormat::kHermes, llama = format == ToolFormat::kLlama3Json;
    const std::string_view open = hermes ? "<tool_call>" : llama ? "<|python_tag|>" : "[TOOL_CALLS]";
    bool unclosed = false;
    if (const size_t first = skip(at); llama && near(at, first) && is(first, "{")) {
      at = read_calls(format, at, first, &unclosed);
    }
    while (at < text_.size()) {
      const size_t begin = text_.find(open, at);
      const size_t end = unclosed ? text_.find("</tool_call>", at) : std::string::npos;
      if (begin == end) return add(Kind::kContent, at, text_.size());  // neither
      if (end < begin) {
        add(Kind::kContent, at, trim(at, end));
        unclosed = false;
        at = skip(end + 12);
        continue;
      }
      add(Kind::kContent, at, trim(at, begin));
      at = read_calls(format, trim(at, begin), begin + open.size(), &unclosed);
    }
  }

  // A call whose delimiter is [from, head), and those behind it that share its delimiter; returns where text goes on.
  size_t read_calls(ToolFormat format, size_t from, size_t head, bool* unclosed) {
    const bool hermes = format == ToolFormat::kHermes, mistral = format == ToolFormat::kMistral;
    bool bracket = mistral;
    size_t begin = std::min(skip(from), head);  // where the delimiter is, behind whitespace that it takes away
    for (;;) {
      size_t object = skip(head);
      if (bracket && is(object, "[")) {
        object = skip(object + 1);
        bracket = false;
      }
      Call call;
      if (const size_t named = bracket ? skip_named_head(head, &call.name) : head;
          named > head && named - head <= 1024 && is(named, "{")) {
        const std::string name = call.name;
        call = read_arguments(named);
        call.name = name;
        call.head = head;
      }
      const bool alone = call.head != std::string::npos;
      if (!alone && !bracket && is(object, "{")) call = read_call(object);
      if (call.head == std::string::npos || call.head - head > static_cast<size_t>(kMaxCallHeadBytes)) {
        add(Kind::kContent, from, head);
        return head;
      }
      ++calls_;
      mark(Kind::kToolCall, call.name, begin, *call.arguments);
      if (!call.arguments_end) {
        add(Kind::kToolArguments, *call.arguments, call.end, calls_ - 1);
        if (!call.broken) return text_.size();
        const size_t close = hermes ? text_.find("</tool_call>", call.end) : std::string::npos;
        if (close == std::string::npos) {
          add(Kind::kToolArguments, call.end, text_.size(), calls_ - 1);
          return text_.size();
        }
        add(Kind::kToolArguments, call.end, trim(call.end, close), calls_ - 1);
        mark(Kind::kToolCallEnd, "", close + 12, close + 12);
        *unclosed = false;
        return skip(close + 12);
      }
      add(Kind::kToolArguments, *call.arguments, *call.arguments_end, calls_ - 1);
      mark(Kind::kToolCallEnd, "", *call.arguments_end, *call.arguments_end);
      *unclosed |= hermes;
      if (hermes || alone) return skip(call.end);
      const size_t next = skip(call.end);
      const size_t object_after = next < text_.size() ? skip(next + 1) : next;
      if (near(call.end, next) && is(next, mistral ? "," : ";") && near(next, object_after) && is(object_after, "{")) {
        from = begin = call.end;
        head = object_after;
        continue;
      }
      return near(call.end, next) && mistral && is(next, "]") ? skip(next + 1) : next;
    }
  }

  // --- JSON; each function returns the place behind what it read, or throws where it breaks; the end breaks at size()
  // ---

  char peek(size_t at) const {
    if (at >= text_.size()) throw Broken{text_.size()};
    return text_[at];
  }
  size_t skip_json(size_t at) const {
    while (space(peek(at))) ++at;
    return at;
  }

  size_t string(size_t at) const {  // behind the opening quote
    for (;; ++at) {
      const char c = peek(at);
      if (c == '"') return at + 1;
      if (static_cast<unsigned char>(c) < 0x20) throw Broken{at};
      if (c != '\\') continue;
      const char escaped = peek(++at);
      if (std::string_view("\"\\/bfnrtu").find(escaped) == std::string_view::npos) throw Broken{at};
      for (int i = 0; escaped == 'u' && i < 4; ++i) {
        if (!std::isxdigit(static_cast<unsigned char>(peek(++at)))) throw Broken{at};
      }
    }
  }

  size_t digits(size_t at) const {
    if (!std::isdigit(static_cast<unsigned char>(peek(at)))) throw Broken{at};
    while (std::isdigit(static_cast<unsigned char>(peek(at)))) ++at;
    return at;
  }

  size_t number(size_t at) const {
    if (peek(at) == '-') ++at;
    at = peek(at) == '0' ? at + 1 : digits(at);
    if (peek(at) == '.') at = digits(at + 1);
    if (peek(at) != 'e' && peek(at) != 'E') return at;
    ++at;
    if (peek(at) == '+' || peek(at) == '-') ++at;
    return digits(at);
  }

  size_t word(size_t at, std::string_view expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (peek(at + i) != expected[i]) throw Broken{at + i};
    }
    return at + expected.size();
  }

  size_t value(size_t at, int depth) const {
    const char c = peek(at);
    if (c == '"') return string(at + 1);
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) return number(at);
    if (c == 't') return word(at, "true");
    if (c == 'f') return word(at, "false");
    if (c == 'n') return word(at, "null");
    if ((c != '{' && c != '[') || depth == 64) throw Broken{at};
    const char close = c == '{' ? '}' : ']';
    at = skip_json(at + 1);
    if (peek(at) == close) return at + 1;
    for (;;) {
      if (c == '{') {
        if (peek(at) != '"') throw Broken{at};
        at = skip_json(string(at + 1));
        if (peek(at) != ':') throw Broken{at};
        at = skip_json(at + 1);
      }
      at = skip_json(value(at, depth + 1));
      if (peek(at) == close) return at + 1;
      if (peek(at) != ',') throw Broken{at};
      at = skip_json(at + 1);
    }
  }

  Call read_call(size_t object) const {
    Call call;
    try {
      call.end = members(object + 1, &call);
    } catch (const Broken& broken) {
      call.end = broken.at;
      call.broken = broken.at < text_.size();
    }
    return call;
  }

  // Behind a call's name and its marks, where its arguments should begin.
  size_t skip_named_head(size_t at, std::string* name) const {
    const auto word = [&](size_t begin) {
      size_t end = begin;
      while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) ||
                                    std::string_view("_-.").find(text_[end]) != std::string_view::npos)) {
        ++end;
      }
      return end;
    };
    const size_t begin = skip(at);
    size_t end = word(begin);
    if (end == begin) return at;
    *name = text_.substr(begin, end - begin);
    if (is(end, "[CALL_ID]")) end = word(end + 9);
    if (is(end, "[ARGS]")) end += 6;
    return skip(end);
  }

  // An object that is all arguments.
  Call read_arguments(size_t object) const {
    Call call;
    call.arguments = object;
    try {
      call.end = value(object, 0);
      call.arguments_end = call.end;
    } catch (const Broken& broken) {
      call.end = broken.at;
      call.broken = broken.at < text_.size();
    }
    return call;
  }

  size_t members(size_t at, Call* call) const {
    at = skip_json(at);
    if (peek(at) == '}') return at + 1;
    for (bool named = false;;) {
      if (peek(at) != '"') throw Broken{at};
      const size_t key_end = string(at + 1);
      const std::string_view key = text_.substr(at + 1, key_end - at - 2);
      const bool is_name = key == "name", is_arguments = key == "arguments" || key == "parameters";
      if ((is_name && named) || (is_arguments && call->arguments)) throw Broken{key_end - 1};
      at = skip_json(key_end);
      if (peek(at) != ':') throw Broken{at};
      at = skip_json(at + 1);
      if (is_arguments) {
        if (peek(at) != '{') throw Broken{at};
        call->arguments = at;
        if (named) call->head = at + 1;
        at = value(at, 1);
        call->arguments_end = at;
      } else if (is_name) {
        if (peek(at) != '"') throw Broken{at};
        const size_t end = string(at + 1);
        call->name = text_.substr(at + 1, end - at - 2);
        const bool plain = call->name.find('\\') == std::string::npos;
        if (call->name.empty() || !plain || call->name.size() > 256) throw Broken{end - 1};
        named = true;
        at = end;
        if (call->arguments) call->head = at;
      } else {
        at = value(at, 1);
      }
      at = skip_json(at);
      if (peek(at) == '}') return at + 1;
      if (peek(at) != ',') throw Broken{at};
      at = skip_json(at + 1);
    }
  }

  std::string_view text_;
  std::vector<OutputPiece> pieces_;
  int64_t calls_ = 0;
};

}  // namespace helios::testing
