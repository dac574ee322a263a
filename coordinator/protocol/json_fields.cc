#include "coordinator/protocol/json_fields.h"

#include <cmath>

#include <fmt/format.h>
#include <boost/json/parser.hpp>

#include "coordinator/protocol/api_error.h"

namespace helios {
namespace json = boost::json;
namespace {

constexpr size_t kMaxDepth = 64;

}  // namespace

Result<json::object> parse_json_object(std::string_view body) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::parser parser({}, options);
  boost::system::error_code ec;
  const size_t read = parser.write_some({body.data(), body.size()}, ec);
  if (!ec && read < body.size()) ec = json::error::extra_data;
  if (ec) {
    return invalid_argument("", fmt::format("the request body is not valid JSON: {} near byte {}", ec.message(), read));
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    return invalid_argument("", fmt::format("the request body must be a JSON object, found {}", kind_of(value)));
  }
  return std::move(value.get_object());
}

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
      return "an integer";
    case json::kind::uint64:
      return "an integer of 2^63 or more";
    case json::kind::double_:
      return std::isfinite(value.get_double()) ? "a number that is no 64-bit integer" : "a number beyond all doubles";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "a value";
}

std::optional<int64_t> integer_value(const json::value& value) {
  if (const int64_t* integer = value.if_int64()) return *integer;
  if (const double* number = value.if_double()) {
    constexpr double kTwo63 = 9223372036854775808.0;
    if (*number >= -kTwo63 && *number < kTwo63 && std::trunc(*number) == *number) return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

const json::value* JsonFields::find(std::string_view name) const {
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value && !value->is_null() ? value : nullptr;
}

void JsonFields::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void JsonFields::fail(std::string_view name, std::string_view expected, const json::value& found) {
  const std::string path = full_name(name);
  fail(invalid_argument(path, fmt::format("{}: expected {}, found {}", path, expected, kind_of(found))));
}

void JsonFields::boolean(std::string_view name, bool* out) {
  std::optional<bool> value;
  boolean(name, &value);
  if (value) *out = *value;
}

void JsonFields::boolean(std::string_view name, std::optional<bool>* out) {
  const json::value* value = find(name);
  if (!value) return;
  if (!value->is_bool()) return fail(name, "a boolean", *value);
  *out = value->get_bool();
}

void JsonFields::integer(std::string_view name, std::optional<int64_t>* out) {
  const json::value* value = find(name);
  if (!value) return;
  *out = integer_value(*value);
  if (!*out) fail(name, "a 64-bit integer", *value);
}

void JsonFields::number(std::string_view name, std::optional<double>* out) {
  const json::value* value = find(name);
  if (!value) return;
  if (!value->is_number()) return fail(name, "a number", *value);
  const double number = value->to_number<double>();
  if (!std::isfinite(number)) return fail(name, "a finite number", *value);
  *out = number;
}

void JsonFields::string(std::string_view name, std::optional<std::string>* out) {
  const json::value* value = find(name);
  if (!value) return;
  if (!value->is_string()) return fail(name, "a string", *value);
  out->emplace(value->get_string().data(), value->get_string().size());
}

void JsonFields::integers(std::string_view name, std::optional<std::vector<int64_t>>* out) {
  const json::value* value = find(name);
  if (!value) return;
  if (!value->is_array()) return fail(name, "an array of integers", *value);
  out->emplace();
  (*out)->reserve(value->get_array().size());
  for (const json::value& element : value->get_array()) {
    const std::optional<int64_t> integer = integer_value(element);
    if (!integer) return fail(name, "an array of 64-bit integers", element);
    (*out)->push_back(*integer);
  }
}

void JsonFields::strings(std::string_view name, std::optional<std::vector<std::string>>* out) {
  const json::value* value = find(name);
  if (!value) return;
  if (!value->is_array()) return fail(name, "an array of strings", *value);
  out->emplace();
  for (const json::value& element : value->get_array()) {
    if (!element.is_string()) return fail(name, "an array of strings", element);
    (*out)->emplace_back(element.get_string().data(), element.get_string().size());
  }
}

const json::object* JsonFields::object(std::string_view name) {
  const json::value* value = find(name);
  if (!value) return nullptr;
  if (value->is_object()) return &value->get_object();
  fail(name, "an object", *value);
  return nullptr;
}

}  // namespace helios
