// Walks over the vocabulary's tree: whole ones for open masks, a few subtrees for the rest.
#include "coordinator/grammar/mask_finder.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace helios::grammar {
namespace {

constexpr size_t kMaxOpenBytes = 8u << 20;
constexpr size_t kMaxReadyBytes = 8u << 20;
// Positions that may be looked at for one mask, which keeps the engine waiting. Ordinary grammars need some hundreds,
// once.
constexpr uint64_t kMaxWork = 1u << 18;
// Nodes of the vocabulary's tree that one mask may visit: a few whole walks over a large vocabulary.
constexpr uint64_t kMaxVisits = 8u << 20;
// Nodes of the vocabulary's tree that compiling may visit: a handful of whole walks.
constexpr uint64_t kPrepareVisits = 3u << 20;

void set_bit(TokenId token, std::span<uint32_t> words) {
  words[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
}

void clear_bit(TokenId token, std::span<uint32_t> words) {
  words[static_cast<size_t>(token) / 32] &= ~(1u << (static_cast<uint32_t>(token) % 32));
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Status MaskFinder::fill(ParseStates& states, StateId state, std::span<uint32_t> words) {
  std::fill(words.begin(), words.end(), 0);
  const auto known = ready_.find(state);
  if (known != ready_.end()) {
    std::copy(known->second.bits.begin(), known->second.bits.end(), words.begin());
    for (const TokenId token : known->second.few) set_bit(token, words);
    return Ok{};
  }
  work_limit_ = states.work() + kMaxWork;
  visited_ = 0;
  visit_limit_ = kMaxVisits;
  walked_whole_ = false;
  if (states.complete(state))
    for (const TokenId token : vocabulary_.stop_ids()) set_bit(token, words);
  for (const std::vector<ParsePosition>& group : groups(states, state)) {
    if (!apply_group(states, state, group, words))
      return Error{Errc::kUnsupported,
                   "the grammar is too ambiguous here: which tokens may follow takes too long to tell"};
    if (walked_whole_) break;  // whatever other groups allow was found with it
  }
  if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; }))
    return Error{Errc::kUnsupported,
                 "no token of the vocabulary continues the grammar here, or it can be read in too many ways"};
  put_ready(state, words.first(vocabulary_.mask_words()));
  return Ok{};
}

void MaskFinder::put_ready(StateId state, std::span<const uint32_t> words) {
  size_t allowed = 0;
  for (const uint32_t word : words) allowed += static_cast<size_t>(std::popcount(word));
  ReadyMask mask;
  if (allowed < words.size()) {
    mask.few.reserve(allowed);
    for (size_t w = 0; w < words.size(); ++w)
      for (uint32_t rest = words[w]; rest != 0; rest &= rest - 1)
        mask.few.push_back(static_cast<TokenId>(32 * w + static_cast<size_t>(std::countr_zero(rest))));
  } else {
    mask.bits.assign(words.begin(), words.end());
  }
  if (ready_bytes_ + mask.memory_bytes() > kMaxReadyBytes) forget_states();
  ready_bytes_ += mask.memory_bytes();
  ready_.emplace(state, std::move(mask));
}

void MaskFinder::forget_states() {
  ready_.clear();
  ready_bytes_ = 0;
}

void MaskFinder::prepare(ParseStates& states) {
  visited_ = 0;
  visit_limit_ = ~uint64_t{0};
  const auto prepare_state = [&](StateId state) {
    for (const std::vector<ParsePosition>& group : groups(states, state)) {
      if (visited_ >= kPrepareVisits) return;
      open_mask(states, group);
    }
  };
  work_limit_ = states.work() + kMaxWork;
  prepare_state(states.start());
  for (RuleId rule = 0; rule < automaton_.rules.size(); ++rule) {
    if (visited_ >= kPrepareVisits || states.work() > work_limit_) return;
    const StateId entry = states.open_rule(rule);
    prepare_state(entry);
    for (const uint8_t byte : automaton_.class_byte) prepare_state(states.step(entry, byte));
  }
}

// The positions of a state by caller; those in counted rules one by one, since each has its own count. Copies: what
// ParseStates holds moves when states are added.
std::vector<std::vector<ParsePosition>> MaskFinder::groups(const ParseStates& states, StateId state) const {
  const std::span<const ParsePosition> positions = states.positions(state);
  std::vector<std::vector<ParsePosition>> out;
  for (size_t begin = 0; begin < positions.size();) {
    size_t end = begin + 1;
    const auto counted = [&](size_t i) { return automaton_.counted_rule[positions[i].state] != kNoRule; };
    if (!counted(begin))
      while (end < positions.size() && positions[end].caller == positions[begin].caller && !counted(end)) ++end;
    out.emplace_back(positions.begin() + static_cast<std::ptrdiff_t>(begin),
                     positions.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return out;
}

std::shared_ptr<const MaskFinder::OpenMask> MaskFinder::open_mask(ParseStates& states,
                                                                  std::span<const ParsePosition> group) {
  std::vector<uint32_t> key;
  for (const ParsePosition& position : group) key.push_back(position.state);
  const auto known = open_.find(key);
  if (known != open_.end()) return known->second;
  const bool counted = automaton_.counted_rule[group[0].state] != kNoRule;
  std::shared_ptr<OpenMask> mask = find_open_mask(states, group, counted);
  if (!mask) return nullptr;
  mask->memory_bytes = 128 + mask->few.size() * sizeof(TokenId) + mask->bits.size() * sizeof(uint32_t) +
                       mask->undecided.size() * sizeof(Subtree) + mask->counted.size() * sizeof(OpenMask::Counted) +
                       key.size() * sizeof(uint32_t);
  if (open_bytes_ + mask->memory_bytes > kMaxOpenBytes) {
    open_.clear();
    open_bytes_ = 0;
  }
  open_bytes_ += mask->memory_bytes;
  open_.emplace(std::move(key), mask);
  return mask;
}

std::shared_ptr<MaskFinder::OpenMask> MaskFinder::find_open_mask(ParseStates& states,
                                                                 std::span<const ParsePosition> group, bool counted) {
  std::vector<ParsePosition> positions(group.begin(), group.end());
  for (ParsePosition& position : positions) position.count = counted ? ParseStates::kUncounted : 0;
  auto mask = std::make_shared<OpenMask>();
  const std::span<const GrammarVocabulary::Node> nodes = vocabulary_.nodes();
  std::vector<bool> escaped{false};  // by depth: the rule may have ended before here, after at least one byte
  path_.assign(1, states.open(positions));
  std::string_view before;
  for (uint32_t i = 1; i < vocabulary_.num_nodes();) {
    ++visited_;
    const GrammarVocabulary::Node& node = nodes[i];
    path_.resize(node.depth);
    escaped.resize(node.depth);
    const StateId next = states.step(path_.back(), node.byte);
    if (next == ParseStates::kDead) {
      if (escaped.back()) {
        const std::string_view bytes = vocabulary_.token_bytes(vocabulary_.tokens()[node.first_token]);
        mask->undecided.push_back({i, static_cast<uint32_t>(common_prefix(before, bytes.substr(0, node.depth)))});
        before = bytes.substr(0, node.depth);
      }
      i = node.end;
      continue;
    }
    if (exhausted(states)) return nullptr;
    if (nodes[i + 1].first_token != node.first_token) {
      uint32_t used = 0;
      if (counted) {
        const std::span<const ParsePosition> now = states.positions(next);
        used = (now[0].count & ~ParseStates::kUncounted) + (states.escaped(next) ? 0 : 1);
      }
      for (uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
        mask->few.push_back(vocabulary_.tokens()[t]);
        if (counted) mask->counted.push_back({used, vocabulary_.tokens()[t]});
      }
    }
    escaped.push_back(escaped.back() || states.escaped(next));
    path_.push_back(next);
    ++i;
  }
  if (mask->few.size() >= vocabulary_.mask_words()) {
    mask->bits.resize(vocabulary_.mask_words());
    for (const TokenId token : mask->few) set_bit(token, mask->bits);
    mask->few.clear();
    mask->few.shrink_to_fit();
  }
  std::sort(mask->counted.begin(), mask->counted.end(),
            [](const OpenMask::Counted& a, const OpenMask::Counted& b) { return a.used > b.used; });
  return mask;
}

bool MaskFinder::apply_group(ParseStates& states, StateId state, std::span<const ParsePosition> group,
                             std::span<uint32_t> words) {
  const std::shared_ptr<const OpenMask> mask = open_mask(states, group);
  if (!mask) return false;
  if (automaton_.counted_rule[group[0].state] != kNoRule) {
    if (!apply_counted(states, state, group[0], *mask, words)) return false;
  } else {
    for (size_t w = 0; w < mask->bits.size(); ++w) words[w] |= mask->bits[w];
    for (const TokenId token : mask->few) set_bit(token, words);
  }
  // After the end of the text nothing follows.
  if (group[0].caller == ParseStates::kTextEnd) return true;
  return try_subtrees(states, state, mask->undecided, words);
}

bool MaskFinder::apply_counted(ParseStates& states, StateId state, const ParsePosition& position, const OpenMask& mask,
                               std::span<uint32_t> words) {
  const uint32_t rule_id = automaton_.counted_rule[position.state];
  const AutomatonRule& rule = automaton_.rules[rule_id];
  const uint32_t left = rule.max == kUnbounded ? kUnbounded : rule.max - position.count;
  const auto too_many_end = std::find_if(mask.counted.begin(), mask.counted.end(),
                                         [&](const OpenMask::Counted& c) { return c.used <= left; });
  if (too_many_end != mask.counted.begin()) {
    // A token that repeats too often may still be right if the caller goes on like the rule itself.
    const StateId after = states.after_return(position.caller);
    const StateId entry = states.open_rule(rule_id);
    const bool alike = std::any_of(automaton_.class_byte.begin(), automaton_.class_byte.end(), [&](uint8_t byte) {
      return states.step(after, byte) != ParseStates::kDead && states.step(entry, byte) != ParseStates::kDead;
    });
    if (alike) {
      path_.assign(1, state);
      walked_whole_ = true;
      return try_below(states, 0, words);
    }
  }
  const auto fits = static_cast<size_t>(mask.counted.end() - too_many_end);
  if (mask.bits.empty() || fits < mask.counted.size() / 2) {
    for (auto c = too_many_end; c != mask.counted.end(); ++c) set_bit(c->token, words);
    return true;
  }
  std::vector<uint32_t> bits = mask.bits;
  for (auto c = mask.counted.begin(); c != too_many_end; ++c) clear_bit(c->token, bits);
  for (size_t w = 0; w < bits.size(); ++w) words[w] |= bits[w];
  return true;
}

bool MaskFinder::try_subtrees(ParseStates& states, StateId state, std::span<const Subtree> subtrees,
                              std::span<uint32_t> words) {
  path_.assign(1, state);
  constexpr size_t kAlive = ~size_t{0};
  size_t dead_at = kAlive;  // the depth of the present path at which no parse is left
  for (const Subtree& subtree : subtrees) {
    ++visited_;
    if (subtree.shared >= dead_at) continue;
    if (exhausted(states)) return false;
    const GrammarVocabulary::Node& node = vocabulary_.nodes()[subtree.node];
    const std::string_view bytes = vocabulary_.token_bytes(vocabulary_.tokens()[node.first_token]);
    path_.resize(subtree.shared + 1);
    dead_at = kAlive;
    while (path_.size() < node.depth) {
      const StateId next = states.step(path_.back(), static_cast<uint8_t>(bytes[path_.size() - 1]));
      if (next == ParseStates::kDead) {
        dead_at = path_.size();
        break;
      }
      path_.push_back(next);
    }
    if (dead_at != kAlive) continue;
    const StateId next = states.step(path_.back(), node.byte);
    if (next == ParseStates::kDead) {
      dead_at = node.depth;
      continue;
    }
    path_.push_back(next);
    for (uint32_t t = node.first_token; t < vocabulary_.nodes()[subtree.node + 1].first_token; ++t)
      set_bit(vocabulary_.tokens()[t], words);
    if (!try_below(states, subtree.node, words)) return false;
    path_.resize(static_cast<size_t>(node.depth) + 1);
  }
  return !exhausted(states);
}

bool MaskFinder::exhausted(const ParseStates& states) const {
  return states.work() > work_limit_ || visited_ > visit_limit_;
}

// Tries the tokens strictly below `top`, whose state is the last of path_.
bool MaskFinder::try_below(ParseStates& states, uint32_t top, std::span<uint32_t> words) {
  const std::span<const GrammarVocabulary::Node> nodes = vocabulary_.nodes();
  for (uint32_t i = top + 1; i < nodes[top].end;) {
    ++visited_;
    const GrammarVocabulary::Node& node = nodes[i];
    path_.resize(node.depth);
    const StateId next = states.step(path_.back(), node.byte);
    if (next == ParseStates::kDead) {
      i = node.end;
      continue;
    }
    if (exhausted(states)) return false;
    path_.push_back(next);
    for (uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) set_bit(vocabulary_.tokens()[t], words);
    ++i;
  }
  return true;
}

}  // namespace helios::grammar
