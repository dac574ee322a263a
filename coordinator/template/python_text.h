// Values as text, byte for byte as Python writes them: str(), repr(), json.dumps().
//
// Errors (Fault): nesting beyond the sandbox's depth, and for JSON what json.dumps refuses. Thread: the one that
// renders.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/template/value.h"

namespace helios::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string_view> indent;  // one level's text; nullopt: one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};

/// 1.0, 1e+20, -0.0, nan: the shortest digits that read back as the same double.
std::string float_repr(double value);
void append_str(Sandbox& box, TextBuilder* out, Value value);
/// `ascii`: Python's ascii(), which escapes whatever is not.
void append_repr(Sandbox& box, TextBuilder* out, Value value, bool ascii = false);
void append_json(Sandbox& box, TextBuilder* out, Value value, const JsonStyle& style);
/// The text itself when it is one, else what str() makes of the value.
std::string_view str_of(Sandbox& box, Value value);
void append_html_escaped(TextBuilder* out, std::string_view text);

}  // namespace helios::jinja
