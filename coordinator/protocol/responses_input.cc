// See responses_input.h.
#include "coordinator/protocol/responses_input.h"

#include <unordered_map>

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/template/chat_template.h"

namespace helios {
namespace json = boost::json;
namespace {

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

/// Writes the messages; what one answer said in several items is gathered first.
class MessageList {
 public:
  void message(std::string_view role, std::string_view content_json) {
    flush();
    JsonWriter json(begin());
    json.begin_object().key("role").string(role).key("content").raw(content_json).end_object();
  }
  void tool_output(std::string_view call_id, std::string_view name, std::string_view content_json) {
    flush();
    JsonWriter json(begin());
    json.begin_object().key("role").string("tool").key("tool_call_id").string(call_id).key("name").string(name);
    json.key("content").raw(content_json).end_object();
  }
  void assistant(std::string content_json) {
    if (!content_.empty() || !calls_.empty()) flush();
    content_ = std::move(content_json);
  }
  void reasoning(std::string_view text) {
    if (!reasoning_.empty() || !content_.empty() || !calls_.empty()) flush();
    reasoning_ = text;
  }
  void call(std::string_view id, std::string_view name, std::string_view arguments) {
    if (!calls_.empty()) calls_ += ',';
    JsonWriter json(calls_);
    json.begin_object().key("id").string(id).key("type").string("function").key("function").begin_object();
    json.key("name").string(name).key("arguments").string(arguments).end_object().end_object();
  }
  std::string finish() {
    flush();
    return "[" + out_ + "]";
  }

 private:
  std::string& begin() {
    if (!out_.empty()) out_ += ',';
    return out_;
  }
  void flush() {
    if (reasoning_.empty() && content_.empty() && calls_.empty()) return;
    JsonWriter json(begin());
    json.begin_object().key("role").string("assistant");
    if (!reasoning_.empty()) json.key("reasoning").string(reasoning_);
    json.key("content").raw(content_.empty() ? "null" : content_);
    if (!calls_.empty()) json.key("tool_calls").begin_array().raw(calls_).end_array();
    json.end_object();
    reasoning_.clear();
    content_.clear();
    calls_.clear();
  }

  std::string out_;
  std::string reasoning_, content_, calls_;  // of the assistant's message being gathered; the latter two are JSON
};

class InputReader {
 public:
  Result<std::string> read(const json::value& input, const std::optional<std::string>& instructions) {
    if (instructions) messages_.message("system", json_string(*instructions));
    if (const json::string* text = input.if_string()) {
      messages_.message("user", json_string(view(*text)));
      return messages_.finish();
    }
    const json::array* items = input.if_array();
    if (!items) {
      return invalid_argument("input", fmt::format("input: expected a string or an array, found {}", kind_of(input)));
    }
    if (items->empty()) return invalid_argument("input", "input is an empty list");
    for (size_t i = 0; i < items->size(); ++i) {
      path_ = fmt::format("input.{}", i);
      HELIOS_RETURN_IF_ERROR(item((*items)[i]));
    }
    return messages_.finish();
  }

 private:
  Error wrong(std::string_view member, std::string_view what) const {
    const std::string path = member.empty() ? path_ : fmt::format("{}.{}", path_, member);
    return invalid_argument(path, fmt::format("{}: {}", path, what));
  }

  Result<std::string_view> text_member(const json::object& item, std::string_view name) const {
    const json::value* value = item.if_contains(name);
    if (!value || !value->is_string()) return wrong(name, "expected a string");
    return view(value->get_string());
  }

  Status item(const json::value& value) {
    const json::object* item = value.if_object();
    if (!item) return wrong("", fmt::format("expected an object, found {}", kind_of(value)));
    const json::value* type = item->if_contains("type");
    if (!type || type->is_null()) return message(*item);  // the short form of a message
    if (!type->is_string()) return wrong("type", "expected a string");
    const std::string_view name = view(type->get_string());
    if (name == "message") return message(*item);
    if (name == "reasoning") return reasoning(*item);
    if (name == "function_call") return function_call(*item);
    if (name == "function_call_output") return function_call_output(*item);
    if (name == "item_reference") return wrong("type", "responses are not stored: send the item itself");
    return wrong("type", "only message, reasoning, function_call and function_call_output are supported");
  }

  Status message(const json::object& item) {
    const Result<std::string_view> role = text_member(item, "role");
    if (!role) return role.error();
    if (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer") {
      return wrong("role", "must be one of user, assistant, system and developer");
    }
    Result<std::string> content = content_of(item, "content");
    if (!content) return content.error();
    if (*role == "assistant") {
      messages_.assistant(std::move(*content));
    } else {
      messages_.message(*role, *content);
    }
    return Ok{};
  }

  /// A text, or a list of text parts, as chat has them.
  Result<std::string> content_of(const json::object& item, std::string_view name) const {
    const json::value* value = item.if_contains(name);
    if (value && value->is_string()) return json_string(view(value->get_string()));
    const json::array* parts = value ? value->if_array() : nullptr;
    if (!parts) return wrong(name, "expected a string or an array of parts");
    std::string out;
    JsonWriter json(out);
    json.begin_array();
    for (size_t i = 0; i < parts->size(); ++i) {
      const std::string path = fmt::format("{}.{}", name, i);
      const Result<std::string_view> text = part_text((*parts)[i], path);
      if (!text) return text.error();
      json.begin_object().key("type").string("text").key("text").string(*text).end_object();
    }
    json.end_array();
    return out;
  }

  Result<std::string_view> part_text(const json::value& value, const std::string& path) const {
    const json::object* part = value.if_object();
    if (!part) return wrong(path, fmt::format("expected an object, found {}", kind_of(value)));
    const json::value* type = part->if_contains("type");
    const std::string_view name = type && type->is_string() ? view(type->get_string()) : "";
    const bool known = name == "input_text" || name == "output_text" || name == "text" || name == "summary_text" ||
                       name == "reasoning_text" || name == "refusal";
    if (!known) return wrong(path + ".type", "only text parts are supported (input_text, output_text)");
    const std::string_view member = name == "refusal" ? "refusal" : "text";
    const json::value* text = part->if_contains(member);
    if (!text || !text->is_string()) return wrong(fmt::format("{}.{}", path, member), "expected a string");
    return view(text->get_string());
  }

  /// Its content, or where it has none its summary.
  Status reasoning(const json::object& item) {
    if (const json::value* sealed = item.if_contains("encrypted_content"); sealed && !sealed->is_null()) {
      return wrong("encrypted_content", "this server cannot read it; send the reasoning's content");
    }
    std::string text;
    for (const char* name : {"content", "summary"}) {
      const json::value* value = item.if_contains(name);
      if (!value || value->is_null() || !text.empty()) continue;
      const json::array* parts = value->if_array();
      if (!parts) return wrong(name, "expected an array of parts");
      for (size_t i = 0; i < parts->size(); ++i) {
        const Result<std::string_view> part = part_text((*parts)[i], fmt::format("{}.{}", name, i));
        if (!part) return part.error();
        if (i > 0) text += '\n';
        text += *part;
      }
    }
    if (!text.empty()) messages_.reasoning(text);
    return Ok{};
  }

  Status function_call(const json::object& item) {
    const Result<std::string_view> id = text_member(item, "call_id");
    if (!id) return id.error();
    const Result<std::string_view> name = text_member(item, "name");
    if (!name) return name.error();
    const Result<std::string_view> arguments = text_member(item, "arguments");
    if (!arguments) return arguments.error();
    if (!calls_.emplace(*id, *name).second) return wrong("call_id", "two calls have the same one");
    messages_.call(*id, *name, *arguments);
    return Ok{};
  }

  Status function_call_output(const json::object& item) {
    const Result<std::string_view> id = text_member(item, "call_id");
    if (!id) return id.error();
    const auto call = calls_.find(*id);
    if (call == calls_.end()) return wrong("call_id", "no function_call before it has this one");
    const Result<std::string> output = content_of(item, "output");
    if (!output) return output.error();
    messages_.tool_output(*id, call->second, *output);
    return Ok{};
  }

  MessageList messages_;
  std::unordered_map<std::string_view, std::string_view> calls_;  // id: name, in the input's own text
  std::string path_;
};

/// Calls `take` with the bytes of each element of a valid JSON array.
template <typename Take>
void for_each_element(std::string_view array, Take take) {
  size_t depth = 0, begin = 0;
  bool in_string = false;
  for (size_t i = 0; i < array.size(); ++i) {
    const char c = array[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    const bool ends = depth == 1 && (c == ',' || c == ']');
    if (ends && array.find_first_not_of(" \t\r\n", begin) < i) take(array.substr(begin, i - begin));
    if (ends) begin = i + 1;
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') {
      if (depth++ == 0) begin = i + 1;
    }
    if (c == ']' || c == '}') --depth;
  }
}

}  // namespace

Result<std::string> messages_of_input(const json::value& input, const std::optional<std::string>& instructions) {
  return InputReader().read(input, instructions);
}

std::string chat_tools(std::string_view raw) {
  std::string out;
  JsonWriter json(out);
  json.begin_array();
  for_each_element(raw, [&json](std::string_view tool) {
    json.begin_object().key("type").string("function").key("function").begin_object();
    for (const char* name : {"name", "description", "parameters"}) {
      const std::string_view member = raw_json_member(tool, name);
      if (!member.empty() && member != "null") json.key(name).raw(member);
    }
    json.end_object().end_object();
  });
  json.end_array();
  return out;
}

std::vector<std::string> tool_schemas(std::string_view raw) {
  std::vector<std::string> schemas;
  for_each_element(raw, [&schemas](std::string_view tool) {
    const std::string_view parameters = raw_json_member(tool, "parameters");
    schemas.emplace_back(parameters == "null" ? "" : parameters);
  });
  return schemas;
}

}  // namespace helios
