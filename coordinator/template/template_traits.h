// Finds out what a template can read, by looking at it and by trying it.
//
// Published templates disagree on tool calls (arguments as an object or as text, null or empty content beside them) and
// say so nowhere, so each is tried once on a made-up conversation when it is loaded. Thread: any.
#pragma once

#include <span>

#include "coordinator/template/chat_messages.h"
#include "coordinator/template/jinja_template.h"

namespace helios::jinja {

/// `special_tokens`: a JSON object.
TemplateTraits find_traits(const JinjaTemplate& source, std::string_view special_tokens);

}  // namespace helios::jinja
