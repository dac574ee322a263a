// JSON text as template values, exactly as Python's json.loads reads it: 1 and 1.0 stay apart, integers of any size
// stay whole, doubles are correctly rounded, keys keep their order (of repeated ones the last value wins).
//
// Boost.JSON's own values lose the last two, so requests are read from their text. Thread: the one that renders.
#pragma once

#include <optional>
#include <string_view>

#include "coordinator/template/value.h"

namespace helios::jinja {

/// Errors (Fault, kInvalidArgument): not JSON, not UTF-8, deeper than 128; `what` names the text in the message.
Value read_json(Sandbox& box, std::string_view text, std::string_view what);

}  // namespace helios::jinja
