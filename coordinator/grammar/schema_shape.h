// What several schemas that hold together say of an instance, merged: one shape for each choice of their alternatives.
//
// $ref, allOf and anyOf are gone from a shape; what remains are lists of schemas for the parts (a property, an item),
// which hold together likewise. Pointers are into the schema's document. One thread.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/grammar/grammar_tree.h"
#include "coordinator/grammar/number_range.h"

namespace helios::grammar {

struct SchemaAt {
  const boost::json::value* schema;
  std::string path;  // a JSON pointer with # in front, for messages
};
/// All of these hold. None: anything goes.
using Schemas = std::vector<SchemaAt>;

enum InstanceType : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFractional = 8,  // numbers that are no integers
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};

struct Shape {
  std::string path;
  uint8_t types = kAnyType;
  bool typed = false;                                            // some `type` was given
  uint8_t implied = 0;                                           // the types that other keywords speak of
  std::optional<std::vector<const boost::json::value*>> values;  // enum, const

  std::vector<std::pair<std::string, Schemas>> properties;
  std::set<std::string, std::less<>> required;
  std::optional<Schemas> additional;
  uint32_t min_properties = 0, max_properties = kUnbounded;

  std::vector<Schemas> prefix_items;
  std::optional<Schemas> items;
  uint32_t min_items = 0, max_items = kUnbounded;

  uint32_t min_length = 0, max_length = kUnbounded;
  std::vector<std::string> patterns, formats;

  NumberBounds bounds;
  std::vector<Decimal> factors;  // multipleOf

  const Schemas* property(std::string_view name) const;
};

class ShapeFinder {
 public:
  explicit ShapeFinder(const boost::json::value& document) : document_(document) {}

  /// The shapes of an instance for which all of `schemas` hold; none when nothing can be one. Look at error().
  std::vector<Shape> shapes(const Schemas& schemas);
  /// Follows schemas that are nothing but a $ref. Look at error().
  SchemaAt resolved(SchemaAt at);

  void fail(const std::string& path, const std::string& what);
  /// The first thing that was wrong; empty when all is well.
  const std::string& error() const { return error_; }

 private:
  void apply(const SchemaAt& at, std::vector<Shape>* shapes);
  void apply_keywords(const boost::json::object& schema, const std::string& path, Shape* shape);
  void apply_object_keywords(const boost::json::object& schema, const std::string& path, Shape* shape);
  void apply_array_keywords(const boost::json::object& schema, const std::string& path, Shape* shape);
  void apply_scalar_keywords(const boost::json::object& schema, const std::string& path, Shape* shape);
  void apply_branches(const boost::json::value& branches, const std::string& path, bool exactly_one,
                      std::vector<Shape>* shapes);
  void check_names(const boost::json::object& schema, const std::string& path);
  SchemaAt target(const boost::json::value& reference, const std::string& path);
  bool disjoint(const Shape& a, const Shape& b);
  std::optional<std::vector<const boost::json::value*>> values_of(const Schemas* schemas);
  bool read_count(const boost::json::object& schema, std::string_view name, const std::string& path, uint32_t* out);

  const boost::json::value& document_;
  std::vector<const boost::json::value*> applying_;
  uint64_t applied_ = 0;
  std::string error_;
};

/// The types that a value is an instance of.
uint8_t type_of(const boost::json::value& value);
/// Equality as JSON Schema has it: numbers by value.
bool same_value(const boost::json::value& a, const boost::json::value& b);

}  // namespace helios::grammar
