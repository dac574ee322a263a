#include "coordinator/protocol/responses_request.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/responses_input.h"
#include "coordinator/protocol/structured_output_fields.h"

namespace helios {
namespace json = boost::json;
namespace {

void refuse(ResponsesRequest* request, Error error) {
  if (!request->refused) request->refused = std::move(error);
}

/// The member's own bytes on one line, as events need them, or `absent`.
std::string raw_member(const JsonFields& fields, std::string_view body, std::string_view name, std::string absent) {
  if (!fields.find(name)) return absent;
  std::string out(raw_json_member(body, name));
  std::ranges::replace_if(
      out, [](char c) { return c == '\n' || c == '\r'; }, ' ');  // whitespace outside strings
  return out;
}

void read_input(JsonFields& fields, ResponsesRequest* request) {
  std::optional<std::string> instructions;
  fields.string("instructions", &instructions);
  const json::value* input = fields.find("input");
  if (!input) {
    request->conversation.malformed = invalid_argument("input", "input is required");
    return;
  }
  Result<std::string> messages = messages_of_input(*input, instructions);
  if (messages) {
    request->conversation.messages = std::move(*messages);
  } else {
    request->conversation.malformed = messages.error();
  }
}

void read_tools(JsonFields& fields, std::string_view body, ResponsesRequest* request) {
  const json::value* tools = fields.find("tools");
  if (!tools) return;
  if (!tools->is_array()) return fields.fail("tools", "an array", *tools);
  size_t index = 0;
  for (const json::value& tool : tools->get_array()) {
    const std::string path = fmt::format("tools.{}", index++);
    if (!tool.is_object()) return fields.fail(path, "an object", tool);
    JsonFields of_tool(tool.get_object(), path + ".");
    std::optional<std::string> type, name, description;
    of_tool.string("type", &type);
    if (type != "function") {
      refuse(request, invalid_argument(path + ".type", path + ".type: only tools of type function are supported"));
      continue;
    }
    of_tool.string("name", &name);
    of_tool.string("description", &description);
    const json::object* parameters = of_tool.object("parameters");
    if (of_tool.failed()) return fields.fail(of_tool.error());
    if (auto fault = tool_fault(path + ".", name.value_or(""), parameters)) return fields.fail(*std::move(fault));
    request->tools.push_back({std::move(*name), ""});
  }
  request->echoed.tools = raw_member(fields, body, "tools", "[]");
  if (request->tools.empty() || request->refused) return;
  request->conversation.tools = chat_tools(request->echoed.tools);
  std::vector<std::string> schemas = tool_schemas(request->echoed.tools);
  for (size_t i = 0; i < schemas.size(); ++i) request->tools[i].parameters = std::move(schemas[i]);
}

void read_tool_choice(JsonFields& fields, std::string_view body, ResponsesRequest* request) {
  using Kind = ToolChoice::Kind;
  const json::value* value = fields.find("tool_choice");
  if (!value) return;
  request->echoed.tool_choice = raw_member(fields, body, "tool_choice", "null");
  if (const json::string* word = value->if_string()) {
    const bool none = *word == "none", automatic = *word == "auto";
    request->tool_choice.kind = none ? Kind::kNone : automatic ? Kind::kAuto : Kind::kRequired;
    if (none || automatic || *word == "required") return;
  } else if (const json::object* object = value->if_object()) {
    JsonFields nested(*object, "tool_choice.");
    std::optional<std::string> type, name;
    nested.string("type", &type);
    nested.string("name", &name);
    if (nested.failed()) return fields.fail(nested.error());
    request->tool_choice = {Kind::kNamed, name.value_or("")};
    if (type == "function" && name) return;
  }
  fields.fail(invalid_argument("tool_choice",
                               "tool_choice must be none, auto, required, or {\"type\": \"function\", \"name\": ...}"));
}

/// Values that ask for what other tools return have nothing to add here.
void read_include(JsonFields& fields, ResponsesRequest* request) {
  std::optional<std::vector<std::string>> include;
  fields.strings("include", &include);
  if (include) request->include = std::move(*include);
  fields.integer("top_logprobs", &request->top_logprobs);
  request->echoed.top_logprobs = request->top_logprobs.value_or(0);
  for (const std::string& wanted : request->include) {
    if (wanted == "message.output_text.logprobs") request->logprobs = request->top_logprobs.value_or(0);
  }
}

void read_reasoning(JsonFields& fields, std::string_view body, ResponsesRequest* request) {
  const json::object* object = fields.object("reasoning");
  if (!object) return;
  request->echoed.reasoning = raw_member(fields, body, "reasoning", "null");
  JsonFields nested(*object, "reasoning.");
  std::optional<std::string> effort, summary;
  nested.string("effort", &effort);
  nested.string("summary", &summary);
  if (nested.failed()) return fields.fail(nested.error());
  if (effort && !is_reasoning_effort(*effort)) {
    refuse(request,
           invalid_argument("reasoning.effort",
                            "reasoning.effort must be one of none, minimal, low, medium, high, xhigh and max"));
  }
  request->conversation.reasoning_effort = effort.value_or("");
}

void read_text(JsonFields& fields, std::string_view body, ResponsesRequest* request) {
  const json::object* object = fields.object("text");
  if (!object) return;
  request->echoed.text = raw_member(fields, body, "text", "null");
  JsonFields nested(*object, "text.");
  const json::object* format = nested.object("format");
  if (nested.failed()) return fields.fail(nested.error());
  if (!format) {
    request->echoed.text = ResponsesEcho().text;
    return;
  }
  StructuredOutputFields wanted = read_text_format(*format, "text.format");
  if (wanted.refused && !request->structured.refused) request->structured.refused = std::move(wanted.refused);
  for (StructuredOutput& constraint : wanted.constraints) {
    request->structured.constraints.push_back(std::move(constraint));
  }
}

/// All or nothing that this server could keep between requests.
void read_state(JsonFields& fields, ResponsesRequest* request) {
  fields.string("previous_response_id", &request->previous_response_id);
  bool background = false, store = true;
  fields.boolean("background", &background);
  fields.boolean("store", &store);  // nothing is stored, whatever it says
  if (background) {
    refuse(request, invalid_argument("background", "background: responses are not stored, so none can be polled"));
  }
  for (const char* name : {"prompt", "conversation"}) {
    if (!fields.find(name)) continue;
    refuse(request,
           invalid_argument(name, fmt::format("{}: nothing is stored on this server; send the input itself", name)));
  }
  std::optional<std::string> truncation;
  fields.string("truncation", &truncation);
  if (!truncation) return;
  request->echoed.truncation = fmt::format("\"{}\"", *truncation);
  if (*truncation == "auto") {
    if (!request->truncate_prompt_tokens) request->truncate_prompt_tokens = -1;
  } else if (*truncation != "disabled") {
    refuse(request, invalid_argument("truncation", "truncation must be auto or disabled"));
  }
}

/// Fields of the other endpoints that would change the result there.
void refuse_foreign(JsonFields& fields, ResponsesRequest* request) {
  struct Foreign {
    const char* name;
    const char* instead;
  };
  static constexpr Foreign kForeign[] = {{"messages", "send input"},
                                         {"max_tokens", "send max_output_tokens"},
                                         {"max_completion_tokens", "send max_output_tokens"},
                                         {"response_format", "send text.format"},
                                         {"reasoning_effort", "send reasoning.effort"},
                                         {"logprobs", "send include: [\"message.output_text.logprobs\"]"},
                                         {"prompt_logprobs", "use /v1/completions"}};
  for (const Foreign& field : kForeign) {
    if (!fields.find(field.name)) continue;
    refuse(request, invalid_argument(field.name,
                                     fmt::format("{} is not a field of /v1/responses; {}", field.name, field.instead)));
  }
  const bool many = request->n.value_or(1) != 1 || request->best_of.value_or(1) != 1;
  if (many) refuse(request, invalid_argument("n", "n: /v1/responses gives one answer"));
  if (request->echo) refuse(request, invalid_argument("echo", "echo is not a field of /v1/responses"));
  if (request->return_token_ids) {
    refuse(request, invalid_argument("return_token_ids", "return_token_ids: a response has no place for them"));
  }
}

void read_echoed(JsonFields& fields, std::string_view body, ResponsesRequest* request) {
  std::optional<std::string> user;
  std::optional<int64_t> max_tool_calls;
  fields.string("user", &user);
  fields.integer("max_tool_calls", &max_tool_calls);
  fields.object("metadata");
  request->echoed.user = raw_member(fields, body, "user", "null");
  request->echoed.metadata = raw_member(fields, body, "metadata", "null");
  request->echoed.instructions = raw_member(fields, body, "instructions", "null");
  if (max_tool_calls) request->echoed.max_tool_calls = fmt::format("{}", *max_tool_calls);
  if (request->max_tokens) request->echoed.max_output_tokens = fmt::format("{}", *request->max_tokens);
}

}  // namespace

Result<ResponsesRequest> parse_responses_request(std::string_view body) {
  Result<json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  ResponsesRequest request;
  read_generation_fields(fields, &request);
  refuse_foreign(fields, &request);
  request.max_tokens.reset();
  request.prompt_logprobs.reset();
  fields.integer("max_output_tokens", &request.max_tokens);
  read_input(fields, &request);
  read_include(fields, &request);
  read_text(fields, body, &request);
  read_tools(fields, body, &request);
  read_tool_choice(fields, body, &request);
  if (fields.object("chat_template_kwargs")) {
    request.conversation.kwargs = raw_member(fields, body, "chat_template_kwargs", "");
  }
  fields.boolean("parallel_tool_calls", &request.parallel_tool_calls);
  request.echoed.parallel_tool_calls = request.parallel_tool_calls;
  read_reasoning(fields, body, &request);
  read_state(fields, &request);
  read_echoed(fields, body, &request);
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace helios
