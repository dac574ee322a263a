// The closure of a set of positions under calls and returns, and the interning of what comes out.
#include "coordinator/grammar/parse_states.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace helios::grammar {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

uint64_t hash_of(const ParsePosition& p) { return mix(mix(mix(0, p.caller), p.state), p.count); }

}  // namespace

ParseStates::ParseStates(const Automaton& automaton)
    : automaton_(automaton), num_classes_(automaton.class_byte.size()), call_of_rule_(automaton.rules.size()) {
  callers_.resize(2);  // kTextEnd and kUnknownCaller
  begin_set();
  finish_set();  // kDead
  std::fill(next_.begin(), next_.end(), kDead);
  begin_set();
  enter_rule(automaton.root, kReturnOfCaller, kTextEnd);
  complete_ = automaton.rules[automaton.root].nullable;
  start_ = finish_set();
}

ParseStates::StateId ParseStates::open(std::span<const ParsePosition> positions) {
  begin_set();
  for (ParsePosition position : positions) {
    position.caller = kUnknownCaller;
    add(position);
  }
  return finish_set();
}

ParseStates::StateId ParseStates::open_rule(RuleId rule) {
  begin_set();
  const bool counted = automaton_.rules[rule].counted;
  add({kUnknownCaller, automaton_.rules[rule].start, counted ? kUncounted : 0});
  return finish_set();
}

ParseStates::StateId ParseStates::after_return(uint32_t caller) {
  begin_set();
  return_from(caller);
  return finish_set();
}

ParseStates::StateId ParseStates::find_next(StateId state, size_t at) {
  const uint8_t byte = automaton_.class_byte[at - state * num_classes_];
  begin_set();
  const Entry entry = entries_[state];
  for (uint32_t i = entry.begin; i < entry.begin + entry.size; ++i) {
    const ParsePosition position = positions_[i];
    const AutomatonState& reading = automaton_.states[position.state];
    for (uint32_t e = reading.begin; e < reading.begin + reading.count; ++e) {
      const ByteEdge& edge = automaton_.edges[e];
      if (edge.first <= byte && byte <= edge.last) add({position.caller, edge.target, position.count});
    }
  }
  const StateId next = finish_set();
  next_[at] = next;
  return next;
}

void ParseStates::begin_set() {
  seen_.clear();
  found_.clear();
  for (const Call& call : calls_) call_of_rule_[call.rule] = 0;
  calls_.clear();
  ++set_number_;
  complete_ = escaped_ = overflowed_ = false;
  if (seen_slots_.size() > 4096) seen_slots_.resize(64);
  if (seen_slots_.empty()) seen_slots_.resize(64);
  std::fill(seen_slots_.begin(), seen_slots_.end(), 0);
}

void ParseStates::add(ParsePosition position) {
  if (seen_.size() >= 8 * kMaxPositions) {
    overflowed_ = true;
    return;
  }
  if (2 * seen_.size() >= seen_slots_.size()) {
    seen_slots_.assign(4 * seen_slots_.size(), 0u);
    for (uint32_t i = 0; i < seen_.size(); ++i) {
      size_t slot = hash_of(seen_[i]) & (seen_slots_.size() - 1);
      while (seen_slots_[slot] != 0) slot = (slot + 1) & (seen_slots_.size() - 1);
      seen_slots_[slot] = i + 1;
    }
  }
  size_t slot = hash_of(position) & (seen_slots_.size() - 1);
  for (; seen_slots_[slot] != 0; slot = (slot + 1) & (seen_slots_.size() - 1))
    if (seen_[seen_slots_[slot] - 1] == position) return;
  seen_.push_back(position);
  seen_slots_[slot] = static_cast<uint32_t>(seen_.size());
}

ParseStates::StateId ParseStates::finish_set() {
  for (size_t i = 0; i < seen_.size() && !overflowed_; ++i) visit(seen_[i]);
  work_ += 1 + seen_.size();
  if (overflowed_ || found_.size() > kMaxPositions) return kDead;
  // Calls are numbered now that each knows all who made it. Without left recursion they form no circle.
  resolved_.assign(calls_.size(), kTemporary);
  for (ParsePosition& position : found_) position.caller = resolve(position.caller);
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  return intern_state(complete_, escaped_);
}

void ParseStates::visit(ParsePosition position) {
  const AutomatonState& state = automaton_.states[position.state];
  switch (state.kind) {
    case StateKind::kBytes:
      if (state.count > 0) found_.push_back(position);
      break;
    case StateKind::kSplit:
      for (uint32_t i = 0; i < state.count; ++i)
        add({position.caller, automaton_.targets[state.begin + i], position.count});
      break;
    case StateKind::kCall:
      enter_rule(state.begin, state.count, position.caller);
      // What a rule entered here returns without having read is said here, once, for all who call it.
      if (automaton_.rules[state.begin].nullable) add({position.caller, state.count, 0});
      break;
    case StateKind::kEnd:
      return_from(position.caller);
      break;
    case StateKind::kCountEnd:
      repeat_counted(state.begin, position.count + 1, position.caller);
      break;
  }
}

void ParseStates::enter_rule(uint32_t rule, uint32_t return_state, uint32_t caller) {
  const bool is_new = call_of_rule_[rule] == 0;
  if (is_new) {
    calls_.push_back({rule, {}});
    call_of_rule_[rule] = static_cast<uint32_t>(calls_.size());
  }
  const uint32_t call = call_of_rule_[rule] - 1;
  calls_[call].returns.push_back({caller, return_state});
  if (is_new && !(automaton_.rules[rule].counted && automaton_.rules[rule].max == 0))
    add({call | kTemporary, automaton_.rules[rule].start, 0});
}

void ParseStates::repeat_counted(uint32_t rule, uint32_t count, uint32_t caller) {
  const AutomatonRule& counted = automaton_.rules[rule];
  const bool bounded = (count & kUncounted) == 0;
  if (!bounded || count >= counted.min) return_from(caller);
  if (bounded && counted.max == kUnbounded) count = std::min(count, counted.min);
  if (!bounded || count < counted.max) add({caller, counted.start, count});
}

void ParseStates::return_from(uint32_t caller) {
  if (caller == kTextEnd) {
    complete_ = true;
    return;
  }
  if (caller == kUnknownCaller) {
    escaped_ = true;
    return;
  }
  if (caller & kTemporary) return;  // entered and left without a byte: visit() has said so
  if (returned_in_.size() < callers_.size()) returned_in_.resize(callers_.size() + callers_.size() / 2);
  if (returned_in_[caller] == set_number_) return;
  returned_in_[caller] = set_number_;
  const Caller to = callers_[caller];
  for (uint32_t i = to.begin; i < to.begin + to.size; ++i) {
    const Return& back = returns_[i];
    if (back.state == kReturnOfCaller)
      return_from(back.caller);
    else
      add({back.caller, back.state, 0});
  }
}

bool ParseStates::ends_rule(uint32_t state) const {
  const AutomatonState* s = &automaton_.states[state];
  while (s->kind == StateKind::kSplit && s->count == 1) s = &automaton_.states[automaton_.targets[s->begin]];
  return s->kind == StateKind::kEnd;
}

uint32_t ParseStates::resolve(uint32_t caller) {
  if (!(caller & kTemporary)) return caller;
  const uint32_t call = caller & ~kTemporary;
  if (resolved_[call] != kTemporary) return resolved_[call];
  std::vector<Return> returns;
  for (const Return& back : calls_[call].returns) {
    const uint32_t to = resolve(back.caller);
    if (back.state != kReturnOfCaller && !ends_rule(back.state)) {
      returns.push_back({to, back.state});
    } else if (to == kTextEnd || to == kUnknownCaller) {
      returns.push_back({to, kReturnOfCaller});
    } else {  // a call at a rule's end: return to where that rule returns
      const Caller& skipped = callers_[to];
      returns.insert(returns.end(), returns_.begin() + skipped.begin, returns_.begin() + skipped.begin + skipped.size);
    }
  }
  std::sort(returns.begin(), returns.end());
  returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
  const bool passes = returns.size() == 1 && returns[0].state == kReturnOfCaller;
  return resolved_[call] = passes ? returns[0].caller : intern_caller(std::move(returns));
}

uint32_t ParseStates::intern_caller(std::vector<Return> returns) {
  uint64_t hash = returns.size();
  for (const Return& back : returns) hash = mix(mix(hash, back.caller), back.state);
  for (auto [it, end] = known_callers_.equal_range(hash); it != end; ++it) {
    const Caller& known = callers_[it->second];
    if (std::equal(returns.begin(), returns.end(), returns_.begin() + known.begin,
                   returns_.begin() + known.begin + known.size))
      return it->second;
  }
  const auto id = static_cast<uint32_t>(callers_.size());
  HELIOS_CHECK(id < kTemporary);
  callers_.push_back({static_cast<uint32_t>(returns_.size()), static_cast<uint32_t>(returns.size())});
  returns_.insert(returns_.end(), returns.begin(), returns.end());
  known_callers_.emplace(hash, id);
  return id;
}

ParseStates::StateId ParseStates::intern_state(bool complete, bool escaped) {
  uint64_t hash = (complete ? 1 : 0) | (escaped ? 2 : 0);
  for (const ParsePosition& position : found_) hash = mix(hash, hash_of(position));
  for (auto [it, end] = known_states_.equal_range(hash); it != end; ++it) {
    const Entry& known = entries_[it->second];
    if (known.complete == complete && known.escaped == escaped &&
        std::equal(found_.begin(), found_.end(), positions_.begin() + known.begin,
                   positions_.begin() + known.begin + known.size))
      return it->second;
  }
  const auto id = static_cast<StateId>(entries_.size());
  entries_.push_back(
      {static_cast<uint32_t>(positions_.size()), static_cast<uint32_t>(found_.size()), complete, escaped});
  positions_.insert(positions_.end(), found_.begin(), found_.end());
  next_.insert(next_.end(), num_classes_, kNotKnown);
  known_states_.emplace(hash, id);
  return id;
}

size_t ParseStates::memory_bytes() const {
  constexpr size_t kMapEntry = 48;
  return positions_.size() * sizeof(ParsePosition) + entries_.size() * (sizeof(Entry) + kMapEntry) +
         next_.size() * sizeof(StateId) + returns_.size() * sizeof(Return) +
         callers_.size() * (sizeof(Caller) + kMapEntry);
}

std::vector<ParseStates::StateId> ParseStates::adopt(const ParseStates& from, std::span<const StateId> states) {
  // Stacks first. A caller's number is larger than those of the callers below it, so one ascending pass maps them all.
  std::vector<bool> needed(from.callers_.size());
  for (const StateId state : states)
    for (const ParsePosition& position : from.positions(state)) needed[position.caller] = true;
  for (size_t id = needed.size(); id-- > 2;) {
    if (!needed[id]) continue;
    const Caller& caller = from.callers_[id];
    for (uint32_t i = caller.begin; i < caller.begin + caller.size; ++i) needed[from.returns_[i].caller] = true;
  }
  std::vector<uint32_t> mapped(from.callers_.size());
  mapped[kUnknownCaller] = kUnknownCaller;
  for (uint32_t id = 2; id < needed.size(); ++id) {
    if (!needed[id]) continue;
    const Caller& caller = from.callers_[id];
    std::vector<Return> returns;
    for (uint32_t i = caller.begin; i < caller.begin + caller.size; ++i)
      returns.push_back({mapped[from.returns_[i].caller], from.returns_[i].state});
    std::sort(returns.begin(), returns.end());
    mapped[id] = intern_caller(std::move(returns));
  }
  std::vector<StateId> adopted;
  for (const StateId state : states) {
    found_.clear();
    for (const ParsePosition& position : from.positions(state))
      found_.push_back({mapped[position.caller], position.state, position.count});
    std::sort(found_.begin(), found_.end());
    adopted.push_back(intern_state(from.complete(state), from.escaped(state)));
  }
  return adopted;
}

}  // namespace helios::grammar
