#include "coordinator/protocol/conversation.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <boost/json/array.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"

namespace helios {
namespace json = boost::json;
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

std::string_view text_of(const json::string& text) { return {text.data(), text.size()}; }

void read_array(JsonFields& fields, std::string_view body, std::string_view name, std::string* out) {
  const json::value* value = fields.find(name);
  if (!value) return;
  if (!value->is_array()) return fields.fail(name, "an array", *value);
  *out = raw_json_member(body, name);
}

std::optional<Error> message_fault(const json::value& message, size_t index) {
  const std::string path = fmt::format("messages.{}", index);
  if (!message.is_object()) {
    return invalid_argument(path, fmt::format("{}: expected an object, found {}", path, kind_of(message)));
  }
  const json::value* role = message.get_object().if_contains("role");
  if (!role || !role->is_string()) return invalid_argument(path + ".role", path + ".role: expected a string");
  const std::string_view name = text_of(role->get_string());
  if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
    return invalid_argument(path + ".role", path + ".role must be one of system, developer, user, assistant and tool");
  }
  // An assistant's message may hold tool calls, a refusal or reasoning alone. The form of contents is the template's.
  const json::value* content = message.get_object().if_contains("content");
  if (name == "assistant" || (content && !content->is_null())) return std::nullopt;
  return invalid_argument(path + ".content", fmt::format("{}.content is required for the role {}", path, name));
}

/// The text of a message's content: whole, or its parts joined as the templates see them.
std::string content_text(const json::object& message) {
  const json::value* content = message.if_contains("content");
  if (content && content->is_string()) return std::string(text_of(content->get_string()));
  std::string joined;
  if (!content || !content->is_array()) return joined;
  for (const json::value& part : content->get_array()) {
    const json::object* object = part.if_object();
    const json::value* text = object ? object->if_contains("text") : &part;
    if (&part != &content->get_array().front()) joined += '\n';
    if (text && text->is_string()) joined += text_of(text->get_string());
  }
  return joined;
}

void read_messages(JsonFields& fields, std::string_view body, Conversation* out) {
  const json::value* value = fields.find("messages");
  if (!value) {
    out->malformed = invalid_argument("messages", "messages is required");
    return;
  }
  if (!value->is_array()) return fields.fail("messages", "an array", *value);
  const json::array& messages = value->get_array();
  if (messages.empty()) out->malformed = invalid_argument("messages", "messages is an empty list");
  for (size_t i = 0; i < messages.size() && !out->malformed; ++i) out->malformed = message_fault(messages[i], i);
  if (out->malformed) return;
  out->messages = raw_json_member(body, "messages");
  const json::object& last = messages.back().get_object();
  if (last.at("role") == "assistant") out->final_assistant_text = content_text(last);
}

}  // namespace

bool is_reasoning_effort(std::string_view effort) {
  return std::find(kEfforts.begin(), kEfforts.end(), effort) != kEfforts.end();
}

void read_conversation(JsonFields& fields, std::string_view body, Conversation* out) {
  read_messages(fields, body, out);
  read_array(fields, body, "tools", &out->tools);
  read_array(fields, body, "documents", &out->documents);
  if (fields.object("chat_template_kwargs")) {
    out->kwargs = raw_json_member(body, "chat_template_kwargs");
  }
  std::optional<bool> add_generation_prompt;
  std::optional<std::string> effort;
  fields.boolean("add_generation_prompt", &add_generation_prompt);
  fields.boolean("continue_final_message", &out->continue_final_message);
  fields.string("reasoning_effort", &effort);
  out->add_generation_prompt = add_generation_prompt.value_or(!out->continue_final_message);
  out->reasoning_effort = effort.value_or("");
  if (out->malformed) return;
  if (out->continue_final_message && out->add_generation_prompt) {
    out->malformed = invalid_argument("continue_final_message",
                                      "continue_final_message and add_generation_prompt exclude each other");
  } else if (effort && !is_reasoning_effort(*effort)) {
    out->malformed = invalid_argument(
        "reasoning_effort", "reasoning_effort must be one of none, minimal, low, medium, high, xhigh and max");
  } else if (fields.find("chat_template")) {
    out->malformed = invalid_argument("chat_template",
                                      "chat_template: templates in requests are disabled; start the server with "
                                      "--chat-template FILE");
  }
}

Result<std::string> render_conversation(const Conversation& conversation, const ChatTemplates& templates) {
  if (conversation.malformed) return *conversation.malformed;
  if (!templates.loaded) {
    return invalid_argument("messages", fmt::format("messages: {}; start the server with --chat-template FILE, or send "
                                                    "a prompt to /v1/completions",
                                                    templates.reason));
  }
  return templates.loaded->render({.messages = conversation.messages,
                                   .tools = conversation.tools,
                                   .documents = conversation.documents,
                                   .kwargs = conversation.kwargs,
                                   .reasoning_effort = conversation.reasoning_effort,
                                   .add_generation_prompt = conversation.add_generation_prompt,
                                   .continue_final_message = conversation.continue_final_message});
}

}  // namespace helios
