// Finds the stop string that completes first, and says how much text can no longer belong to one.
//
// Aho-Corasick over bytes: linear in the text whatever the number and length of the strings, and its state is exactly
// the longest end of the text that may still become a stop string. Thread: the connection's strand.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace helios {

class StopFilter {
 public:
  /// `stops` are valid UTF-8; empty ones never match.
  explicit StopFilter(std::span<const std::string> stops);

  struct Match {
    size_t stop = 0;    // index into the list: of those that complete at `end`, the first
    int64_t begin = 0;  // bytes from the beginning of the text
    int64_t end = 0;
  };

  /// Reads the next part of the text, up to the first match. Matches that complete while `armed` is false do not count.
  std::optional<Match> feed(std::string_view text, bool armed);

  /// Passes over text in which no stop string may begin or end.
  void skip(size_t size) {
    state_ = 0;
    read_ += static_cast<int64_t>(size);
  }

  /// Bytes at the end of the text read so far that may be the beginning of a stop string.
  int64_t undecided_bytes() const { return nodes_[state_].depth; }

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t failure = 0;
    int32_t depth = 0;
    int32_t stop = -1;  // the first in list order of the strings that end here, also as ends of longer ones
    uint8_t byte = 0;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  int32_t add_child(int32_t node, uint8_t byte);
  void link_failures();
  int32_t next(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_children_;
  std::vector<int64_t> stop_bytes_;
  int32_t state_ = 0;
  int64_t read_ = 0;
};

}  // namespace helios
