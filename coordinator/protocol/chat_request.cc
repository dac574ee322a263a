#include "coordinator/protocol/chat_request.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"

namespace helios {
namespace json = boost::json;
namespace {

/// A boolean; other servers' clients send it as 0 and 1.
void read_flag(JsonFields& fields, std::string_view name, bool* out) {
  const json::value* value = fields.find(name);
  if (!value) return;
  const std::optional<int64_t> number = integer_value(*value);
  if (number && (*number == 0 || *number == 1)) {
    *out = *number == 1;
  } else {
    fields.boolean(name, out);
  }
}

void read_logprobs(JsonFields& fields, ChatRequest* request) {
  bool logprobs = false;
  read_flag(fields, "logprobs", &logprobs);
  fields.integer("top_logprobs", &request->top_logprobs);
  if (logprobs) request->logprobs = request->top_logprobs.value_or(0);
}

void read_tools(JsonFields& fields, ChatRequest* request) {
  const json::value* tools = fields.find("tools");
  if (!tools || !tools->is_array()) return;  // the conversation's fields say what is wrong with it
  request->has_tools = true;
  size_t index = 0;
  for (const json::value& tool : tools->get_array()) {
    const std::string path = fmt::format("tools.{}.", index++);
    if (!tool.is_object()) return fields.fail(path.substr(0, path.size() - 1), "an object", tool);
    JsonFields of_tool(tool.get_object(), path);
    std::optional<std::string> type, name;
    of_tool.string("type", &type);
    const json::object* function = of_tool.object("function");
    if (!of_tool.failed() && type.value_or("function") != "function") {
      of_tool.fail(invalid_argument(path + "type", path + "type: only tools of type function are supported"));
    }
    if (!of_tool.failed() && !function) {
      of_tool.fail(invalid_argument(path + "function", path + "function is required"));
    }
    if (of_tool.failed()) return fields.fail(of_tool.error());
    JsonFields of_function(*function, path + "function.");
    of_function.string("name", &name);
    const json::object* parameters = of_function.object("parameters");
    if (of_function.failed()) return fields.fail(of_function.error());
    if (auto fault = tool_fault(path + "function.", name.value_or(""), parameters))
      return fields.fail(*std::move(fault));
    request->tools.push_back(
        {.name = std::move(*name), .parameters = parameters ? json::serialize(*parameters) : std::string()});
  }
}

void read_tool_choice(JsonFields& fields, ChatRequest* request) {
  constexpr std::string_view kForms =
      "none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  const json::value* value = fields.find("tool_choice");
  if (!value) return;
  ToolChoice choice;
  if (value->is_string()) {
    const std::string_view word(value->get_string().data(), value->get_string().size());
    if (word == "none") {
      choice.kind = ToolChoice::Kind::kNone;
    } else if (word == "auto") {
      choice.kind = ToolChoice::Kind::kAuto;
    } else if (word == "required") {
      choice.kind = ToolChoice::Kind::kRequired;
    } else {
      return fields.fail(invalid_argument("tool_choice", fmt::format("tool_choice must be {}", kForms)));
    }
  } else if (const json::object* object = value->if_object()) {
    JsonFields nested(*object, "tool_choice.");
    std::optional<std::string> type, name;
    nested.string("type", &type);
    if (const json::object* function = nested.object("function")) {
      JsonFields inner(*function, "tool_choice.function.");
      inner.string("name", &name);
      if (inner.failed()) nested.fail(inner.error());
    }
    if (nested.failed()) return fields.fail(nested.error());
    if (type != "function" || !name) {
      return fields.fail(invalid_argument("tool_choice", fmt::format("tool_choice must be {}", kForms)));
    }
    choice = {ToolChoice::Kind::kNamed, std::move(*name)};
  } else {
    return fields.fail("tool_choice", kForms, *value);
  }
  request->tool_choice = std::move(choice);
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view body) {
  Result<json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  ChatRequest request;
  read_generation_fields(fields, &request);
  read_conversation(fields, body, &request.conversation);
  read_logprobs(fields, &request);
  read_tools(fields, &request);
  read_tool_choice(fields, &request);
  fields.boolean("parallel_tool_calls", &request.parallel_tool_calls);
  fields.boolean("include_reasoning", &request.include_reasoning);
  fields.boolean("return_prompt_text", &request.return_prompt_text);
  std::optional<int64_t> max_completion_tokens;
  fields.integer("max_completion_tokens", &max_completion_tokens);
  if (max_completion_tokens) {
    request.max_tokens = max_completion_tokens;
    request.max_tokens_field = "max_completion_tokens";
  }
  for (const char* name : {"functions", "function_call"}) {
    if (fields.find(name) && request.replaced_field.empty()) request.replaced_field = name;
  }
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace helios
