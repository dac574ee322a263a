// What a client asks the text's form to be: response_format, structured_outputs, and the guided_* names of older
// clients. One reading for every endpoint.
//
// Only for this room's .cc files (includes Boost.JSON). Thread: the connection's strand.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/structured_output.h"

namespace helios {

/// Reads response_format, structured_outputs and guided_json, guided_regex, guided_choice, guided_grammar. Errors of
/// type go to `fields`.
StructuredOutputFields read_structured_output(JsonFields& fields);

/// `text.format` of a Responses request, whose json_schema has its members beside `type`. `param`: its path.
StructuredOutputFields read_text_format(const boost::json::object& format, const std::string& param);

}  // namespace helios
