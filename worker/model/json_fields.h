// Typed reads of one object of config.json that explain themselves. Only what parses JSON includes this.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "worker/model/load_error.h"

namespace helios {

/// One JSON object with the file's path, for typed reads that explain themselves.
class JsonFields {
 public:
  JsonFields(const boost::json::object& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& what) const { throw LoadError(where_ + ": " + what); }

  /// Absent and null are the same, as in the published configurations.
  const boost::json::value* find(const char* key) const {
    const boost::json::value* v = object_.if_contains(key);
    return v && !v->is_null() ? v : nullptr;
  }
  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const boost::json::value* v = find(key);
    if (!v) fail(fmt::format("{}: expected an integer, found none", key));
    if (!v->is_int64() || v->get_int64() < low || v->get_int64() > high) {
      fail(fmt::format("{}: expected an integer from {} to {}, found {}", key, low, high, print(*v)));
    }
    return v->get_int64();
  }
  int64_t integer_or(const char* key, int64_t low, int64_t high, int64_t otherwise) const {
    return find(key) ? integer(key, low, high) : otherwise;
  }
  double number(const char* key) const {
    const boost::json::value* v = find(key);
    if (!v || !v->is_number()) fail(fmt::format("{}: expected a number, found {}", key, v ? print(*v) : "none"));
    const double value = v->to_number<double>();
    if (!(value > 0.0) || !std::isfinite(value))
      fail(fmt::format("{}: expected a number over 0, found {}", key, value));
    return value;
  }
  double number_or(const char* key, double otherwise) const { return find(key) ? number(key) : otherwise; }
  bool boolean_or(const char* key, bool otherwise) const {
    const boost::json::value* v = find(key);
    if (!v) return otherwise;
    if (!v->is_bool()) fail(fmt::format("{}: expected true or false, found {}", key, print(*v)));
    return v->get_bool();
  }
  std::string string_or(const char* key, std::string otherwise) const {
    const boost::json::value* v = find(key);
    if (!v) return otherwise;
    if (!v->is_string()) fail(fmt::format("{}: expected a string, found {}", key, print(*v)));
    return std::string(v->get_string());
  }
  const boost::json::object* object_or_null(const char* key) const {
    const boost::json::value* v = find(key);
    if (!v) return nullptr;
    if (!v->is_object()) fail(fmt::format("{}: expected an object, found {}", key, print(*v)));
    return &v->get_object();
  }
  const std::string& where() const { return where_; }

  static std::string print(const boost::json::value& v) {
    std::string text = boost::json::serialize(v);
    for (char& c : text) c = c >= 0x20 && c < 0x7f ? c : '?';
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  }

 private:
  const boost::json::object& object_;
  std::string where_;
};

}  // namespace helios
