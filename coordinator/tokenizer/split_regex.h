// The patterns of tokenizer.json's Split steps, matched by PCRE2 as Oniguruma would match them.
//
// The two engines agree on a subset of the syntax only, so a pattern is parsed first: what is outside the subset is
// refused, and \s (PCRE2's own takes U+180E in) is spelled out. Immutable after compile; a Matcher belongs to one
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace helios {

class SplitRegex {
 public:
  /// Errors: kUnsupported with the reason, when `pattern` (valid UTF-8) cannot be matched exactly.
  static Result<SplitRegex> compile(std::string_view pattern);
  ~SplitRegex();
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;

  struct Match {
    size_t begin = 0;
    size_t end = 0;  // > begin: a pattern that can match nothing is refused
    bool found = false;
  };

  /// Scratch for matching: the JIT's stack and the match block.
  class Matcher {
   public:
    explicit Matcher(const SplitRegex& regex);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    /// The leftmost match in `text` (valid UTF-8) at or after `from`. Errors: kInvalidArgument when the pattern needs
    /// more steps than a sane one would for a text of this length.
    Result<Match> next(std::string_view text, size_t from);

   private:
    struct Scratch;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

/// The pattern as handed to PCRE2. Exposed for tests.
Result<std::string> translate_split_pattern(std::string_view pattern);

}  // namespace helios
