// Finds which tokens of a vocabulary a parse may take next.
//
// Most of that does not depend on who called the rule at hand: inside a JSON string, all tokens without a quote go on,
// whatever the string is part of. This part is worked out once for each set of automaton states (an open mask), over
// the whole vocabulary; only tokens that leave the rule and go on are left to be tried in a state's own context. What
// comes out is kept by state. All of it is memory that may be dropped at any time. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "coordinator/grammar/automaton.h"
#include "coordinator/grammar/grammar_vocabulary.h"
#include "coordinator/grammar/parse_states.h"

namespace helios::grammar {

class MaskFinder {
 public:
  /// Both must outlive this.
  MaskFinder(const Automaton& automaton, const GrammarVocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary) {}

  /// Sets the bits of the tokens that may follow `state`, stop tokens where the text may end, and clears all others.
  /// `words`: at least vocabulary.mask_words(). Errors: kUnsupported when no token may follow (the vocabulary lacks
  /// bytes), or when telling would take unreasonably long (an extremely ambiguous grammar).
  Status fill(ParseStates& states, ParseStates::StateId state, std::span<uint32_t> words);

  /// Works out the open masks near the entries of all rules, as far as a fixed amount of work goes.
  void prepare(ParseStates& states);

  /// What is kept by state. The numbers of another ParseStates mean something else.
  void forget_states();
  size_t memory_bytes() const { return open_bytes_ + ready_bytes_; }

 private:
  using StateId = ParseStates::StateId;
  struct Subtree {
    uint32_t node;
    uint32_t shared;  // bytes of its path that the subtree before it shares
  };
  struct OpenMask {
    std::vector<TokenId> few;  // allowed whoever called; empty when `bits` is used
    std::vector<uint32_t> bits;
    std::vector<Subtree> undecided;  // below these, the caller decides
    // In a counted rule: allowed tokens and how many repetitions each adds or begins, most first.
    struct Counted {
      uint32_t used;
      TokenId token;
    };
    std::vector<Counted> counted;
    size_t memory_bytes = 0;
  };
  struct ReadyMask {
    std::vector<TokenId> few;
    std::vector<uint32_t> bits;
    size_t memory_bytes() const { return 96 + few.size() * sizeof(TokenId) + bits.size() * sizeof(uint32_t); }
  };

  std::vector<std::vector<ParsePosition>> groups(const ParseStates& states, StateId state) const;
  std::shared_ptr<const OpenMask> open_mask(ParseStates& states, std::span<const ParsePosition> group);
  std::shared_ptr<OpenMask> find_open_mask(ParseStates& states, std::span<const ParsePosition> group, bool counted);
  bool apply_group(ParseStates& states, StateId state, std::span<const ParsePosition> group, std::span<uint32_t> words);
  bool apply_counted(ParseStates& states, StateId state, const ParsePosition& position, const OpenMask& mask,
                     std::span<uint32_t> words);
  bool try_subtrees(ParseStates& states, StateId state, std::span<const Subtree> subtrees, std::span<uint32_t> words);
  bool try_below(ParseStates& states, uint32_t node, std::span<uint32_t> words);
  bool exhausted(const ParseStates& states) const;
  void put_ready(StateId state, std::span<const uint32_t> words);

  const Automaton& automaton_;
  const GrammarVocabulary& vocabulary_;
  std::map<std::vector<uint32_t>, std::shared_ptr<const OpenMask>> open_;
  size_t open_bytes_ = 0;
  std::unordered_map<StateId, ReadyMask> ready_;
  size_t ready_bytes_ = 0;
  uint64_t work_limit_ = 0;    // of ParseStates::work(), for the mask at hand
  uint64_t visited_ = 0;       // nodes of the vocabulary's tree
  uint64_t visit_limit_ = 0;   // of visited_, for the mask at hand
  bool walked_whole_ = false;  // the whole tree was tried from the state itself
  std::vector<StateId> path_;  // by depth in the tree
};

}  // namespace helios::grammar
