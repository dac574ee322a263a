// Turns nodes of a grammar tree into automaton states, from the end of a text to its beginning.
//
// build(node, exit) gives the state from which `node` and then `exit` is read. The same pair gives the same state, so
// whatever ends alike is shared. One use; one thread.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "coordinator/grammar/automaton.h"

namespace helios::grammar {

class AutomatonBuilder {
 public:
  AutomatonBuilder(const GrammarTree& tree, size_t max_states) : tree_(tree), max_states_(max_states) {}

  /// Builds `root` and every rule that it reaches. False when it would take too many states.
  bool build_rules(RuleId root);
  Automaton& automaton() { return out_; }

 private:
  struct Pending {
    uint32_t rule;
    NodeId node;
  };

  uint32_t build(NodeId node, uint32_t exit);
  uint32_t build_new(NodeId id, uint32_t exit);
  uint32_t build_text(const std::string& text, uint32_t exit);
  uint32_t build_class(const CodePointSet& set, uint32_t exit);
  uint32_t build_code_bytes(std::vector<CodePointSet::Range> ranges, int continuation, uint8_t lead, uint32_t exit);
  uint32_t build_repeat(const GrammarNode& node, uint32_t exit);
  uint32_t build_fields(const GrammarNode& node, uint32_t exit);
  uint32_t build_call(uint32_t rule, uint32_t exit);

  uint32_t rule_of(RuleId rule);
  uint32_t rule_of_body(NodeId body, bool counted, uint32_t min, uint32_t max);
  bool is_prefix_code(NodeId id, std::array<bool, 256>* first_bytes) const;
  bool is_small(NodeId id) const;

  uint32_t add_state(StateKind kind, uint32_t begin, uint32_t count);
  uint32_t add_split(std::span<const uint32_t> targets);
  uint32_t add_bytes(std::span<const ByteEdge> edges);

  const GrammarTree& tree_;
  const size_t max_states_;
  bool overflowed_ = false;
  int depth_ = 0;
  Automaton out_;
  std::vector<Pending> pending_;
  std::unordered_map<uint64_t, uint32_t> built_;                             // (node, exit)
  std::unordered_map<RuleId, uint32_t> rules_;                               // the tree's rules
  std::map<std::tuple<NodeId, bool, uint32_t, uint32_t>, uint32_t> bodies_;  // repeated bodies
  std::unordered_map<uint64_t, uint32_t> any_continuation_;                  // (bytes left, exit)
};

}  // namespace helios::grammar
