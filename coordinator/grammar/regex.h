// Regular expressions, as ECMAScript's u flag and Python's re agree on them, without what is not regular.
//
// Supported: literals; . (no line terminators); classes with ranges, negation and escapes; \d \w (ASCII) \s (Unicode)
// and their negations; \p{..} and \P{..} with general categories, Any and ASCII; \t \n \r \v \f \0 \xHH \uHHHH \u{H..};
// groups, capturing, named or not; | * + ? {n} {n,} {n,m}, also lazy (the language is the same); ^ and $ at the ends of
// the expression or of alternatives there. Refused, by name: back-references, look-around, \b, \B, inline flags,
// possessive and atomic parts, anchors inside, scripts and other properties. Nothing is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

struct RegexOptions {
  /// Whole: the text matches from end to end. Otherwise a part of it must, as in a schema's `pattern`.
  bool whole = true;
  int max_depth = 128;
  /// How a class is spelled in the text; by default as UTF-8. Within JSON strings some characters need escapes.
  std::function<NodeId(const CodePointSet&, GrammarTree*)> spell;
};

struct RegexNode {
  NodeId node = 0;
  // Bounds of the number of code points of a match; max is kUnbounded when there is none.
  uint32_t min_length = 0;
  uint32_t max_length = 0;
};

/// Errors: kInvalidArgument, naming the construct and its offset in bytes.
Result<RegexNode> translate_regex(std::string_view pattern, const RegexOptions& options, GrammarTree* tree);

}  // namespace helios::grammar
