// Python's format mini-language: what stands behind the colon in '{:>8.2f}', and its % form.
//
// Thread: the one that renders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/template/value.h"

namespace helios::jinja {

struct FormatSpec {
  std::string_view fill = " ";  // one character
  char align = 0;               // '<' '>' '=' '^', 0: the type's own
  char sign = '-';              // '-' '+' ' '
  bool alternate = false;       // '#'
  bool zero_negative = false;   // 'z'
  char grouping = 0;            // ',' '_' 0
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

/// Errors (Fault): what Python calls an invalid format specifier, and widths that no prompt needs.
FormatSpec parse_format_spec(std::string_view spec);
std::string format_value(Sandbox& box, Value value, const FormatSpec& spec);
/// Lays `text` out in the width; `prefix_bytes` of it (sign, 0x) stay in front of '=' padding.
std::string pad(std::string_view text, const FormatSpec& spec, char default_align, size_t prefix_bytes);

/// Correctly rounded to `digits` behind the point, as round(value, digits) and '%.nf' are.
std::string format_fixed(double value, int digits);

}  // namespace helios::jinja
