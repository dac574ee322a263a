// What follows the construction: states that lead nowhere are cut, nullable rules found, left recursion refused, and
// bytes that no edge tells apart put into classes.
#include "coordinator/grammar/automaton.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coordinator/grammar/automaton_builder.h"

namespace helios::grammar {
namespace {

// The states from which the end of their rule can be reached, with or without reading bytes. Backwards from the ends;
// each state is entered once.
class EndReachable {
 public:
  EndReachable(const Automaton& automaton, bool by_bytes)
      : automaton_(automaton), reached_(automaton.states.size()), rule_reached_(automaton.rules.size()) {
    collect(by_bytes);
    for (uint32_t s = 0; s < automaton.states.size(); ++s) {
      const StateKind kind = automaton.states[s].kind;
      if (kind == StateKind::kEnd || kind == StateKind::kCountEnd) reach(s);
    }
    for (const AutomatonRule& rule : automaton.rules)
      if (rule.counted && rule.min == 0) reach_rule(static_cast<uint32_t>(&rule - automaton.rules.data()));
    while (!work_.empty()) {
      const uint32_t state = work_.back();
      work_.pop_back();
      for (uint32_t i = begin_[state]; i < begin_[state + 1]; ++i) enter(from_[i]);
      for (const uint32_t rule : starts_[state]) reach_rule(rule);
    }
  }

  bool state(uint32_t s) const { return reached_[s]; }
  bool rule(uint32_t r) const { return rule_reached_[r]; }

 private:
  template <class F>
  void for_each_edge(bool by_bytes, F&& edge) const {
    for (uint32_t s = 0; s < automaton_.states.size(); ++s) {
      const AutomatonState& state = automaton_.states[s];
      if (state.kind == StateKind::kCall) edge(s, state.count);
      if (state.kind == StateKind::kSplit)
        for (uint32_t i = 0; i < state.count; ++i) edge(s, automaton_.targets[state.begin + i]);
      if (state.kind == StateKind::kBytes && by_bytes)
        for (uint32_t i = 0; i < state.count; ++i) edge(s, automaton_.edges[state.begin + i].target);
    }
  }

  void collect(bool by_bytes) {
    const size_t count = automaton_.states.size();
    begin_.assign(count + 2, 0);
    for_each_edge(by_bytes, [&](uint32_t, uint32_t to) { ++begin_[to + 2]; });
    for (size_t i = 2; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    from_.resize(begin_.back());
    for_each_edge(by_bytes, [&](uint32_t from, uint32_t to) { from_[begin_[to + 1]++] = from; });
    callers_.resize(automaton_.rules.size());
    starts_.resize(count);
    for (uint32_t s = 0; s < count; ++s)
      if (automaton_.states[s].kind == StateKind::kCall) callers_[automaton_.states[s].begin].push_back(s);
    for (uint32_t r = 0; r < automaton_.rules.size(); ++r) {
      // A counted rule is passed through without bytes only when it may be left out.
      if (by_bytes || !automaton_.rules[r].counted) starts_[automaton_.rules[r].start].push_back(r);
    }
  }

  void enter(uint32_t state) {
    const AutomatonState& s = automaton_.states[state];
    if (s.kind != StateKind::kCall || (rule_reached_[s.begin] && reached_[s.count])) reach(state);
  }
  void reach(uint32_t state) {
    if (reached_[state]) return;
    reached_[state] = true;
    work_.push_back(state);
  }
  void reach_rule(uint32_t rule) {
    if (rule_reached_[rule]) return;
    rule_reached_[rule] = true;
    for (const uint32_t caller : callers_[rule]) enter(caller);
  }

  const Automaton& automaton_;
  std::vector<bool> reached_;
  std::vector<bool> rule_reached_;
  std::vector<uint32_t> begin_, from_;
  std::vector<std::vector<uint32_t>> callers_, starts_;
  std::vector<uint32_t> work_;
};

void cut_dead_ends(const EndReachable& alive, Automaton* automaton) {
  for (uint32_t s = 0; s < automaton->states.size(); ++s) {
    AutomatonState& state = automaton->states[s];
    if (state.kind == StateKind::kBytes) {
      const auto begin = automaton->edges.begin() + state.begin;
      state.count = static_cast<uint32_t>(
          std::remove_if(begin, begin + state.count, [&](const ByteEdge& e) { return !alive.state(e.target); }) -
          begin);
    } else if (state.kind == StateKind::kSplit) {
      const auto begin = automaton->targets.begin() + state.begin;
      state.count = static_cast<uint32_t>(
          std::remove_if(begin, begin + state.count, [&](uint32_t t) { return !alive.state(t); }) - begin);
    } else if (state.kind == StateKind::kCall && !alive.state(s)) {
      state = {StateKind::kSplit, 0, 0};
    }
  }
}

// The rules that `rule` calls before it reads a byte.
std::vector<uint32_t> left_calls(const Automaton& automaton, uint32_t rule, std::vector<bool>* seen) {
  std::vector<uint32_t> calls, work{automaton.rules[rule].start}, visited;
  while (!work.empty()) {
    const uint32_t s = work.back();
    work.pop_back();
    if ((*seen)[s]) continue;
    (*seen)[s] = true;
    visited.push_back(s);
    const AutomatonState& state = automaton.states[s];
    if (state.kind == StateKind::kSplit)
      work.insert(work.end(), automaton.targets.begin() + state.begin,
                  automaton.targets.begin() + state.begin + state.count);
    if (state.kind == StateKind::kCall) {
      calls.push_back(state.begin);
      if (automaton.rules[state.begin].nullable) work.push_back(state.count);
    }
  }
  for (const uint32_t s : visited) (*seen)[s] = false;
  return calls;
}

bool left_recursive(const Automaton& automaton) {
  std::vector<bool> seen(automaton.states.size());
  std::vector<uint32_t> callers(automaton.rules.size());  // in the graph of calls without bytes
  std::vector<std::vector<uint32_t>> calls(automaton.rules.size());
  for (uint32_t r = 0; r < calls.size(); ++r) {
    calls[r] = left_calls(automaton, r, &seen);
    for (const uint32_t callee : calls[r]) ++callers[callee];
  }
  std::vector<uint32_t> work;
  for (uint32_t r = 0; r < callers.size(); ++r)
    if (callers[r] == 0) work.push_back(r);
  size_t ordered = 0;
  while (!work.empty()) {
    const uint32_t rule = work.back();
    work.pop_back();
    ++ordered;
    for (const uint32_t callee : calls[rule])
      if (--callers[callee] == 0) work.push_back(callee);
  }
  return ordered != automaton.rules.size();
}

void classify_bytes(Automaton* automaton) {
  std::array<bool, 257> cut{};
  for (const AutomatonState& state : automaton->states) {
    if (state.kind != StateKind::kBytes) continue;
    for (uint32_t e = state.begin; e < state.begin + state.count; ++e) {
      cut[automaton->edges[e].first] = true;
      cut[automaton->edges[e].last + 1] = true;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0 || cut[byte]) automaton->class_byte.push_back(static_cast<uint8_t>(byte));
    automaton->byte_class[byte] = static_cast<uint8_t>(automaton->class_byte.size() - 1);
  }
}

}  // namespace

size_t Automaton::memory_bytes() const {
  return states.size() * (sizeof(AutomatonState) + sizeof(uint32_t)) + edges.size() * sizeof(ByteEdge) +
         targets.size() * sizeof(uint32_t) + rules.size() * sizeof(AutomatonRule);
}

Result<Automaton> build_automaton(const GrammarTree& tree, RuleId root, size_t max_states) {
  AutomatonBuilder builder(tree, max_states);
  if (tree.overflowed() || !builder.build_rules(root))
    return Error{Errc::kInvalidArgument, "the grammar is too large: it needs more than " + std::to_string(max_states) +
                                             " states, or is nested too deeply"};
  Automaton automaton = std::move(builder.automaton());
  const EndReachable alive(automaton, true);
  if (!alive.rule(automaton.root)) return Error{Errc::kInvalidArgument, "the grammar allows no text at all"};
  cut_dead_ends(alive, &automaton);
  const EndReachable without_bytes(automaton, false);
  for (uint32_t r = 0; r < automaton.rules.size(); ++r) automaton.rules[r].nullable = without_bytes.rule(r);
  if (left_recursive(automaton))
    return Error{Errc::kInvalidArgument, "the grammar is left-recursive: a rule reaches itself before any character"};
  classify_bytes(&automaton);
  return automaton;
}

}  // namespace helios::grammar
