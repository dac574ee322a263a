// How many of a reply's tokens are reasoning: those that start between its delimiters.
//
// A token waits here until the parser has decided about its first byte. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "coordinator/parser/output_parser.h"

namespace helios {

class ReasoningTokens {
 public:
  /// The starts of a delta's tokens, once `parser` has read its text; `at_end`: it was the last.
  void push(std::span<const int64_t> token_starts, const OutputParser& parser, bool at_end) {
    starts_.insert(starts_.end(), token_starts.begin(), token_starts.end());
    while (!starts_.empty() && (at_end || starts_.front() < parser.decided())) {
      const int64_t start = starts_.front();
      starts_.pop_front();
      const int64_t begin = parser.reasoning_begin(), end = parser.reasoning_end();
      if (begin >= 0 && start >= begin && (end < 0 || start < end)) ++count_;
    }
  }
  int64_t count() const { return count_; }

 private:
  std::deque<int64_t> starts_;
  int64_t count_ = 0;
};

}  // namespace helios
