// Text whose kind is not decided yet, by its place in the source; and how delimiters look while they arrive.
//
// Thread: its owner's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/parser/output_parser.h"

namespace helios {

inline bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

inline size_t leading_space(std::string_view text) {
  const auto end = std::ranges::find_if_not(text, is_json_space);
  return static_cast<size_t>(end - text.begin());
}

/// The part of the whitespace at the end of `text` that a delimiter behind it takes away.
inline size_t trailing_space(std::string_view text) {
  size_t size = 0;
  const size_t most = std::min(text.size(), static_cast<size_t>(kMaxStrippedBytes));
  while (size < most && is_json_space(text[text.size() - 1 - size])) ++size;
  return size;
}

/// Bytes at the end of `text` that may be the beginning of `delimiter`, which `text` does not contain.
inline size_t partial_delimiter(std::string_view text, std::string_view delimiter) {
  for (size_t size = std::min(text.size(), delimiter.empty() ? 0 : delimiter.size() - 1); size > 0; --size) {
    if (text.ends_with(delimiter.substr(0, size))) return size;
  }
  return 0;
}

class PendingText {
 public:
  /// `begin`: where `text` is in the source; it continues what is here.
  void append(std::string_view text, int64_t begin) {
    if (text_.empty()) begin_ = begin;
    text_ += text;
  }
  std::string_view view() const { return std::string_view(text_).substr(dropped_); }
  int64_t begin() const { return begin_; }

  void drop(size_t size) {
    dropped_ += size;
    begin_ += static_cast<int64_t>(size);
    if (dropped_ == text_.size() || dropped_ > kCompactBytes) {
      text_.erase(0, dropped_);
      dropped_ = 0;
    }
  }

  /// The first `size` bytes become a piece, joined to the one before where that is the same run of text.
  void emit(OutputPiece::Kind kind, size_t size, int64_t tool_index, std::vector<OutputPiece>* out) {
    if (size == 0) return;
    const std::string_view text = view().substr(0, size);
    if (!out->empty() && out->back().kind == kind && out->back().tool_index == tool_index &&
        out->back().end == begin_) {
      out->back().text += text;
      out->back().end += static_cast<int64_t>(size);
    } else {
      out->push_back({kind, std::string(text), tool_index, begin_, begin_ + static_cast<int64_t>(size)});
    }
    drop(size);
  }

 private:
  static constexpr size_t kCompactBytes = 64 * 1024;
  std::string text_;
  size_t dropped_ = 0;  // of text_
  int64_t begin_ = 0;
};

}  // namespace helios
