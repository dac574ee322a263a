// A JSON Schema validator for tests: each keyword straight from the specification, on finished values. It shares
// nothing with the grammar.
#pragma once

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <regex>
#include <string>

#include "coordinator/tokenizer/utf8.h"

namespace helios::testing {

class SchemaValidator {
 public:
  explicit SchemaValidator(const boost::json::value& root) : root_(root) {}

  bool valid(const boost::json::value& value) const { return valid(root_, value); }

  bool valid(const boost::json::value& schema, const boost::json::value& value) const {
    if (schema.is_bool()) return schema.as_bool();
    const boost::json::object& s = schema.as_object();
    const auto has = [&](const char* name) { return s.if_contains(name); };
    if (const auto* ref = has("$ref")) {
      boost::json::error_code failed;
      std::string pointer = std::string(ref->as_string()).substr(1);
      if (const size_t percent = pointer.find("%25"); percent != std::string::npos) pointer.replace(percent, 3, "%");
      const boost::json::value* to = root_.find_pointer(pointer, failed);
      if (to == nullptr || !valid(*to, value)) return false;
    }
    if (const auto* type = has("type")) {
      if (type->is_string() && !is_type(type->as_string(), value)) return false;
      if (type->is_array() && std::none_of(type->as_array().begin(), type->as_array().end(),
                                           [&](const auto& name) { return is_type(name.as_string(), value); }))
        return false;
    }
    if (const auto* list = has("enum"))
      if (std::none_of(list->as_array().begin(), list->as_array().end(), [&](const auto& v) { return same(v, value); }))
        return false;
    if (const auto* constant = has("const"))
      if (!same(*constant, value)) return false;
    if (const auto* all = has("allOf"))
      for (const auto& part : all->as_array())
        if (!valid(part, value)) return false;
    const auto count = [&](const boost::json::value& parts) {
      return std::count_if(parts.as_array().begin(), parts.as_array().end(),
                           [&](const auto& part) { return valid(part, value); });
    };
    if (const auto* any = has("anyOf"))
      if (count(*any) == 0) return false;
    if (const auto* one = has("oneOf"))
      if (count(*one) != 1) return false;
    if (value.is_number() && !number(s, value.to_number<double>())) return false;
    if (value.is_string() && !string(s, value.as_string())) return false;
    if (value.is_array() && !array(s, value.as_array())) return false;
    return !value.is_object() || object(s, value.as_object());
  }

 private:
  static bool is_type(std::string_view name, const boost::json::value& v) {
    if (name == "null") return v.is_null();
    if (name == "boolean") return v.is_bool();
    if (name == "integer") return v.is_number() && std::trunc(v.to_number<double>()) == v.to_number<double>();
    if (name == "number") return v.is_number();
    if (name == "string") return v.is_string();
    if (name == "array") return v.is_array();
    return name == "object" && v.is_object();
  }
  static bool same(const boost::json::value& a, const boost::json::value& b) {
    return a.is_number() && b.is_number() ? a.to_number<double>() == b.to_number<double>() : a == b;
  }
  static bool number(const boost::json::object& s, double v) {
    const auto get = [&](const char* name, double otherwise) {
      const auto* bound = s.if_contains(name);
      return bound != nullptr ? bound->to_number<double>() : otherwise;
    };
    if (v < get("minimum", -INFINITY) || v > get("maximum", INFINITY)) return false;
    if (v <= get("exclusiveMinimum", -INFINITY) || v >= get("exclusiveMaximum", INFINITY)) return false;
    const double factor = get("multipleOf", 0);
    if (factor == 0) return true;
    const double times = v / factor;
    return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
  }
  static bool string(const boost::json::object& s, std::string_view v) {
    const int64_t length = count_code_points(v);
    if (const auto* min = s.if_contains("minLength"); min && length < min->as_int64()) return false;
    if (const auto* max = s.if_contains("maxLength"); max && length > max->as_int64()) return false;
    if (const auto* pattern = s.if_contains("pattern"))
      return std::regex_search(std::string(v), std::regex(std::string(pattern->as_string())));
    return true;
  }
  bool array(const boost::json::object& s, const boost::json::array& v) const {
    const auto size = static_cast<int64_t>(v.size());
    if (const auto* min = s.if_contains("minItems"); min && size < min->as_int64()) return false;
    if (const auto* max = s.if_contains("maxItems"); max && size > max->as_int64()) return false;
    const auto* prefix = s.if_contains("prefixItems");
    const size_t prefixed = prefix ? prefix->as_array().size() : 0;
    for (size_t i = 0; i < v.size(); ++i) {
      if (i < prefixed && !valid(prefix->as_array()[i], v[i])) return false;
      if (const auto* items = s.if_contains("items"); items && i >= prefixed && !valid(*items, v[i])) return false;
    }
    return true;
  }
  bool object(const boost::json::object& s, const boost::json::object& v) const {
    const auto size = static_cast<int64_t>(v.size());
    if (const auto* min = s.if_contains("minProperties"); min && size < min->as_int64()) return false;
    if (const auto* max = s.if_contains("maxProperties"); max && size > max->as_int64()) return false;
    if (const auto* required = s.if_contains("required"))
      for (const auto& name : required->as_array())
        if (!v.contains(name.as_string())) return false;
    const auto* properties = s.if_contains("properties");
    for (const auto& [key, value] : v) {
      const auto* property = properties ? properties->as_object().if_contains(key) : nullptr;
      const auto* rest = s.if_contains("additionalProperties");
      if (property ? !valid(*property, value) : rest != nullptr && !valid(*rest, value)) return false;
    }
    return true;
  }

  const boost::json::value& root_;
};

}  // namespace helios::testing
