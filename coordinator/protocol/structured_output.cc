#include "coordinator/protocol/structured_output.h"

#include <algorithm>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <fmt/format.h>

#include "coordinator/parser/output_parser.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

namespace json = boost::json;

/// A tool without members takes none: the schema says nothing of others, and a model would invent some.
json::value parameters_of(const ToolSignature& tool) {
  const json::object none{{"type", "object"}, {"properties", json::object()}, {"additionalProperties", false}};
  if (tool.parameters.empty()) return none;
  json::error_code failed;
  json::value schema = json::parse(tool.parameters, failed);
  if (failed) return json::string(tool.parameters);  // compiling says what is wrong with it
  const json::object* object = schema.if_object();
  if (object == nullptr) return schema;
  bool silent = true;
  for (const json::key_value_pair& member : *object) {
    const bool no_properties =
        member.key() == "properties" && member.value().is_object() && member.value().get_object().empty();
    const bool no_required =
        member.key() == "required" && member.value().is_array() && member.value().get_array().empty();
    silent = silent && (no_properties || no_required || member.key() == "$schema" || member.key() == "title" ||
                        member.key() == "description" || (member.key() == "type" && member.value() == "object"));
  }
  if (silent) return none;
  json::object arguments = *object;  // they are an object, also where the schema does not say so
  arguments["type"] = "object";
  return arguments;
}

bool may_be_object(const json::value* type) {
  const auto is_object = [](const json::value& name) { return name == "object"; };
  if (type == nullptr || is_object(*type)) return true;
  const json::array* types = type->if_array();
  return types != nullptr && std::any_of(types->begin(), types->end(), is_object);
}

struct SeriesFrame {
  std::string_view begin, between, end;        // of the calls
  std::string_view call_begin, key, call_end;  // of one: call_begin NAME key ARGUMENTS call_end
};

SeriesFrame frame_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kNone:
      break;
    case ToolFormat::kHermes:
      return {"", "\n", "", "<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>"};
    case ToolFormat::kLlama3Json:
      return {"", "; ", "", "{\"name\": ", ", \"parameters\": ", "}"};
    case ToolFormat::kMistral:
      return {"[TOOL_CALLS][", ", ", "]", "{\"name\": ", ", \"arguments\": ", "}"};
  }
  return {};
}

}  // namespace

Result<std::optional<StructuredOutput>> structured_output(StructuredOutputFields fields) {
  if (fields.refused) return *std::move(fields.refused);
  if (fields.constraints.empty()) return std::optional<StructuredOutput>();
  if (fields.constraints.size() > 1) {
    const std::string& second = fields.constraints[1].param;
    return invalid_argument(
        second, fmt::format("{} and {} cannot both constrain the text", fields.constraints[0].param, second));
  }
  return std::optional(std::move(fields.constraints[0]));
}

Result<std::shared_ptr<const CompiledGrammar>> compile_structured_output(const StructuredOutput& output,
                                                                         GrammarCache& grammars) {
  const auto refuse = [&](const Error& error) {
    if (error.code == Errc::kInternal) return error;
    return invalid_argument(output.param, fmt::format("{}: {}", output.param, error.message));
  };
  Result<std::shared_ptr<const CompiledGrammar>> grammar = grammars.get(output.spec);
  if (!grammar) return refuse(grammar.error());
  std::vector<uint32_t> words((*grammar)->vocabulary().mask_words());
  if (Status first = GrammarMatcher(*grammar).fill_mask(words); !first) return refuse(first.error());
  return grammar;
}

std::optional<Error> tool_fault(std::string_view path, std::string_view name, const json::object* parameters) {
  const std::string field = fmt::format("{}name", path);
  if (name.empty()) return invalid_argument(field, field + " is required");
  const auto escaped = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; };
  if (name.size() > kMaxCallNameBytes || std::any_of(name.begin(), name.end(), escaped)) {
    return invalid_argument(field, fmt::format("{} must have at most {} bytes, and no quote, backslash or control "
                                               "character: calls of it could not be read",
                                               field, kMaxCallNameBytes));
  }
  if (parameters == nullptr || may_be_object(parameters->if_contains("type"))) return std::nullopt;
  const std::string type = fmt::format("{}parameters.type", path);
  return invalid_argument(type, type + " must be \"object\": a function's arguments are its members");
}

GrammarSpec tool_call_grammar(std::span<const ToolSignature> tools, bool parallel, ToolFormat format) {
  const SeriesFrame frame = frame_of(format);
  json::array items;
  for (const ToolSignature& tool : tools) {
    std::string begin(frame.call_begin);
    begin += json_string(tool.name);
    begin += frame.key;
    items.push_back(json::object{{"begin", begin}, {"schema", parameters_of(tool)}, {"end", frame.call_end}});
  }
  const json::object series{{"begin", frame.begin},
                            {"between", frame.between},
                            {"end", frame.end},
                            {"max", parallel ? json::value(nullptr) : json::value(1)},
                            {"items", std::move(items)}};
  return {.kind = GrammarKind::kTaggedSeries, .source = json::serialize(series)};
}

std::optional<StructuredOutput> forced_calls(const ToolChoice& choice, std::vector<ToolSignature> tools, bool parallel,
                                             ToolFormat format) {
  if (!choice.forces_calls() || format == ToolFormat::kNone) return std::nullopt;
  const bool named = choice.kind == ToolChoice::Kind::kNamed;
  if (named) std::erase_if(tools, [&](const ToolSignature& tool) { return tool.name != choice.name; });
  if (tools.empty()) return std::nullopt;
  return StructuredOutput{"tool_choice", tool_call_grammar(tools, parallel && !named, format)};
}

}  // namespace helios
