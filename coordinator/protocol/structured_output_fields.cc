#include "coordinator/protocol/structured_output_fields.h"

#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include <fmt/format.h>

#include "coordinator/protocol/api_error.h"

namespace helios {
namespace {

namespace json = boost::json;

/// Reads the members of one object that holds constraints, or the request's own guided_* fields.
class ConstraintReader {
 public:
  ConstraintReader(JsonFields& fields, std::string param, StructuredOutputFields* out)
      : fields_(fields), param_(std::move(param)), out_(out) {}

  /// A schema: an object, or one as text.
  void schema(const char* name) {
    const json::value* value = fields_.find(name);
    if (!value) return;
    if (value->is_object()) return add(name, GrammarKind::kJsonSchema, json::serialize(*value));
    if (value->is_string()) return add(name, GrammarKind::kJsonSchema, text_of(*value));
    fields_.fail(name, "a JSON schema", *value);
  }

  void text(const char* name, GrammarKind kind) {
    const json::value* value = fields_.find(name);
    if (!value) return;
    if (!value->is_string()) return fields_.fail(name, "a string", *value);
    add(name, kind, text_of(*value));
  }

  void choice(const char* name) {
    std::optional<std::vector<std::string>> texts;
    fields_.strings(name, &texts);
    if (!texts) return;
    if (texts->empty()) refuse(invalid_argument(param_of(name), fmt::format("{} is an empty list", param_of(name))));
    add(name, GrammarKind::kChoice, json::serialize(*fields_.find(name)));
  }

  void json_object(const char* name) {
    bool wanted = false;
    fields_.boolean(name, &wanted);
    if (wanted) add(name, GrammarKind::kJsonObject, "");
  }

  /// A member that would change the text's form and is not built, unless its value changes nothing.
  void not_supported(const char* name) {
    const json::value* value = fields_.find(name);
    if (!value || (value->is_bool() && !value->get_bool())) return;
    refuse(invalid_argument(param_of(name), fmt::format("{} is not supported", param_of(name))));
  }

  void refuse(Error error) {
    if (!out_->refused) out_->refused = std::move(error);
  }

 private:
  static std::string text_of(const json::value& value) {
    return {value.get_string().data(), value.get_string().size()};
  }
  std::string param_of(const char* name) const { return param_.empty() ? name : param_ + "." + name; }
  void add(const char* name, GrammarKind kind, std::string source) {
    out_->constraints.push_back({param_of(name), {.kind = kind, .source = std::move(source)}});
  }

  JsonFields& fields_;
  const std::string param_;
  StructuredOutputFields* out_;
};

void use_compact_json(std::vector<StructuredOutput>& constraints, size_t first) {
  for (size_t i = first; i < constraints.size(); ++i) constraints[i].spec.space = JsonSpace::kCompact;
}

void read_structured_outputs(const json::object& object, JsonFields& fields, StructuredOutputFields* out) {
  constexpr const char* kParam = "structured_outputs";
  JsonFields members(object, std::string(kParam) + ".");
  ConstraintReader reader(members, kParam, out);
  const size_t before = out->constraints.size();
  reader.schema("json");
  reader.text("regex", GrammarKind::kRegex);
  reader.choice("choice");
  reader.text("grammar", GrammarKind::kEbnf);
  reader.json_object("json_object");
  const size_t found = out->constraints.size() - before;
  if (members.find("structural_tag") && found == 0) {
    reader.refuse(not_implemented(kParam, "structured_outputs.structural_tag is not built in this version"));
  } else if (found != 1 || members.find("structural_tag")) {
    reader.refuse(
        invalid_argument(kParam, fmt::format("structured_outputs needs exactly one of json, regex, choice, grammar and "
                                             "json_object, got {}",
                                             found + (members.find("structural_tag") ? 1 : 0))));
  }
  bool compact = false, ignored = false;
  members.boolean("disable_any_whitespace", &compact);
  if (compact) use_compact_json(out->constraints, before);
  reader.not_supported("whitespace_pattern");
  reader.not_supported("disable_additional_properties");
  members.boolean("disable_fallback", &ignored);  // there is one implementation, so nothing to fall back to
  if (members.failed()) fields.fail(members.error());
}

/// `schema_holder` has the schema: the format itself, or its json_schema. Null: absent.
void read_format(const std::string& type, const json::object* schema_holder, const std::string& param,
                 StructuredOutputFields* out) {
  const auto refuse = [&](Error error) {
    if (!out->refused) out->refused = std::move(error);
  };
  if (type == "text") return;
  if (type == "json_object") {
    out->constraints.push_back({param, {.kind = GrammarKind::kJsonObject, .source = {}}});
  } else if (type == "json_schema") {
    const json::value* schema = schema_holder != nullptr ? schema_holder->if_contains("schema") : nullptr;
    if (schema == nullptr || !schema->is_object())
      return refuse(invalid_argument(param, fmt::format("{}: json_schema needs a schema, an object", param)));
    out->constraints.push_back({param, {.kind = GrammarKind::kJsonSchema, .source = json::serialize(*schema)}});
  } else if (type == "structural_tag") {
    refuse(not_implemented(param, fmt::format("{}: structural_tag is not built in this version", param)));
  } else {
    refuse(invalid_argument(param, fmt::format("{}.type must be text, json_object or json_schema", param)));
  }
}

}  // namespace

StructuredOutputFields read_structured_output(JsonFields& fields) {
  StructuredOutputFields out;
  if (const json::object* format = fields.object("response_format")) {
    JsonFields members(*format, "response_format.");
    std::optional<std::string> type;
    members.string("type", &type);
    const json::object* holder = members.object("json_schema");
    if (members.failed()) {
      fields.fail(members.error());
    } else {
      read_format(type.value_or(""), holder, "response_format", &out);
    }
  }
  if (const json::object* object = fields.object("structured_outputs")) read_structured_outputs(*object, fields, &out);
  ConstraintReader guided(fields, "", &out);
  guided.schema("guided_json");
  guided.text("guided_regex", GrammarKind::kRegex);
  guided.choice("guided_choice");
  guided.text("guided_grammar", GrammarKind::kEbnf);
  guided.json_object("guided_json_object");
  guided.not_supported("guided_whitespace_pattern");
  return out;
}

StructuredOutputFields read_text_format(const json::object& format, const std::string& param) {
  StructuredOutputFields out;
  const json::value* type = format.if_contains("type");
  if (type == nullptr || !type->is_string()) {
    out.refused = invalid_argument(param + ".type", fmt::format("{}.type: expected a string", param));
    return out;
  }
  read_format({type->get_string().data(), type->get_string().size()}, &format, param, &out);
  return out;
}

}  // namespace helios
