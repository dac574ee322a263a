// A chat request's messages in the form that templates are written for.
//
// The chat API and the templates disagree in small ways: content in parts, a tool call's arguments as JSON text, null
// for what is absent, two names for reasoning. Thread: the one that renders.
#pragma once

#include "coordinator/template/value.h"

namespace helios::jinja {

/// What one template can read; found out when it is loaded.
struct TemplateTraits {
  bool reads_content_parts = false;  // it loops over a message's content
  bool arguments_as_text = false;    // it wants a tool call's arguments as JSON text
  bool developer_as_system = false;  // it loses or refuses a developer's message: that is a system message to it
  bool null_content = true;          // it takes null as the content beside tool calls; else the empty text
};

/// Text parts are joined by line breaks (or kept as parts, where the template reads them), arguments are parsed (or
/// serialized), null members are dropped, reasoning gets both of its names, an empty tool_calls goes.
/// Errors (Fault, kInvalidArgument): a message or part of the wrong shape, a part that is not text, arguments that are
/// not a JSON object; `*param` then holds the dotted path.
Value normalized_messages(Sandbox& box, Value messages, const TemplateTraits& traits, std::string* param);

/// The messages with `mark` at the end of the last one's text. Errors: no message, or one without text.
Value with_mark(Sandbox& box, Value messages, std::string_view mark);

}  // namespace helios::jinja
