// A grammar as byte automata that call each other: one a rule, nondeterministic, without a state that leads nowhere.
//
// Large bounded repetitions of a character class are counted while parsing instead of being copied (a rule with
// `counted`), so that maxLength 100,000 costs what maxLength 10 does. Left recursion is refused: with it gone, what a
// parse calls without reading a byte is a finite tree. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

enum class StateKind : uint8_t {
  kBytes,     // edges [begin, begin + count)
  kSplit,     // targets [begin, begin + count), without reading
  kCall,      // rule `begin`, then state `count`
  kEnd,       // the rule's end
  kCountEnd,  // one more repetition of counted rule `begin` is complete
};

struct AutomatonState {
  StateKind kind = StateKind::kSplit;
  uint32_t begin = 0;
  uint32_t count = 0;
};

struct ByteEdge {
  uint8_t first = 0;
  uint8_t last = 0;
  uint32_t target = 0;
};

struct AutomatonRule {
  uint32_t start = 0;
  bool nullable = false;
  bool counted = false;  // repeats what lies between start and its kCountEnd, min to max times
  uint32_t min = 0;
  uint32_t max = 0;
};

inline constexpr uint32_t kNoRule = ~uint32_t{0};

struct Automaton {
  std::vector<AutomatonState> states;
  std::vector<ByteEdge> edges;
  std::vector<uint32_t> targets;
  std::vector<AutomatonRule> rules;
  RuleId root = 0;
  std::vector<uint32_t> counted_rule;     // by state: the counted rule that it is part of, or kNoRule
  std::array<uint8_t, 256> byte_class{};  // bytes that no edge tells apart share a class
  std::vector<uint8_t> class_byte;        // one byte of each class

  size_t memory_bytes() const;
};

/// Errors: kInvalidArgument when no text matches, when a rule is left-recursive, or when more than `max_states` states
/// would be needed.
Result<Automaton> build_automaton(const GrammarTree& tree, RuleId root, size_t max_states);

}  // namespace helios::grammar
