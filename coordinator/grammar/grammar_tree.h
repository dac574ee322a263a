// The one form that every kind of grammar is translated to: literals, character classes, sequences, alternatives,
// bounded repetition, named rules, and the comma-separated fields of an object.
//
// Nodes are shared: the same construction gives the same node. A tree that outgrows its limit remembers that and keeps
// answering, so that translators need not look at every step; build_automaton refuses it. One thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coordinator/grammar/code_points.h"

namespace helios::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

enum class NodeKind : uint8_t {
  kEmpty,   // the empty text
  kNever,   // no text at all
  kText,    // `text`, byte for byte
  kClass,   // one code point of classes[index], as UTF-8
  kCat,     // children in order
  kAlt,     // one of the children
  kRepeat,  // children[0], min to max times
  kRule,    // rule `index`
  kFields,  // see GrammarTree::fields
};

struct GrammarNode {
  NodeKind kind = NodeKind::kEmpty;
  uint32_t index = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  std::string text;
  std::vector<NodeId> children;
};

class GrammarTree {
 public:
  explicit GrammarTree(size_t max_nodes) : max_nodes_(max_nodes) {}

  NodeId empty();
  NodeId never();
  NodeId text(std::string_view bytes);
  NodeId code_points(const CodePointSet& set);
  NodeId cat(std::vector<NodeId> children);
  NodeId alt(std::vector<NodeId> children);
  NodeId repeat(NodeId child, uint32_t min, uint32_t max);
  NodeId optional(NodeId child) { return repeat(child, 0, 1); }
  NodeId star(NodeId child) { return repeat(child, 0, kUnbounded); }
  NodeId rule(RuleId rule);
  /// Exactly one of `texts`, as a tree of their common beginnings. None: never.
  NodeId one_of(std::vector<std::string> texts);

  struct Field {
    NodeId node;
    bool required;
  };
  /// The fields in order, each present or (unless required) absent, `separator` between those present, then any number
  /// of `more`, separated likewise, from min_more to max_more.
  NodeId fields(const std::vector<Field>& fields, NodeId separator, NodeId more, uint32_t min_more, uint32_t max_more);

  RuleId declare_rule();
  void define_rule(RuleId rule, NodeId node) { rules_[rule] = node; }
  const std::vector<NodeId>& rules() const { return rules_; }

  const GrammarNode& node(NodeId id) const { return nodes_[id]; }
  const CodePointSet& code_point_class(uint32_t index) const { return classes_[index]; }
  size_t size() const { return nodes_.size(); }
  bool overflowed() const { return overflowed_; }

 private:
  NodeId intern(GrammarNode node);
  NodeId one_of_sorted(const std::vector<std::string>& texts, size_t begin, size_t end, size_t skip);

  size_t max_nodes_;
  bool overflowed_ = false;
  std::vector<GrammarNode> nodes_;
  std::vector<CodePointSet> classes_;
  std::vector<NodeId> rules_;
  std::unordered_map<std::string, NodeId> known_;
  std::unordered_map<std::string, uint32_t> known_classes_;
};

}  // namespace helios::grammar
