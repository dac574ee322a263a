// The syntax of a regular expression, read but not yet given a meaning: anchors are still among the rest.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/grammar/code_points.h"

namespace helios::grammar {

struct RegexSyntax {
  enum class Kind : uint8_t { kClass, kCat, kAlt, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kCat;
  size_t offset = 0;  // in the expression
  CodePointSet set;
  uint32_t min = 0;
  uint32_t max = 0;
  std::vector<RegexSyntax> children;
};

/// Errors: see regex.h.
Result<RegexSyntax> parse_regex(std::string_view pattern, int max_depth);

}  // namespace helios::grammar
