// Reads a request's JSON object field by field: strict about types, lenient about what it does not know.
//
// null equals absence. A number with a zero fraction is an integer; a bool never is one. The first field of the wrong
// type is kept as the error, with its dotted path, and later reads do nothing: check failed() once at the end. Only for
// this room's .cc files (includes Boost.JSON). Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/base/result.h"

namespace helios {

/// Bounded parse: depth 64, strict JSON (no NaN, no comments), valid UTF-8 only; of repeated keys the last wins.
/// Errors: kInvalidArgument, with the byte at which it went wrong.
Result<boost::json::object> parse_json_object(std::string_view body);

/// "a string", "an integer", ...: what a message says it found, never the value itself.
std::string_view kind_of(const boost::json::value& value);

/// An integer, or a finite double with zero fraction, within int64.
std::optional<int64_t> integer_value(const boost::json::value& value);

class JsonFields {
 public:
  /// `path` prefixes the names in errors, as "stream_options."; empty at the top.
  explicit JsonFields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  /// Null when the field is absent or null.
  const boost::json::value* find(std::string_view name) const;

  void boolean(std::string_view name, bool* out);
  void boolean(std::string_view name, std::optional<bool>* out);
  void integer(std::string_view name, std::optional<int64_t>* out);
  /// Finite.
  void number(std::string_view name, std::optional<double>* out);
  void string(std::string_view name, std::optional<std::string>* out);
  void integers(std::string_view name, std::optional<std::vector<int64_t>>* out);
  void strings(std::string_view name, std::optional<std::vector<std::string>>* out);
  /// The nested object, or null.
  const boost::json::object* object(std::string_view name);

  /// Records "path.name: expected X, found Y", unless an earlier error is kept.
  void fail(std::string_view name, std::string_view expected, const boost::json::value& found);
  void fail(Error error);

 private:
  std::string full_name(std::string_view name) const { return path_ + std::string(name); }

  const boost::json::object& object_;
  std::string path_;
  std::optional<Error> error_;
};

}  // namespace helios
