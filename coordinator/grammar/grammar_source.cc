// Which translator reads which kind of source, under which limits.
#include "coordinator/grammar/grammar_source.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/grammar/ebnf.h"
#include "coordinator/grammar/json_schema.h"
#include "coordinator/grammar/json_text.h"
#include "coordinator/grammar/regex.h"
#include "coordinator/grammar/tagged_series.h"

namespace helios::grammar {
namespace {

Result<NodeId> translate(const GrammarSpec& spec, const GrammarLimits& limits, GrammarTree* tree);

Result<NodeId> translate_any_of(std::string_view source, const GrammarLimits& limits, GrammarTree* tree) {
  boost::json::error_code failed;
  const boost::json::value document = boost::json::parse({source.data(), source.size()}, failed);
  const boost::json::array* alternatives = failed ? nullptr : document.if_array();
  std::vector<NodeId> nodes;
  for (size_t i = 0; alternatives != nullptr && i < alternatives->size(); ++i) {
    const boost::json::object* member = (*alternatives)[i].if_object();
    const auto number = [&](const char* name) -> int64_t {
      const boost::json::value* value = member != nullptr ? member->if_contains(name) : nullptr;
      return value != nullptr && value->is_int64() ? value->get_int64() : -1;
    };
    const boost::json::value* text = member != nullptr ? member->if_contains("source") : nullptr;
    const int64_t kind = number("kind"), space = number("space");
    const bool known = kind >= 0 && kind < static_cast<int64_t>(GrammarKind::kAnyOf) && (space == 0 || space == 1);
    if (!known || text == nullptr || !text->is_string()) break;
    const GrammarSpec spec{static_cast<GrammarKind>(kind), std::string(text->get_string()),
                           static_cast<JsonSpace>(space)};
    const Result<NodeId> node = translate(spec, limits, tree);
    if (!node) return node.error();
    nodes.push_back(*node);
  }
  if (nodes.empty() || nodes.size() != alternatives->size())
    return Error{Errc::kInvalidArgument, "any of: expected alternatives with kind, source and space"};
  return tree->alt(std::move(nodes));
}

Result<NodeId> translate(const GrammarSpec& spec, const GrammarLimits& limits, GrammarTree* tree) {
  switch (spec.kind) {
    case GrammarKind::kRegex: {
      const Result<RegexNode> regex = translate_regex(spec.source, {.max_depth = limits.max_depth}, tree);
      if (!regex) return regex.error();
      return regex->node;
    }
    case GrammarKind::kChoice:
      return translate_choice(spec.source, tree);
    case GrammarKind::kJsonObject:
      return JsonText(tree, spec.space).any_object();
    case GrammarKind::kJsonSchema:
      return translate_json_schema(spec.source, spec.space, limits, tree);
    case GrammarKind::kEbnf:
      return translate_ebnf(spec.source, limits.max_depth, tree);
    case GrammarKind::kTaggedSeries:
      return translate_tagged_series(spec.source, spec.space, limits, tree);
    case GrammarKind::kAnyOf:
      return translate_any_of(spec.source, limits, tree);
  }
  return Error{Errc::kInvalidArgument, "a kind of grammar that is not known"};
}

}  // namespace
}  // namespace helios::grammar

namespace helios {

GrammarSpec any_of(std::span<const GrammarSpec> alternatives) {
  boost::json::array list;
  for (const GrammarSpec& spec : alternatives) {
    list.push_back(boost::json::object{{"kind", static_cast<int64_t>(spec.kind)},
                                       {"source", spec.source},
                                       {"space", static_cast<int64_t>(spec.space)}});
  }
  return {.kind = GrammarKind::kAnyOf, .source = boost::json::serialize(list)};
}

}  // namespace helios

namespace helios::grammar {

Result<NodeId> translate_choice(std::string_view source, GrammarTree* tree) {
  boost::json::error_code failed;
  const boost::json::value document = boost::json::parse({source.data(), source.size()}, failed);
  const boost::json::array* choices = failed ? nullptr : document.if_array();
  if (choices == nullptr || choices->empty())
    return Error{Errc::kInvalidArgument, "choice: expected an array of strings that is not empty"};
  std::vector<std::string> texts;
  for (const boost::json::value& choice : *choices) {
    if (!choice.is_string()) return Error{Errc::kInvalidArgument, "choice: every element must be a string"};
    texts.emplace_back(choice.get_string());
  }
  return tree->one_of(std::move(texts));
}

Result<Automaton> automaton_of(const GrammarSpec& spec, const GrammarLimits& limits) {
  if (spec.source.size() > limits.max_source_bytes)
    return Error{Errc::kInvalidArgument, "the grammar's source has " + std::to_string(spec.source.size()) +
                                             " bytes, more than " + std::to_string(limits.max_source_bytes)};
  GrammarTree tree(limits.max_nodes);
  const RuleId root = tree.declare_rule();
  const Result<NodeId> node = translate(spec, limits, &tree);
  if (!node) return node.error();
  if (tree.overflowed())
    return Error{Errc::kInvalidArgument,
                 "the grammar is too large: more than " + std::to_string(limits.max_nodes) + " parts"};
  tree.define_rule(root, *node);
  return build_automaton(tree, root, limits.max_states);
}

}  // namespace helios::grammar
