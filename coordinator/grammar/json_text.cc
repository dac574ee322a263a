// RFC 8259 as grammar nodes. What occurs everywhere (a string, any value) is a rule, so that its masks are found once.
#include "coordinator/grammar/json_text.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <utility>

#include "coordinator/tokenizer/utf8.h"

namespace helios::grammar {
namespace {

constexpr uint32_t kMaxIndent = 64;
// Before and after the point. With exponents of two digits every number is finite as a double, and none runs on.
constexpr uint32_t kMaxDigits = 64;

CodePointSet raw_characters() { return CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.complement(); }

// The escape that a character needs within a string; empty when it stands for itself.
std::string escape_of(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (c >= 0x20) return {};
  constexpr char kHex[] = "0123456789abcdef";
  return std::string("\\u00") + kHex[c >> 4] + kHex[c & 15];
}

std::string shortest(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

}  // namespace

NodeId JsonText::once(Once* once, NodeId (JsonText::*make)()) {
  if (!once->known) {
    once->known = true;
    once->rule = tree_->declare_rule();  // before make(): a value contains values
    tree_->define_rule(once->rule, (this->*make)());
  }
  return tree_->rule(once->rule);
}

NodeId JsonText::space() {
  return space_ == JsonSpace::kCompact ? tree_->empty() : once(&space_rule_, &JsonText::make_space);
}

NodeId JsonText::make_space() {
  const NodeId indent = tree_->repeat(tree_->code_points({{'\t', '\t'}, {' ', ' '}}), 0, kMaxIndent);
  return tree_->optional(tree_->alt({tree_->text(" "), tree_->cat({tree_->text("\n"), indent})}));
}

NodeId JsonText::comma() { return tree_->cat({tree_->text(","), space()}); }

NodeId JsonText::string(uint32_t min, uint32_t max) {
  if (min == 0 && max == kUnbounded) return once(&string_, &JsonText::make_string);
  return quoted(tree_->repeat(make_char(), min, max));
}

NodeId JsonText::make_string() { return quoted(tree_->star(make_char())); }

// One character of a free string, in any spelling. No spelling begins another, so that they can be counted.
NodeId JsonText::make_char() {
  const NodeId hex = tree_->code_points({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const NodeId not_surrogate =
      tree_->cat({tree_->code_points({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), hex, hex, hex});
  const NodeId d = tree_->code_points({{'D', 'D'}, {'d', 'd'}});
  const NodeId below_surrogates = tree_->cat({tree_->code_points({{'0', '7'}}), hex, hex});
  const NodeId pair = tree_->cat({tree_->code_points({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), hex, hex,
                                  tree_->text("\\u"), d, tree_->code_points({{'C', 'F'}, {'c', 'f'}}), hex, hex});
  const NodeId unicode = tree_->alt({not_surrogate, tree_->cat({d, tree_->alt({below_surrogates, pair})})});
  const NodeId simple = tree_->code_points(
      {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}});
  const NodeId escape = tree_->cat({tree_->text("\\"), tree_->alt({simple, tree_->cat({tree_->text("u"), unicode})})});
  return tree_->alt({tree_->code_points(raw_characters()), escape});
}

NodeId JsonText::spell(const CodePointSet& set, GrammarTree* tree) {
  const CodePointSet escaped = raw_characters().complement();
  std::vector<std::string> escapes;
  for (const CodePointSet::Range& range : escaped.ranges())
    for (uint32_t c = range.first; c <= range.last; ++c)
      if (set.contains(c)) escapes.push_back(escape_of(c));
  return tree->alt({tree->code_points(set.minus(escaped)), tree->one_of(std::move(escapes))});
}

std::string JsonText::spelled(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string escape = escape_of(static_cast<uint8_t>(c));
    if (escape.empty())
      out += c;
    else
      out += escape;
  }
  return out;
}

NodeId JsonText::quoted(NodeId content) { return tree_->cat({tree_->text("\""), content, tree_->text("\"")}); }

NodeId JsonText::key_other_than(std::vector<std::string> names) {
  const NodeId any = tree_->star(spell(CodePointSet::all(), tree_));
  if (names.empty()) return quoted(any);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  // Below each beginning of a name: end there unless it is a name, or go on in a way that no name does.
  struct Part {
    static NodeId other(JsonText* json, NodeId any, const std::vector<std::string>& names, size_t begin, size_t end,
                        size_t at) {
      GrammarTree* tree = json->tree_;
      std::vector<NodeId> ways;
      if (names[begin].size() == at)
        ++begin;
      else
        ways.push_back(tree->empty());
      CodePointSet taken;
      while (begin < end) {
        const Utf8Step step = next_utf8(std::string_view(names[begin]).substr(at));
        const std::string_view first = std::string_view(names[begin]).substr(at, step.size);
        size_t stop = begin;
        while (stop < end && std::string_view(names[stop]).substr(at, step.size) == first) ++stop;
        taken.add(step.code_point, step.code_point);
        const NodeId head = spell({{step.code_point, step.code_point}}, tree);
        ways.push_back(tree->cat({head, other(json, any, names, begin, stop, at + step.size)}));
        begin = stop;
      }
      ways.push_back(tree->cat({spell(taken.complement(), tree), any}));
      return tree->alt(std::move(ways));
    }
  };
  return quoted(Part::other(this, any, names, 0, names.size(), 0));
}

NodeId JsonText::integer() { return once(&integer_, &JsonText::make_integer); }

NodeId JsonText::make_integer() {
  const NodeId digits = tree_->repeat(tree_->code_points({{'0', '9'}}), 0, kMaxDigits - 1);
  const NodeId natural = tree_->alt({tree_->text("0"), tree_->cat({tree_->code_points({{'1', '9'}}), digits})});
  return tree_->cat({tree_->optional(tree_->text("-")), natural});
}

NodeId JsonText::number() { return once(&number_, &JsonText::make_number); }

NodeId JsonText::make_number() {
  const NodeId digit = tree_->code_points({{'0', '9'}});
  const NodeId digits = tree_->repeat(digit, 1, kMaxDigits);
  const NodeId fraction = tree_->cat({tree_->text("."), digits});
  const NodeId sign = tree_->optional(tree_->code_points({{'+', '+'}, {'-', '-'}}));
  const NodeId exponent = tree_->cat({tree_->code_points({{'E', 'E'}, {'e', 'e'}}), sign, tree_->repeat(digit, 1, 2)});
  return tree_->cat({make_integer(), tree_->optional(fraction), tree_->optional(exponent)});
}

NodeId JsonText::boolean() { return tree_->one_of({"true", "false"}); }

NodeId JsonText::any_value() { return once(&value_, &JsonText::make_value); }
NodeId JsonText::any_object() { return once(&object_, &JsonText::make_object); }
NodeId JsonText::any_array() { return once(&array_, &JsonText::make_array); }

NodeId JsonText::make_value() { return tree_->alt({any_object(), any_array(), string(), number(), boolean(), null()}); }

NodeId JsonText::make_object() {
  return object(tree_->fields({}, comma(), member(string(), any_value()), 0, kUnbounded));
}

NodeId JsonText::make_array() { return array(any_value(), 0, kUnbounded); }

NodeId JsonText::member(NodeId key, NodeId value) { return tree_->cat({key, tree_->text(":"), space(), value}); }

NodeId JsonText::object(NodeId members) {
  return tree_->cat({tree_->text("{"), space(), members, space(), tree_->text("}")});
}

NodeId JsonText::array(NodeId item, uint32_t min, uint32_t max) {
  return tree_->cat({tree_->text("["), space(), tree_->fields({}, comma(), item, min, max), space(), tree_->text("]")});
}

NodeId JsonText::constant(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return null();
    case boost::json::kind::bool_:
      return tree_->text(value.get_bool() ? "true" : "false");
    case boost::json::kind::int64:
      return tree_->text(std::to_string(value.get_int64()));
    case boost::json::kind::uint64:
      return tree_->text(std::to_string(value.get_uint64()));
    case boost::json::kind::double_:
      return tree_->text(shortest(value.get_double()));
    case boost::json::kind::string:
      return tree_->text('"' + spelled(value.get_string()) + '"');
    case boost::json::kind::array: {
      std::vector<GrammarTree::Field> items;
      for (const boost::json::value& item : value.get_array()) items.push_back({constant(item), true});
      const NodeId inside = tree_->fields(items, comma(), tree_->never(), 0, 0);
      return tree_->cat({tree_->text("["), space(), inside, space(), tree_->text("]")});
    }
    case boost::json::kind::object: {
      std::vector<GrammarTree::Field> members;
      for (const auto& [key, item] : value.get_object())
        members.push_back({member(tree_->text('"' + spelled(key) + '"'), constant(item)), true});
      return object(tree_->fields(members, comma(), tree_->never(), 0, 0));
    }
  }
  return tree_->never();
}

}  // namespace helios::grammar
