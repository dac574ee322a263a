// The states that parses of one grammar can be in, found as they are needed: a deterministic view of an automaton with
// a stack.
//
// A parse that is ambiguous so far is several at once, so a state is a set of positions: an automaton state, how often
// a counted rule has repeated, and who called (a stack, of which equal parts exist once). Equal sets are one state with
// one number, whatever text led there, so what is known about it - the state after a byte, the mask of allowed
// tokens - is known for good. Not thread-safe: the compiled grammar locks.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "coordinator/grammar/automaton.h"

namespace helios::grammar {

/// One parse among those of a state.
struct ParsePosition {
  uint32_t caller = 0;  // stack: ParseStates' own number
  uint32_t state = 0;   // of the automaton; one that reads bytes
  uint32_t count = 0;   // complete repetitions within a counted rule, else 0
  friend auto operator<=>(const ParsePosition&, const ParsePosition&) = default;
};

class ParseStates {
 public:
  using StateId = uint32_t;
  static constexpr StateId kDead = 0;
  /// Callers that are no rule: the text's end, and one that is not known (see open()).
  static constexpr uint32_t kTextEnd = 0;
  static constexpr uint32_t kUnknownCaller = 1;
  /// In `count`: the bounds of the counted rule are not applied.
  static constexpr uint32_t kUncounted = 1u << 31;
  /// A state may hold this many positions; a byte that would need more is not taken.
  static constexpr size_t kMaxPositions = 8192;

  explicit ParseStates(const Automaton& automaton);

  /// Before the first byte.
  StateId start() const { return start_; }
  /// The given automaton states of one rule, called by somebody unknown. Counts with kUncounted.
  StateId open(std::span<const ParsePosition> positions);
  /// The entry of a rule, called by somebody unknown.
  StateId open_rule(RuleId rule);

  /// Where a rule's caller goes on once the rule has ended.
  StateId after_return(uint32_t caller);

  /// The state after `byte`, kDead when no parse goes on.
  StateId step(StateId state, uint8_t byte) {
    const size_t at = state * num_classes_ + automaton_.byte_class[byte];
    const StateId known = next_[at];
    return known != kNotKnown ? known : find_next(state, at);
  }
  /// The text may end here.
  bool complete(StateId state) const { return entries_[state].complete; }
  /// From a state of open(): the rule may end here, and what follows depends on the caller.
  bool escaped(StateId state) const { return entries_[state].escaped; }
  /// Sorted by caller, then state, then count.
  std::span<const ParsePosition> positions(StateId state) const {
    return {positions_.data() + entries_[state].begin, entries_[state].size};
  }

  /// Grows with the time and memory spent on finding states: one a position looked at.
  uint64_t work() const { return work_; }
  size_t memory_bytes() const;
  /// The same states among this object's: numbers of `from` to numbers of this.
  std::vector<StateId> adopt(const ParseStates& from, std::span<const StateId> states);

 private:
  static constexpr StateId kNotKnown = ~StateId{0};
  static constexpr uint32_t kReturnOfCaller = ~uint32_t{0};  // as a return state: go on as the caller's end does
  static constexpr uint32_t kTemporary = 1u << 31;

  struct Return {
    uint32_t caller;  // of the rule that is returned to
    uint32_t state;   // where it goes on
    friend auto operator<=>(const Return&, const Return&) = default;
  };
  struct Caller {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  struct Entry {
    uint32_t begin = 0;
    uint32_t size = 0;
    bool complete = false;
    bool escaped = false;
  };
  struct Call {  // a rule entered at the present byte: its caller's number is not yet known
    uint32_t rule;
    std::vector<Return> returns;
  };

  StateId find_next(StateId state, size_t at);
  void begin_set();
  void add(ParsePosition position);
  StateId finish_set();
  void visit(ParsePosition position);
  void enter_rule(uint32_t rule, uint32_t return_state, uint32_t caller);
  void repeat_counted(uint32_t rule, uint32_t count, uint32_t caller);
  void return_from(uint32_t caller);
  uint32_t resolve(uint32_t caller);
  uint32_t intern_caller(std::vector<Return> returns);
  StateId intern_state(bool complete, bool escaped);
  bool ends_rule(uint32_t state) const;

  const Automaton& automaton_;
  const size_t num_classes_;
  StateId start_ = kDead;

  std::vector<ParsePosition> positions_;
  std::vector<Entry> entries_;
  std::vector<StateId> next_;  // [state][byte class]
  std::vector<Return> returns_;
  std::vector<Caller> callers_;
  std::unordered_multimap<uint64_t, StateId> known_states_;
  std::unordered_multimap<uint64_t, uint32_t> known_callers_;

  // The set under construction.
  std::vector<ParsePosition> seen_;   // in order of discovery; visited from the front
  std::vector<uint32_t> seen_slots_;  // open addressing over seen_, index + 1
  std::vector<ParsePosition> found_;  // those that read bytes
  std::vector<Call> calls_;
  std::vector<uint32_t> resolved_;      // by call: its caller's number
  std::vector<uint32_t> call_of_rule_;  // by rule: call + 1
  std::vector<uint32_t> returned_in_;   // by caller: the set in which it was last returned to
  uint32_t set_number_ = 0;
  uint64_t work_ = 0;
  bool complete_ = false;
  bool escaped_ = false;
  bool overflowed_ = false;
};

}  // namespace helios::grammar
