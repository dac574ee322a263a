// Cuts normalized text into the words that BPE merges within.
//
// Each step cuts every piece of the step before on its own, so a pattern never sees past its piece. Immutable; any
// thread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/tokenizer/split_regex.h"

namespace helios {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One Split step: by a pattern, or by a literal string.
struct SplitStep {
  std::optional<SplitRegex> regex;
  std::string literal;  // when there is no regex; not empty
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool add_prefix_space = false;  // ByteLevel's: a piece that does not begin with a space gets one, before the cut
};

class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<SplitStep> steps) : steps_(std::move(steps)) {}

  /// The pieces of one text, in order, none empty. `prefixed` owns those that got a space in front.
  struct Words {
    std::vector<std::string_view> words;
    std::deque<std::string> prefixed;
  };
  /// `text` is valid UTF-8 and outlives `words`. Errors: kInvalidArgument, see SplitRegex::Matcher::next.
  Status split(std::string_view text, Words* words) const;

 private:
  std::vector<SplitStep> steps_;
};

}  // namespace helios
