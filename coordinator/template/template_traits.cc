#include "coordinator/template/template_traits.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "coordinator/template/json_input.h"

namespace helios::jinja {
namespace {

// --- by looking: does a loop run over a message's content? ---

class ContentLoops {
 public:
  bool found(Block body) {
    collect(body);  // first every name that may hold content: a loop can stand before it is set
    return loops_over_content(body);
  }

 private:
  bool is_content(const Expr* e) const {
    if (!e) return false;
    switch (e->kind) {
      case ExprKind::kName:
        return e->text == "content" || aliases_.contains(e->name);
      case ExprKind::kAttribute:
        return e->text == "content";
      case ExprKind::kItem:
        return e->parts[1]->kind == ExprKind::kConstant && e->parts[1]->constant.is_text() &&
               e->parts[1]->constant.str() == "content";
      case ExprKind::kFilter:
        return is_content(e->parts[0]);
      case ExprKind::kConditional:
        return is_content(e->parts[1]) || is_content(e->parts[2]);
      default:
        return false;
    }
  }

  void collect(Block body) {
    for (const Statement* s : body) {
      if (s->kind == StatementKind::kSet && s->target->kind == ExprKind::kName && is_content(s->expr)) {
        aliases_.insert(s->target->name);
      }
      collect(s->body);
      collect(s->other);
      if (s->macro) collect(s->macro->body);
    }
  }

  bool loops_over_content(Block body) const {
    return std::any_of(body.begin(), body.end(), [this](const Statement* s) {
      if (s->kind == StatementKind::kFor && is_content(s->expr)) return true;
      return loops_over_content(s->body) || loops_over_content(s->other) ||
             (s->macro && loops_over_content(s->macro->body));
    });
  }

  std::set<NameId> aliases_;
};

// --- by trying ---

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"probe","description":"d","parameters":{"type":"object",)"
    R"("properties":{"key":{"type":"string","description":"d"}},"required":["key"]}}}])";
constexpr std::string_view kArgumentsText = R"({"key": "probed value"})";

// What the template makes of one tool call; nullopt when it makes an error of it.
std::optional<std::string> try_tool_call(const JinjaTemplate& source, std::string_view special_tokens,
                                         std::string_view tools, bool arguments_as_text, bool null_content) {
  const std::string_view arguments = arguments_as_text ? R"("{\"key\": \"probed value\"}")" : kArgumentsText;
  const std::string messages =
      cat(R"([{"role":"user","content":"q"},{"role":"assistant","content":)", null_content ? "null" : R"("")",
          R"(,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"probe","arguments":)", arguments,
          R"(}}]},{"role":"tool","tool_call_id":"call00001","name":"probe","content":"r"}])");
  RenderLimits limits;
  limits.max_steps = 1'000'000;
  Sandbox box(limits);
  std::vector<NamedValue> variables;
  const Value tokens = read_json(box, special_tokens, "special tokens");
  for (const Dict::Entry& entry : tokens.dict->entries()) variables.push_back({entry.key.str(), entry.value});
  variables.push_back({"messages", read_json(box, messages, "messages")});
  variables.push_back({"tools", read_json(box, tools, "tools")});
  variables.push_back({"documents", Value::none()});
  variables.push_back({"add_generation_prompt", Value::from(true)});
  auto rendered = source.render(box, variables, {});
  if (!rendered.ok()) return std::nullopt;
  // Arguments must come out whole: text not escaped once more, an object not as Python writes it.
  const bool whole = arguments_as_text ? rendered->find(kArgumentsText) != std::string::npos
                                       : rendered->find("probed value") != std::string::npos &&
                                             rendered->find("'probed value'") == std::string::npos;
  if (!whole) return std::nullopt;
  return std::move(*rendered);
}

// Whether the words of a first message in this role come out.
bool keeps_message(const JinjaTemplate& source, std::string_view special_tokens, std::string_view role) {
  RenderLimits limits;
  limits.max_steps = 1'000'000;
  Sandbox box(limits);
  std::vector<NamedValue> variables;
  const Value tokens = read_json(box, special_tokens, "special tokens");
  for (const Dict::Entry& entry : tokens.dict->entries()) variables.push_back({entry.key.str(), entry.value});
  const std::string messages =
      cat(R"([{"role":")", role, R"(","content":"probed words"},{"role":"user","content":"q"}])");
  variables.push_back({"messages", read_json(box, messages, "messages")});
  variables.push_back({"tools", Value::none()});
  variables.push_back({"documents", Value::none()});
  variables.push_back({"add_generation_prompt", Value::from(true)});
  const auto rendered = source.render(box, variables, {});
  return rendered.ok() && rendered->find("probed words") != std::string::npos;
}

size_t count_none(const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find("None", at)) != std::string::npos; at += 4) ++count;
  return count;
}

}  // namespace

TemplateTraits find_traits(const JinjaTemplate& source, std::string_view special_tokens) {
  TemplateTraits traits;
  traits.reads_content_parts = ContentLoops().found(source.tree().body);
  traits.developer_as_system =
      !keeps_message(source, special_tokens, "developer") && keeps_message(source, special_tokens, "system");
  for (const std::string_view tools : {kTools, std::string_view("null")}) {
    for (const bool as_text : {false, true}) {
      const auto with_null = try_tool_call(source, special_tokens, tools, as_text, true);
      const auto with_empty = try_tool_call(source, special_tokens, tools, as_text, false);
      if (!with_null && !with_empty) continue;
      traits.arguments_as_text = as_text;
      // A null that is printed as text is no content.
      traits.null_content = with_null && (!with_empty || count_none(*with_null) <= count_none(*with_empty));
      return traits;
    }
  }
  return traits;  // it knows no tool calls
}

}  // namespace helios::jinja
