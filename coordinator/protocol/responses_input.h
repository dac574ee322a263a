// The input items of a Responses request as the messages that chat templates are written for.
//
// Only for this room's .cc files (includes Boost.JSON). Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "common/base/result.h"

namespace helios {

/// A JSON array of chat messages: `instructions` as the first one's, then the input. Reasoning, a message and the calls
/// behind it that came from one answer become one assistant's message.
/// Errors: kInvalidArgument with the path input.N....
Result<std::string> messages_of_input(const boost::json::value& input, const std::optional<std::string>& instructions);

/// The array of chat's tools for an array of function tools, whose JSON is `raw`: parameters keep their bytes.
/// Tools must have been checked: each an object with a name.
std::string chat_tools(std::string_view raw);
/// Their parameters' schemas, in order; empty where there is none.
std::vector<std::string> tool_schemas(std::string_view raw);

}  // namespace helios
