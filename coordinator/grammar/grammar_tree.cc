// Interning of nodes, and the small identities (an empty sequence, one alternative) that keep trees plain.
#include "coordinator/grammar/grammar_tree.h"

#include <algorithm>
#include <utility>

namespace helios::grammar {
namespace {

void put(uint32_t value, std::string* key) { key->append(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

NodeId GrammarTree::intern(GrammarNode node) {
  std::string key;
  key.reserve(16 + node.text.size() + 4 * node.children.size());
  put(static_cast<uint32_t>(node.kind), &key);
  put(node.index, &key);
  put(node.min, &key);
  put(node.max, &key);
  key += node.text;
  for (const NodeId child : node.children) put(child, &key);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  if (nodes_.size() >= max_nodes_) {
    overflowed_ = true;
    return 0;  // some node: the tree is refused as a whole
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back(std::move(node));
  known_.emplace(std::move(key), id);
  return id;
}

NodeId GrammarTree::empty() { return intern({.kind = NodeKind::kEmpty}); }

NodeId GrammarTree::never() { return intern({.kind = NodeKind::kNever}); }

NodeId GrammarTree::text(std::string_view bytes) {
  if (bytes.empty()) return empty();
  return intern({.kind = NodeKind::kText, .text = std::string(bytes)});
}

NodeId GrammarTree::code_points(const CodePointSet& set) {
  if (set.empty()) return never();
  std::string key;
  for (const CodePointSet::Range& range : set.ranges()) {
    put(range.first, &key);
    put(range.last, &key);
  }
  const auto [entry, is_new] = known_classes_.try_emplace(std::move(key), static_cast<uint32_t>(classes_.size()));
  if (is_new) classes_.push_back(set);
  return intern({.kind = NodeKind::kClass, .index = entry->second});
}

NodeId GrammarTree::cat(std::vector<NodeId> children) {
  std::erase_if(children, [&](NodeId child) { return nodes_[child].kind == NodeKind::kEmpty; });
  for (const NodeId child : children)
    if (nodes_[child].kind == NodeKind::kNever) return child;
  if (children.empty()) return empty();
  if (children.size() == 1) return children[0];
  return intern({.kind = NodeKind::kCat, .children = std::move(children)});
}

NodeId GrammarTree::alt(std::vector<NodeId> children) {
  std::erase_if(children, [&](NodeId child) { return nodes_[child].kind == NodeKind::kNever; });
  std::vector<NodeId> unique;
  std::unordered_map<NodeId, bool> seen;
  for (const NodeId child : children)
    if (seen.try_emplace(child, true).second) unique.push_back(child);
  if (unique.empty()) return never();
  if (unique.size() == 1) return unique[0];
  return intern({.kind = NodeKind::kAlt, .children = std::move(unique)});
}

NodeId GrammarTree::repeat(NodeId child, uint32_t min, uint32_t max) {
  if (min > max) return never();
  if (max == 0 || nodes_[child].kind == NodeKind::kEmpty) return empty();
  if (nodes_[child].kind == NodeKind::kNever) return min == 0 ? empty() : child;
  if (min == 1 && max == 1) return child;
  return intern({.kind = NodeKind::kRepeat, .min = min, .max = max, .children = {child}});
}

NodeId GrammarTree::rule(RuleId rule) { return intern({.kind = NodeKind::kRule, .index = rule}); }

NodeId GrammarTree::one_of(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return one_of_sorted(texts, 0, texts.size(), 0);
}

NodeId GrammarTree::one_of_sorted(const std::vector<std::string>& texts, size_t begin, size_t end, size_t skip) {
  if (begin == end) return never();
  const std::string& first = texts[begin];
  const std::string& last = texts[end - 1];
  size_t common = skip;
  while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
  const NodeId head = text(std::string_view(first).substr(skip, common - skip));
  std::vector<NodeId> tails;
  if (first.size() == common) {
    tails.push_back(empty());
    ++begin;
  }
  while (begin < end) {
    size_t stop = begin;
    while (stop < end && texts[stop][common] == texts[begin][common]) ++stop;
    tails.push_back(one_of_sorted(texts, begin, stop, common));
    begin = stop;
  }
  return cat({head, alt(std::move(tails))});
}

NodeId GrammarTree::fields(const std::vector<Field>& fields, NodeId separator, NodeId more, uint32_t min_more,
                           uint32_t max_more) {
  // children: what follows once something is there, the same when nothing is yet, the separator, then the fields;
  // `text` says of each whether it is required.
  const NodeId another = cat({separator, more});
  const NodeId after = repeat(another, min_more, max_more);
  const bool none = max_more == 0 || nodes_[more].kind == NodeKind::kNever;
  NodeId first = none ? (min_more == 0 ? empty() : never())
                      : cat({more, repeat(another, min_more == 0 ? 0 : min_more - 1,
                                          max_more == kUnbounded ? kUnbounded : max_more - 1)});
  if (min_more == 0) first = optional(first);
  if (fields.empty()) return first;
  GrammarNode node{.kind = NodeKind::kFields, .children = {after, first, separator}};
  for (const Field& field : fields) {
    node.text += field.required ? '1' : '0';
    node.children.push_back(field.node);
  }
  return intern(std::move(node));
}

RuleId GrammarTree::declare_rule() {
  rules_.push_back(0);
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace helios::grammar
