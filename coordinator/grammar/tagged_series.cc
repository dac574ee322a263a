// The frame around the schemas; they are translated one by one into the same tree.
#include "coordinator/grammar/tagged_series.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/grammar/json_schema.h"

namespace helios::grammar {
namespace {

namespace json = boost::json;

Error malformed(std::string_view what) { return {Errc::kInvalidArgument, "series: expected " + std::string(what)}; }

/// The member, or null when it is no string.
const json::string* string_member(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains({name.data(), name.size()});
  return value != nullptr ? value->if_string() : nullptr;
}

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

Result<NodeId> translate_item(const json::value& value, JsonSpace space, const GrammarLimits& limits,
                              GrammarTree* tree) {
  const json::object* item = value.if_object();
  const json::string* begin = item != nullptr ? string_member(*item, "begin") : nullptr;
  const json::string* end = item != nullptr ? string_member(*item, "end") : nullptr;
  const json::value* schema = item != nullptr ? item->if_contains("schema") : nullptr;
  if (begin == nullptr || end == nullptr || schema == nullptr) return malformed("items with begin, schema and end");
  const Result<NodeId> instance = translate_json_schema(json::serialize(*schema), space, limits, tree);
  if (!instance)
    return Error{Errc::kInvalidArgument, "after " + json::serialize(*begin) + ": " + instance.error().message};
  return tree->cat({tree->text(view(*begin)), *instance, tree->text(view(*end))});
}

}  // namespace

Result<NodeId> translate_tagged_series(std::string_view source, JsonSpace space, const GrammarLimits& limits,
                                       GrammarTree* tree) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.max_depth);
  json::error_code failed;
  const json::value document = json::parse({source.data(), source.size()}, failed, {}, options);
  const json::object* series = failed ? nullptr : document.if_object();
  if (series == nullptr) return malformed("an object");
  const json::string* begin = string_member(*series, "begin");
  const json::string* between = string_member(*series, "between");
  const json::string* end = string_member(*series, "end");
  if (begin == nullptr || between == nullptr || end == nullptr) return malformed("begin, between and end");

  const json::value* max = series->if_contains("max");
  const int64_t* bound = max != nullptr ? max->if_int64() : nullptr;
  if (max == nullptr || (bound == nullptr && !max->is_null()) || (bound != nullptr && (*bound < 1 || *bound > 65536)))
    return malformed("a max of 1 to 65536, or null");

  const json::value* items = series->if_contains("items");
  if (items == nullptr || !items->is_array() || items->get_array().empty()) return malformed("items");
  std::vector<NodeId> alternatives;
  for (const json::value& value : items->get_array()) {
    const Result<NodeId> item = translate_item(value, space, limits, tree);
    if (!item) return item.error();
    alternatives.push_back(*item);
  }
  const NodeId item = tree->alt(std::move(alternatives));
  const uint32_t more = bound == nullptr ? kUnbounded : static_cast<uint32_t>(*bound) - 1;
  const NodeId others = tree->repeat(tree->cat({tree->text(view(*between)), item}), 0, more);
  return tree->cat({tree->text(view(*begin)), item, others, tree->text(view(*end))});
}

}  // namespace helios::grammar
