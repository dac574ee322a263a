// Sets of Unicode scalar values: what a character class of a pattern stands for.
//
// Surrogates are never members, since no UTF-8 text holds one. Values; no state; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace helios::grammar {

class CodePointSet {
 public:
  struct Range {
    uint32_t first;
    uint32_t last;
    friend bool operator==(const Range&, const Range&) = default;
  };

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges);
  static CodePointSet all();

  void add(uint32_t first, uint32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet minus(const CodePointSet& other) const;
  bool contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }

  /// Ascending, disjoint, never adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void normalize();

  std::vector<Range> ranges_;
};

/// \d, \w, \s as ECMAScript has them (ASCII digits and word characters; Unicode white space).
CodePointSet digit_class();
CodePointSet word_class();
CodePointSet space_class();
/// What `.` matches: everything but the line terminators.
CodePointSet dot_class();

/// A general category by its one or two letter name (L, Lu, Nd, ...), its long group name (Letter, Number, ...), Any or
/// ASCII. Nothing for other names: scripts and binary properties are not built.
std::optional<CodePointSet> unicode_property(std::string_view name);

}  // namespace helios::grammar
