// From shapes to grammar nodes: one function for each type of instance.
#include "coordinator/grammar/json_schema.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/grammar/json_text.h"
#include "coordinator/grammar/number_range.h"
#include "coordinator/grammar/regex.h"
#include "coordinator/grammar/schema_shape.h"
#include "coordinator/grammar/string_format.h"

namespace helios::grammar {
namespace {

namespace json = boost::json;

constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxPrefixItems = 256;
constexpr uint64_t kMaxEnumeratedMultiples = 4000;

class SchemaTranslator {
 public:
  SchemaTranslator(const json::value& document, JsonSpace space, const GrammarLimits& limits, GrammarTree* tree)
      : document_(document), limits_(limits), tree_(tree), text_(tree, space), finder_(document) {}

  Result<NodeId> translate() {
    NodeId root = node_of({{&document_, "#"}});
    while (!pending_.empty() && good()) {
      const Pending next = std::move(pending_.back());
      pending_.pop_back();
      tree_->define_rule(next.rule, node_of_shapes(next.schemas));
    }
    if (!finder_.error().empty()) return Error{Errc::kInvalidArgument, finder_.error()};
    return root;
  }

 private:
  struct Pending {
    RuleId rule;
    Schemas schemas;
  };

  bool good() const { return finder_.error().empty() && !tree_->overflowed(); }
  NodeId fail(const std::string& path, const std::string& what) {
    finder_.fail(path, what);
    return tree_->never();
  }

  // Schemas that are reached through a $ref become rules, so that recursion ends; those written in place do not.
  NodeId node_of(const Schemas& schemas) {
    Schemas together;
    std::vector<const json::value*> key;
    bool referred = false;
    for (const SchemaAt& at : schemas) {
      const SchemaAt to = finder_.resolved(at);
      if (!good()) return tree_->never();
      referred = referred || to.schema != at.schema;
      if (std::find(key.begin(), key.end(), to.schema) != key.end()) continue;
      key.push_back(to.schema);
      together.push_back(to);
    }
    std::sort(key.begin(), key.end());
    const auto known = nodes_.find(key);
    if (known != nodes_.end()) return known->second;
    // Alternatives may lead back here through a $ref of theirs; then it becomes a rule after all.
    if (!referred && together.size() <= 1 && in_place_.insert(key).second) {
      if (++depth_ > limits_.max_depth) return fail(schemas.empty() ? "#" : schemas[0].path, "nested too deeply");
      const NodeId node = node_of_shapes(together);
      --depth_;
      in_place_.erase(key);
      nodes_.emplace(std::move(key), node);
      return node;
    }
    const RuleId rule = tree_->declare_rule();
    nodes_.emplace(std::move(key), tree_->rule(rule));
    pending_.push_back({rule, std::move(together)});
    return tree_->rule(rule);
  }

  NodeId node_of_shapes(const Schemas& schemas) {
    std::vector<NodeId> ways;
    for (const Shape& shape : finder_.shapes(schemas)) {
      if (!good()) return tree_->never();
      ways.push_back(node_of_shape(shape));
    }
    return tree_->alt(std::move(ways));
  }

  NodeId node_of_shape(const Shape& shape) {
    if (shape.values) return constants(shape);
    const uint8_t types = shape.typed || shape.implied == 0 ? shape.types : shape.types & shape.implied;
    const bool free = shape.implied == 0;
    if (types == kAnyType && free) return text_.any_value();
    std::vector<NodeId> ways;
    if (types & kNull) ways.push_back(text_.null());
    if (types & kBoolean) ways.push_back(text_.boolean());
    if (types & (kInteger | kFractional)) ways.push_back(number(shape, (types & kFractional) == 0));
    if (types & kString) ways.push_back(string(shape));
    if (types & kArray) ways.push_back(array(shape));
    if (types & kObject) ways.push_back(object(shape));
    return tree_->alt(std::move(ways));
  }

  NodeId constants(const Shape& shape) {
    std::vector<NodeId> ways;
    std::vector<std::string> scalars;  // together, as a tree of their beginnings
    for (const json::value* value : *shape.values) {
      const uint8_t type = type_of(*value);
      if ((type & shape.types) == 0) continue;
      const auto number = decimal_of(*value);
      if (number && !shape.bounds.contain(*number)) continue;
      const bool checked_here = (type & shape.implied) == 0 || (number && shape.factors.empty());
      if (!checked_here)
        return fail(shape.path, "enum or const together with keywords for the same type is not supported");
      const NodeId node = text_.constant(*value);
      if (tree_->node(node).kind == NodeKind::kText)
        scalars.push_back(tree_->node(node).text);
      else
        ways.push_back(node);
    }
    ways.push_back(tree_->one_of(std::move(scalars)));
    return tree_->alt(std::move(ways));
  }

  NodeId number(const Shape& shape, bool integers) {
    if (shape.factors.empty()) {
      if (shape.bounds.any())
        return integers ? integers_within(shape.bounds, tree_) : numbers_within(shape.bounds, tree_);
      return integers ? text_.integer() : text_.number();
    }
    if (shape.factors.size() > 1) return fail(shape.path, "multipleOf twice is not supported");
    const NumberBounds& bounds = shape.bounds;
    if (!bounds.any() || (bounds.low && bounds.low->is_zero() && !bounds.above_low && !bounds.high)) {
      const auto node = multiples_of(shape.factors[0], integers, !bounds.low, tree_);
      return node ? *node : fail(shape.path, "multipleOf with so many digits is not supported");
    }
    return multiples_within(shape);
  }

  // Few enough between the bounds are written down one by one.
  NodeId multiples_within(const Shape& shape) {
    const NumberBounds& bounds = shape.bounds;
    const Decimal& factor = shape.factors[0];
    const auto small = [](const Decimal& d) { return d.fraction.empty() && d.whole.size() <= 15; };
    if (!bounds.low || !bounds.high || !small(factor) || bounds.low->whole.size() > 15 ||
        bounds.high->whole.size() > 15)
      return fail(shape.path, "multipleOf together with these bounds is not supported");
    const auto signed_whole = [](const Decimal& d) { return (d.negative ? -1 : 1) * std::stoll(d.whole); };
    const int64_t step = signed_whole(factor);
    const int64_t first = signed_whole(*bounds.low) / step - 1, last = signed_whole(*bounds.high) / step + 1;
    if (last - first > static_cast<int64_t>(kMaxEnumeratedMultiples))
      return fail(shape.path, "multipleOf together with bounds that far apart is not supported");
    std::vector<std::string> texts;
    for (int64_t i = first; i <= last; ++i)
      if (bounds.contain(*decimal_of(json::value(i * step)))) texts.push_back(std::to_string(i * step));
    return tree_->one_of(std::move(texts));
  }

  NodeId string(const Shape& shape) {
    if (shape.min_length > shape.max_length) return tree_->never();
    if (shape.patterns.empty() && shape.formats.empty()) return text_.string(shape.min_length, shape.max_length);
    if (shape.patterns.size() + shape.formats.size() > 1)
      return fail(shape.path, "several patterns or formats that hold together are not supported");
    RegexOptions options{.max_depth = limits_.max_depth, .spell = JsonText::spell};
    std::string expression;
    if (!shape.formats.empty()) {
      const auto regex = format_regex(shape.formats[0]);
      if (!regex) return fail(shape.path, "format \"" + shape.formats[0] + "\" is not supported");
      expression = *regex;
    } else {
      expression = shape.patterns[0];
      options.whole = false;
    }
    const Result<RegexNode> regex = translate_regex(expression, options, tree_);
    if (!regex) return fail(shape.path, "pattern: " + regex.error().message);
    const bool lengths_hold = shape.min_length <= regex->min_length && shape.max_length >= regex->max_length;
    if (!lengths_hold)
      return fail(shape.path,
                  "minLength or maxLength together with pattern or format is not supported, unless the pattern "
                  "keeps to them by itself");
    return text_.quoted(regex->node);
  }

  NodeId array(const Shape& shape) {
    const uint32_t min = shape.min_items, max = shape.max_items;
    if (min > max) return tree_->never();
    const size_t prefix = shape.prefix_items.size();
    const NodeId item = shape.items ? node_of(*shape.items) : text_.any_value();
    if (prefix == 0) return text_.array(item, min, max);
    if (prefix > kMaxPrefixItems) return fail(shape.path, "so many prefixItems are not supported");
    const auto beyond = [&](uint32_t count) {
      return count == kUnbounded ? kUnbounded : count > prefix ? count - static_cast<uint32_t>(prefix) : 0;
    };
    NodeId items = tree_->repeat(tree_->cat({text_.comma(), item}), beyond(min), beyond(max));
    for (size_t i = prefix; i-- > 0;) {
      if (i >= max) {
        items = tree_->empty();
        continue;
      }
      items = tree_->cat({i == 0 ? tree_->empty() : text_.comma(), node_of(shape.prefix_items[i]), items});
      if (i >= min) items = tree_->optional(items);
    }
    return tree_->cat({tree_->text("["), text_.space(), items, text_.space(), tree_->text("]")});
  }

  NodeId object(const Shape& shape) {
    std::vector<GrammarTree::Field> fields;
    std::vector<std::string> names;
    uint32_t required = 0;
    const auto add = [&](const std::string& name, const Schemas& schemas) {
      const bool must = shape.required.contains(name);
      if (name.size() > kMaxNameBytes) fail(shape.path, "a property name of " + std::to_string(name.size()) + " bytes");
      names.push_back(name);
      required += must;
      const NodeId key = tree_->text('"' + JsonText::spelled(name) + '"');
      fields.push_back({text_.member(key, node_of(schemas)), must});
    };
    for (const auto& [name, schemas] : shape.properties) add(name, schemas);
    const std::set<std::string, std::less<>> listed(names.begin(), names.end());
    for (const std::string& name : shape.required)
      if (!listed.contains(name)) add(name, shape.additional.value_or(Schemas{}));
    if (!good()) return tree_->never();

    const bool open = shape.additional.has_value() || fields.empty();
    const NodeId value = !open ? tree_->never() : shape.additional ? node_of(*shape.additional) : text_.any_value();
    const bool more_possible = tree_->node(value).kind != NodeKind::kNever;
    uint32_t min_more = 0, max_more = more_possible ? kUnbounded : 0;
    if (shape.min_properties > required) {
      // Additional members may repeat a name, so only one of them is sure to count.
      if (shape.min_properties > required + 1 || !fields.empty() || !more_possible)
        return fail(shape.path, "minProperties beyond the required properties (or above 1) is not supported");
      min_more = 1;
    }
    if (shape.max_properties < required) return tree_->never();
    if (shape.max_properties < fields.size())
      return fail(shape.path, "maxProperties below the number of properties is not supported");
    if (more_possible && shape.max_properties != kUnbounded)
      max_more = shape.max_properties - static_cast<uint32_t>(fields.size());
    const NodeId more = more_possible ? text_.member(other_key(names), value) : tree_->never();
    return text_.object(tree_->fields(fields, text_.comma(), more, min_more, max_more));
  }

  // Any spelling will do where no name is taken.
  NodeId other_key(const std::vector<std::string>& names) {
    return names.empty() ? text_.string() : text_.key_other_than(names);
  }

  const json::value& document_;
  const GrammarLimits& limits_;
  GrammarTree* tree_;
  JsonText text_;
  ShapeFinder finder_;
  int depth_ = 0;
  std::set<std::vector<const json::value*>> in_place_;       // being translated
  std::map<std::vector<const json::value*>, NodeId> nodes_;  // by the schemas that hold together
  std::vector<Pending> pending_;
};

}  // namespace

Result<NodeId> translate_json_schema(std::string_view schema, JsonSpace space, const GrammarLimits& limits,
                                     GrammarTree* tree) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.max_depth);
  boost::json::error_code failed;
  const json::value document = json::parse({schema.data(), schema.size()}, failed, {}, options);
  if (failed) return Error{Errc::kInvalidArgument, "schema: not JSON: " + failed.message()};
  return SchemaTranslator(document, space, limits, tree).translate();
}

}  // namespace helios::grammar
