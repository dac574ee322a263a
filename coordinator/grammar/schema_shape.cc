// Merging, keyword by keyword. A keyword that is not in the list here is refused, so none is ever ignored.
#include "coordinator/grammar/schema_shape.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cctype>
#include <cmath>

namespace helios::grammar {
namespace {

namespace json = boost::json;

constexpr size_t kMaxShapes = 512;
constexpr uint64_t kMaxApplied = 200'000;
constexpr size_t kMaxNesting = 256;
constexpr size_t kMaxReferences = 64;  // one after another without anything else

// Keywords that describe and do not restrict.
constexpr std::string_view kAnnotations[] = {
    "title",       "description",      "default",         "examples",      "example",      "$schema",
    "$id",         "$comment",         "deprecated",      "readOnly",      "writeOnly",    "$defs",
    "definitions", "contentMediaType", "contentEncoding", "discriminator", "externalDocs", "xml"};

constexpr std::string_view kAssertions[] = {"type",
                                            "enum",
                                            "const",
                                            "properties",
                                            "required",
                                            "additionalProperties",
                                            "minProperties",
                                            "maxProperties",
                                            "items",
                                            "prefixItems",
                                            "minItems",
                                            "maxItems",
                                            "minLength",
                                            "maxLength",
                                            "pattern",
                                            "format",
                                            "minimum",
                                            "maximum",
                                            "exclusiveMinimum",
                                            "exclusiveMaximum",
                                            "multipleOf",
                                            "anyOf",
                                            "allOf",
                                            "oneOf",
                                            "$ref",
                                            "uniqueItems"};

template <size_t N>
bool among(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_annotation(std::string_view name) { return among(name, kAnnotations) || name.starts_with("x-"); }

std::string step_into(const std::string& path, std::string_view name) {
  std::string out = path + '/';
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

uint8_t type_named(std::string_view name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFractional;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return 0;
}

void append(const Schemas& more, Schemas* to) { to->insert(to->end(), more.begin(), more.end()); }

}  // namespace

uint8_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNull;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::int64:
    case json::kind::uint64:
      return kInteger;
    case json::kind::double_:
      return std::trunc(value.get_double()) == value.get_double() ? kInteger : kFractional;
    case json::kind::string:
      return kString;
    case json::kind::array:
      return kArray;
    case json::kind::object:
      return kObject;
  }
  return 0;
}

bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    const auto x = decimal_of(a), y = decimal_of(b);
    return x && y && compare(*x, *y) == 0;
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_array())
    return a.get_array().size() == b.get_array().size() &&
           std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(), same_value);
  if (a.is_object()) {
    if (a.get_object().size() != b.get_object().size()) return false;
    return std::all_of(a.get_object().begin(), a.get_object().end(), [&](const json::key_value_pair& member) {
      const json::value* other = b.get_object().if_contains(member.key());
      return other != nullptr && same_value(member.value(), *other);
    });
  }
  return a == b;
}

const Schemas* Shape::property(std::string_view name) const {
  for (const auto& [known, schemas] : properties)
    if (known == name) return &schemas;
  return nullptr;
}

void ShapeFinder::fail(const std::string& path, const std::string& what) {
  if (error_.empty()) error_ = "schema: " + path + ": " + what;
}

std::vector<Shape> ShapeFinder::shapes(const Schemas& schemas) {
  std::vector<Shape> out(1);
  if (!schemas.empty()) out[0].path = schemas[0].path;
  for (const SchemaAt& at : schemas)
    if (error_.empty()) apply(at, &out);
  return out;
}

SchemaAt ShapeFinder::resolved(SchemaAt at) {
  for (size_t hops = 0; error_.empty(); ++hops) {
    const json::object* schema = at.schema->if_object();
    if (schema == nullptr || !schema->contains("$ref")) break;
    const bool alone = std::all_of(schema->begin(), schema->end(), [](const json::key_value_pair& member) {
      return member.key() == "$ref" || is_annotation(member.key());
    });
    if (!alone) break;
    if (hops == kMaxReferences) {
      fail(at.path, "$ref leads back to itself");
      break;
    }
    at = target(schema->at("$ref"), at.path);
  }
  return at;
}

SchemaAt ShapeFinder::target(const json::value& reference, const std::string& path) {
  const SchemaAt nothing{&document_, "#"};
  if (!reference.is_string()) {
    fail(path, "$ref must be a string");
    return nothing;
  }
  const std::string_view text = reference.get_string();
  if (text != "#" && !text.starts_with("#/")) {
    fail(path, "$ref \"" + std::string(text) + "\" is not supported: only pointers within the schema (#/...)");
    return nothing;
  }
  std::string pointer;
  for (size_t i = 1; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<uint8_t>(text[i + 1])) &&
                         std::isxdigit(static_cast<uint8_t>(text[i + 2]));
    pointer += escaped ? static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)) : text[i];
    if (escaped) i += 2;
  }
  boost::json::error_code failed;
  const json::value* found = document_.find_pointer(pointer, failed);
  if (found == nullptr) {
    fail(path, "$ref \"" + std::string(text) + "\" points at nothing");
    return nothing;
  }
  return {found, "#" + pointer};
}

void ShapeFinder::apply(const SchemaAt& at, std::vector<Shape>* shapes) {
  if (++applied_ > kMaxApplied) return fail(at.path, "the schema is too large once its references are followed");
  if (at.schema->is_bool()) {
    if (!at.schema->get_bool()) shapes->clear();
    return;
  }
  const json::object* schema = at.schema->if_object();
  if (schema == nullptr) return fail(at.path, "a schema must be an object, true or false");
  if (std::find(applying_.begin(), applying_.end(), at.schema) != applying_.end())
    return fail(at.path, "$ref leads back to itself");
  if (applying_.size() >= kMaxNesting) return fail(at.path, "alternatives and references are nested too deeply");
  check_names(*schema, at.path);
  for (Shape& shape : *shapes)
    if (error_.empty()) apply_keywords(*schema, at.path, &shape);
  applying_.push_back(at.schema);
  if (const json::value* reference = schema->if_contains("$ref"); reference != nullptr && error_.empty())
    apply(target(*reference, at.path), shapes);
  if (const json::value* all = schema->if_contains("allOf"); all != nullptr && error_.empty()) {
    if (!all->is_array()) fail(at.path, "allOf must be an array");
    for (size_t i = 0; error_.empty() && i < all->get_array().size(); ++i)
      apply({&all->get_array()[i], at.path + "/allOf/" + std::to_string(i)}, shapes);
  }
  for (const std::string_view name : {"anyOf", "oneOf"})
    if (const json::value* branches = schema->if_contains(name); branches != nullptr && error_.empty())
      apply_branches(*branches, step_into(at.path, name), name == "oneOf", shapes);
  applying_.pop_back();
}

void ShapeFinder::check_names(const json::object& schema, const std::string& path) {
  for (const json::key_value_pair& member : schema) {
    const std::string_view name = member.key();
    if (!is_annotation(name) && !among(name, kAssertions))
      return fail(path, "keyword \"" + std::string(name) + "\" is not supported");
  }
  if (const json::value* unique = schema.if_contains("uniqueItems"); unique && *unique != json::value(false))
    fail(path, "keyword \"uniqueItems\" is not supported");
}

void ShapeFinder::apply_branches(const json::value& branches, const std::string& path, bool exactly_one,
                                 std::vector<Shape>* shapes) {
  if (!branches.is_array() || branches.get_array().empty()) return fail(path, "must be an array that is not empty");
  std::vector<Shape> all;
  std::vector<size_t> branch_of;
  for (size_t i = 0; i < branches.get_array().size() && error_.empty(); ++i) {
    std::vector<Shape> branch = *shapes;
    apply({&branches.get_array()[i], path + '/' + std::to_string(i)}, &branch);
    if (all.size() + branch.size() > kMaxShapes)
      return fail(path, "more than " + std::to_string(kMaxShapes) + " combinations of alternatives");
    for (Shape& shape : branch) {
      for (size_t k = 0; exactly_one && k < all.size(); ++k)
        if (branch_of[k] != i && !disjoint(all[k], shape))
          return fail(path,
                      "branches " + std::to_string(branch_of[k]) + " and " + std::to_string(i) +
                          " may both hold, which is not supported: use anyOf, or a property whose constants differ");
      all.push_back(std::move(shape));
      branch_of.push_back(i);
    }
  }
  *shapes = std::move(all);
}

// The constants that a property's schemas name, when they are nothing but an enum or const.
std::optional<std::vector<const json::value*>> ShapeFinder::values_of(const Schemas* schemas) {
  if (schemas == nullptr) return std::nullopt;
  for (const SchemaAt& at : *schemas) {
    const SchemaAt to = resolved(at);
    const json::object* schema = to.schema->if_object();
    if (schema == nullptr) continue;
    if (const json::value* constant = schema->if_contains("const")) return {{constant}};
    if (const json::value* list = schema->if_contains("enum"); list != nullptr && list->is_array()) {
      std::vector<const json::value*> values;
      for (const json::value& value : list->get_array()) values.push_back(&value);
      return values;
    }
  }
  return std::nullopt;
}

// Whether it is certain that no instance is of both shapes.
bool ShapeFinder::disjoint(const Shape& a, const Shape& b) {
  const auto apart = [](const auto& x, const auto& y) {
    return std::none_of(x.begin(), x.end(), [&](const json::value* value) {
      return std::any_of(y.begin(), y.end(), [&](const json::value* other) { return same_value(*value, *other); });
    });
  };
  // An instance that is made for one of them is what matters, and whether the other admits it.
  const auto made = [](const Shape& shape) {
    return shape.typed || shape.implied == 0 || shape.values ? shape.types : shape.types & shape.implied;
  };
  const int common = (made(a) & b.types) | (made(b) & a.types);
  if (common == 0) return true;
  if (a.values && b.values) return apart(*a.values, *b.values);
  const auto outside = [](const Shape& listed, const Shape& other) {
    return listed.values && std::none_of(listed.values->begin(), listed.values->end(), [&](const json::value* value) {
             return (type_of(*value) & other.types) != 0;
           });
  };
  if (outside(a, b) || outside(b, a)) return true;
  if ((common & ~(kInteger | kFractional)) == 0) {
    NumberBounds both = a.bounds;
    if (b.bounds.low) both.add_low(*b.bounds.low, b.bounds.above_low);
    if (b.bounds.high) both.add_high(*b.bounds.high, b.bounds.below_high);
    if (both.low && both.high) {
      const int order = compare(*both.low, *both.high);
      if (order > 0 || (order == 0 && (both.above_low || both.below_high))) return true;
    }
  }
  if (common != kObject) return false;
  for (const auto* pair : {&a, &b}) {
    const Shape& one = *pair;
    const Shape& other = pair == &a ? b : a;
    for (const std::string& name : one.required) {
      const Schemas* there = other.property(name);
      const auto mine = values_of(one.property(name)), theirs = values_of(there);
      if (mine && theirs && apart(*mine, *theirs) && other.required.contains(name)) return true;
      const bool closed = other.additional && std::any_of(other.additional->begin(), other.additional->end(),
                                                          [](auto& s) { return *s.schema == json::value(false); });
      if (there == nullptr && closed) return true;
    }
  }
  return false;
}

void ShapeFinder::apply_keywords(const json::object& schema, const std::string& path, Shape* shape) {
  if (const json::value* type = schema.if_contains("type")) {
    uint8_t types = 0;
    const auto add = [&](const json::value& name) {
      const uint8_t named = name.is_string() ? type_named(name.get_string()) : 0;
      if (named == 0) fail(path, "type must be one of the seven types of JSON Schema, or an array of them");
      types |= named;
    };
    if (type->is_array())
      for (const json::value& name : type->get_array()) add(name);
    else
      add(*type);
    shape->types &= types;
    shape->typed = true;
  }
  const auto restrict_to = [&](std::vector<const json::value*> values) {
    if (shape->values)
      std::erase_if(values, [&](const json::value* value) {
        return std::none_of(shape->values->begin(), shape->values->end(),
                            [&](const json::value* other) { return same_value(*value, *other); });
      });
    shape->values = std::move(values);
  };
  if (const json::value* list = schema.if_contains("enum")) {
    if (!list->is_array()) return fail(path, "enum must be an array");
    std::vector<const json::value*> values;
    for (const json::value& value : list->get_array()) values.push_back(&value);
    restrict_to(std::move(values));
  }
  if (const json::value* constant = schema.if_contains("const")) restrict_to({constant});
  apply_object_keywords(schema, path, shape);
  apply_array_keywords(schema, path, shape);
  apply_scalar_keywords(schema, path, shape);
}

bool ShapeFinder::read_count(const json::object& schema, std::string_view name, const std::string& path,
                             uint32_t* out) {
  const json::value* value = schema.if_contains(name);
  if (value == nullptr) return false;
  const auto count = decimal_of(*value);
  if (!count || count->negative || !count->fraction.empty()) {
    fail(path, std::string(name) + " must be an integer that is not negative");
    return false;
  }
  // Beyond any text: as good as infinite.
  *out = count->whole.size() > 9 ? 1'000'000'000 : static_cast<uint32_t>(std::stoul(count->whole));
  return true;
}

void ShapeFinder::apply_object_keywords(const json::object& schema, const std::string& path, Shape* shape) {
  std::vector<std::pair<std::string, Schemas>> own;
  std::optional<Schemas> additional;
  if (const json::value* properties = schema.if_contains("properties")) {
    if (!properties->is_object()) return fail(path, "properties must be an object");
    const std::string below = path + "/properties";
    for (const json::key_value_pair& member : properties->get_object())
      own.emplace_back(member.key(), Schemas{{&member.value(), step_into(below, member.key())}});
    shape->implied |= kObject;
  }
  if (const json::value* rest = schema.if_contains("additionalProperties")) {
    additional = Schemas{{rest, path + "/additionalProperties"}};
    shape->implied |= kObject;
  }
  if (const json::value* names = schema.if_contains("required")) {
    if (!names->is_array()) return fail(path, "required must be an array of strings");
    for (const json::value& name : names->get_array()) {
      if (!name.is_string()) return fail(path, "required must be an array of strings");
      shape->required.emplace(name.get_string());
    }
    shape->implied |= kObject;
  }
  uint32_t count = 0;
  if (read_count(schema, "minProperties", path, &count)) {
    shape->min_properties = std::max(shape->min_properties, count);
    shape->implied |= kObject;
  }
  if (read_count(schema, "maxProperties", path, &count)) {
    shape->max_properties = std::min(shape->max_properties, count);
    shape->implied |= kObject;
  }
  // What is additional to one of the schemas may be a property of another.
  if (additional) {
    for (auto& [name, schemas] : shape->properties)
      if (std::none_of(own.begin(), own.end(), [&](const auto& property) { return property.first == name; }))
        append(*additional, &schemas);
  }
  const auto before = static_cast<std::ptrdiff_t>(shape->properties.size());  // names of one schema differ
  for (auto& [name, schemas] : own) {
    const auto end = shape->properties.begin() + before;
    const auto known =
        std::find_if(shape->properties.begin(), end, [&](const auto& property) { return property.first == name; });
    if (known != end) {
      append(schemas, &known->second);
    } else {
      if (shape->additional) append(*shape->additional, &schemas);
      shape->properties.emplace_back(name, std::move(schemas));
    }
  }
  if (additional) {
    if (!shape->additional) shape->additional.emplace();
    append(*additional, &*shape->additional);
  }
}

void ShapeFinder::apply_array_keywords(const json::object& schema, const std::string& path, Shape* shape) {
  std::vector<Schemas> own;
  std::optional<Schemas> items;
  if (const json::value* prefix = schema.if_contains("prefixItems")) {
    if (!prefix->is_array()) return fail(path, "prefixItems must be an array of schemas");
    for (size_t i = 0; i < prefix->get_array().size(); ++i)
      own.push_back({{&prefix->get_array()[i], path + "/prefixItems/" + std::to_string(i)}});
    shape->implied |= kArray;
  }
  if (const json::value* rest = schema.if_contains("items")) {
    if (rest->is_array()) return fail(path, "items as an array is not supported: use prefixItems");
    items = Schemas{{rest, path + "/items"}};
    shape->implied |= kArray;
  }
  uint32_t count = 0;
  if (read_count(schema, "minItems", path, &count)) {
    shape->min_items = std::max(shape->min_items, count);
    shape->implied |= kArray;
  }
  if (read_count(schema, "maxItems", path, &count)) {
    shape->max_items = std::min(shape->max_items, count);
    shape->implied |= kArray;
  }
  for (size_t i = 0; i < std::max(own.size(), shape->prefix_items.size()); ++i) {
    if (i >= shape->prefix_items.size()) shape->prefix_items.push_back(shape->items.value_or(Schemas{}));
    if (i < own.size())
      append(own[i], &shape->prefix_items[i]);
    else if (items)
      append(*items, &shape->prefix_items[i]);
  }
  if (items) {
    if (!shape->items) shape->items.emplace();
    append(*items, &*shape->items);
  }
}

void ShapeFinder::apply_scalar_keywords(const json::object& schema, const std::string& path, Shape* shape) {
  uint32_t count = 0;
  if (read_count(schema, "minLength", path, &count)) {
    shape->min_length = std::max(shape->min_length, count);
    shape->implied |= kString;
  }
  if (read_count(schema, "maxLength", path, &count)) {
    shape->max_length = std::min(shape->max_length, count);
    shape->implied |= kString;
  }
  const auto read_text = [&](std::string_view name, std::vector<std::string>* to) {
    const json::value* value = schema.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(path, std::string(name) + " must be a string");
    if (std::find(to->begin(), to->end(), std::string_view(value->get_string())) == to->end())
      to->emplace_back(value->get_string());
    shape->implied |= kString;
  };
  read_text("pattern", &shape->patterns);
  read_text("format", &shape->formats);
  const auto read_number = [&](std::string_view name, auto&& use) {
    const json::value* value = schema.if_contains(name);
    if (value == nullptr) return;
    const auto number = decimal_of(*value);
    if (!number) return fail(path, std::string(name) + " must be a number");
    use(*number);
    shape->implied |= kInteger | kFractional;
  };
  read_number("minimum", [&](const Decimal& bound) { shape->bounds.add_low(bound, false); });
  read_number("exclusiveMinimum", [&](const Decimal& bound) { shape->bounds.add_low(bound, true); });
  read_number("maximum", [&](const Decimal& bound) { shape->bounds.add_high(bound, false); });
  read_number("exclusiveMaximum", [&](const Decimal& bound) { shape->bounds.add_high(bound, true); });
  read_number("multipleOf", [&](const Decimal& factor) {
    if (factor.negative || factor.is_zero()) return fail(path, "multipleOf must be above zero");
    if (std::none_of(shape->factors.begin(), shape->factors.end(),
                     [&](const Decimal& known) { return compare(known, factor) == 0; }))
      shape->factors.push_back(factor);
  });
}

}  // namespace helios::grammar
