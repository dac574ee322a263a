// A Jinja template: parsed once, rendered any number of times from any thread.
//
// What a render may touch is the variables it is given and a clock; its output, memory, steps and nesting are bounded.
// Each kind of failure has its own code: kCorruptFile (syntax), kUnsupported (a part of Jinja that is left out, named),
// kInvalidArgument (raise_exception: the template refuses its input, the message is the template's own), kMismatch
// (template and variables do not fit: Python's TypeError and so on), kTooLarge (a bound). All but raise_exception say
// the line. Immutable; thread: any.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/template/filters.h"
#include "coordinator/template/parser.h"

namespace helios::jinja {

class JinjaTemplate {
 public:
  static Result<std::shared_ptr<const JinjaTemplate>> parse(std::string_view source);

  /// `variables`: a JSON object; what it names hides the built-in functions of that name.
  Result<std::string> render(std::string_view variables, const RenderLimits& limits = {},
                             std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

  /// For callers of this room that build values themselves: they lie in `box`, which pays for the render too.
  Result<std::string> render(Sandbox& box, std::span<const NamedValue> variables,
                             std::chrono::system_clock::time_point now) const;

  const SyntaxTree& tree() const { return *tree_; }

 private:
  explicit JinjaTemplate(std::unique_ptr<const SyntaxTree> tree) : tree_(std::move(tree)) {}

  std::unique_ptr<const SyntaxTree> tree_;
};

/// A fault as the Error that leaves the room; `line` where the fault knows none.
Error to_error(const Fault& fault, int line = 0);

}  // namespace helios::jinja
