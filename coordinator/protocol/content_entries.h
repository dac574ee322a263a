// Which entries belong to output text: those whose token's first byte lies in a range that the parser reports as
// content (R33).
//
// An entry waits here until the parser has decided about its first byte, and no longer (R32). Thread: the connection's
// strand.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "coordinator/output/sequence_output.h"

namespace helios {

class ContentEntries {
 public:
  /// In generation order. Tokens without text are nobody's.
  void push(std::vector<OutputEntry> entries) {
    for (OutputEntry& entry : entries) {
      if (entry.text_byte >= 0) waiting_.push_back(std::move(entry));
    }
  }

  /// The entries of the content [begin, end), whose beginnings ascend from call to call.
  std::vector<OutputEntry> take(int64_t begin, int64_t end) {
    drop_before(begin);
    std::vector<OutputEntry> taken;
    while (!waiting_.empty() && waiting_.front().text_byte < end) {
      taken.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return taken;
  }

  /// The parser has decided about every byte before this one.
  void drop_before(int64_t decided) {
    while (!waiting_.empty() && waiting_.front().text_byte < decided) waiting_.pop_front();
  }

  size_t held() const { return waiting_.size(); }

 private:
  std::deque<OutputEntry> waiting_;
};

}  // namespace helios
