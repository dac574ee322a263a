#include "coordinator/template/chat_messages.h"

#include <optional>
#include <string>

#include "coordinator/template/json_input.h"
#include "coordinator/template/python_text.h"

namespace helios::jinja {
namespace {

using std::string_view;

class Normalizer {
 public:
  Normalizer(Sandbox& box, const TemplateTraits& traits, std::string* param)
      : box_(box), traits_(traits), param_(*param) {}

  Value message(Value message, size_t index) {
    path_ = "messages." + std::to_string(index);
    if (!message.is(Kind::kDict)) refuse("", "expected an object");
    const Dict& from = *message.dict;
    const Value* role = from.find(box_, "role");
    if (!role || !role->is_text()) refuse(".role", "expected a string");
    const Value* calls = present(from, "tool_calls");
    if (calls && !calls->is(Kind::kList)) refuse(".tool_calls", "expected an array");
    const bool has_calls = calls && !calls->list->items.empty();

    Dict* to = box_.make<Dict>();
    bool content_seen = false;
    for (const Dict::Entry& entry : from.entries()) {
      const string_view key = entry.key.str();
      if (key == "content") {
        content_seen = true;
        to->set(box_, entry.key, content(entry.value, has_calls));
      } else if (key == "tool_calls") {
        if (has_calls) to->set(box_, entry.key, tool_calls(*calls));
      } else if (key == "role" && entry.value.str() == "developer" && traits_.developer_as_system) {
        set(to, "role", borrow_text(box_, "system"));
      } else if (!entry.value.is(Kind::kNone)) {
        to->set(box_, entry.key, entry.value);
      }
    }
    if (!content_seen) set(to, "content", content(Value::none(), has_calls));
    const Value* reasoning = present(from, "reasoning");
    if (!reasoning) reasoning = present(from, "reasoning_content");
    if (reasoning) {
      set(to, "reasoning", *reasoning);
      set(to, "reasoning_content", *reasoning);
    }
    return Value::from(to);
  }

 private:
  [[noreturn]] void refuse(string_view where, string_view why) {
    param_ = path_ + std::string(where);
    throw Fault{Errc::kInvalidArgument, cat(param_, ": ", why)};
  }

  const Value* present(const Dict& dict, string_view key) const {
    const Value* value = dict.find(box_, key);
    return value && !value->is(Kind::kNone) ? value : nullptr;
  }

  void set(Dict* dict, string_view key, Value value) { dict->set(box_, borrow_text(box_, key), value); }

  Value content(Value content, bool beside_calls) {
    if (content.is_text()) return content;
    if (content.is(Kind::kNone)) {
      return beside_calls && traits_.null_content ? content : borrow_text(box_, "");
    }
    if (!content.is(Kind::kList)) refuse(".content", "expected a string or an array of parts");
    TextBuilder joined(box_);
    ListBuilder parts(box_);
    size_t index = 0;
    for (const Value part : content.list->items) {
      const string_view text = part_text(part, index);
      if (index++ > 0) joined.append('\n');
      joined.append(text);
      Dict* kept = box_.make<Dict>();
      set(kept, "type", borrow_text(box_, "text"));
      set(kept, "text", borrow_text(box_, text));
      parts.push(Value::from(kept));
    }
    return traits_.reads_content_parts ? parts.finish() : joined.finish();
  }

  string_view part_text(Value part, size_t index) {
    if (part.is_text()) return part.str();
    const std::string where = ".content." + std::to_string(index);
    if (!part.is(Kind::kDict)) refuse(where, "expected an object");
    const Value* type = part.dict->find(box_, "type");
    if (!type || !type->is_text()) refuse(where + ".type", "expected a string");
    const string_view kind = type->str();
    if (kind != "text" && kind != "input_text" && kind != "output_text" && kind != "refusal") {
      refuse(where + ".type",
             cat("content of type '", kind.substr(0, 40), "' is not supported: this model reads text only"));
    }
    const Value* text = part.dict->find(box_, kind == "refusal" ? "refusal" : "text");
    if (!text || !text->is_text()) refuse(where + (kind == "refusal" ? ".refusal" : ".text"), "expected a string");
    return text->str();
  }

  Value tool_calls(Value calls) {
    ListBuilder out(box_);
    for (size_t i = 0; i < calls.list->items.size(); ++i) {
      const std::string where = ".tool_calls." + std::to_string(i);
      const Value call = calls.list->items[i];
      if (!call.is(Kind::kDict)) refuse(where, "expected an object");
      const Value* function = present(*call.dict, "function");
      if (!function || !function->is(Kind::kDict)) refuse(where + ".function", "expected an object");
      Dict* called = box_.make<Dict>();
      bool has_arguments = false;
      for (const Dict::Entry& entry : function->dict->entries()) {
        const bool is_arguments = entry.key.str() == "arguments";
        has_arguments |= is_arguments;
        called->set(box_, entry.key,
                    is_arguments ? arguments(entry.value, where + ".function.arguments") : entry.value);
      }
      if (!has_arguments) set(called, "arguments", arguments(Value::none(), where));
      Dict* kept = box_.make<Dict>();
      for (const Dict::Entry& entry : call.dict->entries()) {
        kept->set(box_, entry.key, entry.key.str() == "function" ? Value::from(called) : entry.value);
      }
      out.push(Value::from(kept));
    }
    return out.finish();
  }

  // Returns from within the try: GCC 12 at -O2 loses the first value of a variable that is assigned in one and read
  // behind it, and a text that was not JSON came out as an object at address 0.
  std::optional<Value> read_object(string_view text) {
    try {
      const Value parsed = read_json(box_, text, "arguments");
      return parsed.is(Kind::kDict) ? std::optional(parsed) : std::nullopt;
    } catch (const Fault& fault) {
      if (fault.code != Errc::kInvalidArgument) throw;
      return std::nullopt;
    }
  }

  Value arguments(Value value, const std::string& where) {
    if (value.is(Kind::kNone) || (value.is_text() && value.str().empty())) {
      return traits_.arguments_as_text ? borrow_text(box_, "{}") : Value::from(box_.make<Dict>());
    }
    if (value.is_text()) {
      const std::optional<Value> parsed = read_object(value.str());
      if (!parsed) refuse(where, "expected the JSON text of an object");
      return traits_.arguments_as_text ? value : *parsed;
    }
    if (!value.is(Kind::kDict)) refuse(where, "expected an object or its JSON text");
    if (!traits_.arguments_as_text) return value;
    TextBuilder text(box_);
    append_json(box_, &text, value, {});
    return text.finish();
  }

  Sandbox& box_;
  const TemplateTraits& traits_;
  std::string& param_;
  std::string path_;
};

Value replaced(Sandbox& box, const Dict& from, string_view key, Value value) {
  Dict* out = box.make<Dict>();
  for (const Dict::Entry& entry : from.entries()) {
    out->set(box, entry.key, entry.key.is_text() && entry.key.str() == key ? value : entry.value);
  }
  return Value::from(out);
}

}  // namespace

Value normalized_messages(Sandbox& box, Value messages, const TemplateTraits& traits, std::string* param) {
  *param = "messages";
  if (!messages.is(Kind::kList)) throw Fault{Errc::kInvalidArgument, "messages: expected an array"};
  Normalizer normalizer(box, traits, param);
  ListBuilder out(box);
  for (const Value message : messages.list->items) out.push(normalizer.message(message, out.size()));
  return out.finish();
}

Value with_mark(Sandbox& box, Value messages, std::string_view mark) {
  const auto refuse = [](string_view why) {
    throw Fault{Errc::kInvalidArgument, cat("continue_final_message: ", why)};
  };
  if (!messages.is(Kind::kList) || messages.list->items.empty()) refuse("there is no message to continue");
  const auto items = messages.list->items;
  const Value last = items.back();
  const Value* content = last.is(Kind::kDict) ? last.dict->find(box, "content") : nullptr;
  Value marked = Value::none();
  if (content && content->is_text()) {
    marked = concat_text(box, *content->text, mark);
  } else if (content && content->is(Kind::kList)) {
    const auto parts = content->list->items;
    size_t at = parts.size();  // the last part that has text
    const Value* text = nullptr;
    while (at > 0 && !text) {
      --at;
      text = parts[at].is(Kind::kDict) ? parts[at].dict->find(box, "text") : nullptr;
      if (text && !text->is_text()) text = nullptr;
    }
    if (!text) refuse("the final message has no text to continue");
    ListBuilder kept(box);
    for (size_t i = 0; i < parts.size(); ++i) {
      kept.push(i == at ? replaced(box, *parts[i].dict, "text", concat_text(box, *text->text, mark)) : parts[i]);
    }
    marked = kept.finish();
  } else {
    refuse("the final message has no text to continue");
  }
  ListBuilder out(box);
  for (const Value message : items.first(items.size() - 1)) out.push(message);
  out.push(replaced(box, *last.dict, "content", marked));
  return out.finish();
}

}  // namespace helios::jinja
