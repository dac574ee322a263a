// Source text to syntax tree: Jinja's grammar with the extensions that chat templates are written for (loop controls,
// generation blocks). Whatever needs other templates or is not reproducible is refused by name.
//
// Thread: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/template/ast.h"
#include "coordinator/template/sandbox.h"

namespace helios::jinja {

/// Everything that a parsed template needs to live; immutable once made.
struct SyntaxTree {
  std::string source;            // normalized; texts refer to it
  std::unique_ptr<Sandbox> box;  // nodes and constants
  Block body;
  std::vector<std::string_view> names;  // by NameId
};

/// Errors (Fault, with a line): kCorruptFile for bad syntax, kUnsupported for what this engine leaves out, kTooLarge.
std::unique_ptr<SyntaxTree> parse_template(std::string_view source);

}  // namespace helios::jinja
