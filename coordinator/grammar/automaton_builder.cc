// Thompson's construction backwards, with deterministic UTF-8 for classes and calls for what is repeated often.
#include "coordinator/grammar/automaton_builder.h"

#include <algorithm>
#include <tuple>

namespace helios::grammar {
namespace {

// Repetitions of a class above this are counted, of anything larger than a few states called: both keep the number of
// states near the size of the grammar's text.
constexpr uint32_t kMaxCopies = 4;
constexpr int kMaxDepth = 4000;

uint64_t pair_key(uint32_t a, uint32_t b) { return (uint64_t{a} << 32) | b; }

int lead_byte(uint32_t code_point) {
  if (code_point < 0x80) return static_cast<int>(code_point);
  if (code_point < 0x800) return static_cast<int>(0xC0 | code_point >> 6);
  return static_cast<int>(code_point < 0x10000 ? 0xE0 | code_point >> 12 : 0xF0 | code_point >> 18);
}

}  // namespace

bool AutomatonBuilder::build_rules(RuleId root) {
  out_.root = rule_of(root);
  while (!pending_.empty() && !overflowed_) {
    const Pending next = pending_.back();
    pending_.pop_back();
    const bool counted = out_.rules[next.rule].counted;
    const uint32_t end = add_state(counted ? StateKind::kCountEnd : StateKind::kEnd, next.rule, 0);
    const uint32_t start = build(next.node, end);
    out_.rules[next.rule].start = start;
    out_.counted_rule.resize(out_.states.size(), counted ? next.rule : kNoRule);
  }
  return !overflowed_;
}

uint32_t AutomatonBuilder::rule_of(RuleId rule) {
  const auto [entry, is_new] = rules_.try_emplace(rule, static_cast<uint32_t>(out_.rules.size()));
  if (is_new) {
    out_.rules.emplace_back();
    pending_.push_back({entry->second, tree_.rules()[rule]});
  }
  return entry->second;
}

uint32_t AutomatonBuilder::rule_of_body(NodeId body, bool counted, uint32_t min, uint32_t max) {
  const auto [entry, is_new] =
      bodies_.try_emplace(std::make_tuple(body, counted, min, max), static_cast<uint32_t>(out_.rules.size()));
  if (is_new) {
    out_.rules.push_back({.counted = counted, .min = min, .max = max});
    pending_.push_back({entry->second, body});
  }
  return entry->second;
}

uint32_t AutomatonBuilder::add_state(StateKind kind, uint32_t begin, uint32_t count) {
  if (out_.states.size() >= max_states_) {
    overflowed_ = true;
    return 0;
  }
  out_.states.push_back({kind, begin, count});
  return static_cast<uint32_t>(out_.states.size() - 1);
}

uint32_t AutomatonBuilder::add_split(std::span<const uint32_t> targets) {
  const auto begin = static_cast<uint32_t>(out_.targets.size());
  if (begin + targets.size() > 4 * max_states_) overflowed_ = true;
  out_.targets.insert(out_.targets.end(), targets.begin(), targets.end());
  return add_state(StateKind::kSplit, begin, static_cast<uint32_t>(targets.size()));
}

uint32_t AutomatonBuilder::add_bytes(std::span<const ByteEdge> edges) {
  const auto begin = static_cast<uint32_t>(out_.edges.size());
  if (begin + edges.size() > 4 * max_states_) overflowed_ = true;
  out_.edges.insert(out_.edges.end(), edges.begin(), edges.end());
  return add_state(StateKind::kBytes, begin, static_cast<uint32_t>(edges.size()));
}

uint32_t AutomatonBuilder::build_call(uint32_t rule, uint32_t exit) { return add_state(StateKind::kCall, rule, exit); }

uint32_t AutomatonBuilder::build(NodeId node, uint32_t exit) {
  const auto known = built_.find(pair_key(node, exit));
  if (known != built_.end()) return known->second;
  if (overflowed_ || depth_ >= kMaxDepth) {
    overflowed_ = true;
    return 0;
  }
  ++depth_;
  const uint32_t state = build_new(node, exit);
  --depth_;
  built_.emplace(pair_key(node, exit), state);
  return state;
}

uint32_t AutomatonBuilder::build_new(NodeId id, uint32_t exit) {
  const GrammarNode& node = tree_.node(id);
  switch (node.kind) {
    case NodeKind::kEmpty:
      return exit;
    case NodeKind::kNever:
      return add_split({});
    case NodeKind::kText:
      return build_text(node.text, exit);
    case NodeKind::kClass:
      return build_class(tree_.code_point_class(node.index), exit);
    case NodeKind::kCat:
      for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) exit = build(*child, exit);
      return exit;
    case NodeKind::kAlt: {
      std::vector<uint32_t> starts;
      for (const NodeId child : node.children) starts.push_back(build(child, exit));
      return add_split(starts);
    }
    case NodeKind::kRepeat:
      return build_repeat(node, exit);
    case NodeKind::kRule:
      return build_call(rule_of(node.index), exit);
    case NodeKind::kFields:
      return build_fields(node, exit);
  }
  return exit;
}

uint32_t AutomatonBuilder::build_text(const std::string& text, uint32_t exit) {
  for (auto c = text.rbegin(); c != text.rend(); ++c) {
    const auto byte = static_cast<uint8_t>(*c);
    const ByteEdge edge{byte, byte, exit};
    exit = add_bytes({&edge, 1});
  }
  return exit;
}

uint32_t AutomatonBuilder::build_class(const CodePointSet& set, uint32_t exit) {
  // By the number of continuation bytes: [0, 7F], [80, 7FF], [800, FFFF], [10000, 10FFFF].
  static constexpr uint32_t kFirst[] = {0, 0x80, 0x800, 0x10000, 0x110000};
  static constexpr uint8_t kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
  std::vector<uint32_t> starts;
  for (int continuation = 0; continuation < 4; ++continuation) {
    std::vector<CodePointSet::Range> ranges;
    for (const CodePointSet::Range& range : set.ranges()) {
      const uint32_t first = std::max(range.first, kFirst[continuation]);
      const uint32_t last = std::min(range.last, kFirst[continuation + 1] - 1);
      if (first <= last) ranges.push_back({first, last});
    }
    if (!ranges.empty()) starts.push_back(build_code_bytes(std::move(ranges), continuation, kLead[continuation], exit));
  }
  if (starts.size() == 1) return starts[0];
  // One state with the edges of all lengths: lead bytes of different lengths never meet.
  std::vector<ByteEdge> edges;
  for (const uint32_t start : starts) {
    if (overflowed_) return 0;
    const AutomatonState& state = out_.states[start];
    edges.insert(edges.end(), out_.edges.begin() + state.begin, out_.edges.begin() + state.begin + state.count);
  }
  return add_bytes(edges);
}

uint32_t AutomatonBuilder::build_code_bytes(std::vector<CodePointSet::Range> ranges, int continuation, uint8_t lead,
                                            uint32_t exit) {
  const int shift = 6 * continuation;
  const uint32_t low = (1u << shift) - 1;
  const bool any = lead == 0x80 && ranges.size() == 1 && ranges[0].first == 0 && ranges[0].last == (64u << shift) - 1;
  const uint64_t key = pair_key(static_cast<uint32_t>(continuation), exit);
  if (any) {
    const auto known = any_continuation_.find(key);
    if (known != any_continuation_.end()) return known->second;
  }
  std::vector<ByteEdge> edges;
  std::vector<CodePointSet::Range> previous;
  for (size_t i = 0; i < ranges.size();) {
    const uint32_t top = ranges[i].first >> shift;
    uint32_t last_top = top;
    std::vector<CodePointSet::Range> below;  // what may follow this byte
    if ((ranges[i].first & low) == 0 && (ranges[i].last >> shift > top || (ranges[i].last & low) == low)) {
      last_top = (ranges[i].last & low) == low ? ranges[i].last >> shift : (ranges[i].last >> shift) - 1;
      below = {{0, low}};
      if (last_top == ranges[i].last >> shift)
        ++i;
      else
        ranges[i].first = (last_top + 1) << shift;
    } else {
      while (i < ranges.size() && ranges[i].first >> shift == top) {
        if (ranges[i].last >> shift > top) {
          below.push_back({ranges[i].first & low, low});
          ranges[i].first = (top + 1) << shift;
          break;
        }
        below.push_back({ranges[i].first & low, ranges[i].last & low});
        ++i;
      }
    }
    uint32_t target = exit;
    if (continuation > 0)
      target = !edges.empty() && below == previous ? edges.back().target
                                                   : build_code_bytes(below, continuation - 1, 0x80, exit);
    const auto first_byte = static_cast<uint8_t>(lead | top);
    const auto last_byte = static_cast<uint8_t>(lead | last_top);
    if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == first_byte)
      edges.back().last = last_byte;
    else
      edges.push_back({first_byte, last_byte, target});
    previous = std::move(below);
  }
  const uint32_t state = add_bytes(edges);
  if (any) any_continuation_.emplace(key, state);
  return state;
}

uint32_t AutomatonBuilder::build_repeat(const GrammarNode& node, uint32_t exit) {
  NodeId body = node.children[0];
  const uint32_t copies = node.max == kUnbounded ? node.min : node.max;
  if (copies > kMaxCopies) {
    std::array<bool, 256> first{};
    if (is_prefix_code(body, &first)) return build_call(rule_of_body(body, true, node.min, node.max), exit);
  }
  // A body that is copied often is called instead, unless it is itself hardly more than a call.
  const bool call = copies > kMaxCopies && !is_small(body);
  const auto copy = [&](uint32_t to) {
    return call ? build_call(rule_of_body(body, false, 1, 1), to) : build(body, to);
  };
  uint32_t state = exit;
  if (node.max == kUnbounded) {
    // loop -> exit, or one more body and back to the loop
    const std::array<uint32_t, 2> patched{exit, exit};
    state = add_split(patched);
    const uint32_t slot = overflowed_ ? 0 : out_.states[state].begin + 1;
    const uint32_t again = copy(state);
    if (overflowed_) return 0;
    out_.targets[slot] = again;
  } else {
    for (uint32_t i = node.min; i < node.max && !overflowed_; ++i) {
      const std::array<uint32_t, 2> either{copy(state), exit};
      state = add_split(either);
    }
  }
  for (uint32_t i = 0; i < node.min && !overflowed_; ++i) state = copy(state);
  return state;
}

uint32_t AutomatonBuilder::build_fields(const GrammarNode& node, uint32_t exit) {
  const size_t count = node.text.size();
  const size_t first_required = std::min(node.text.find('1'), count);
  uint32_t after = build(node.children[0], exit);
  uint32_t first = build(node.children[1], exit);
  for (size_t i = count; i-- > 0 && !overflowed_;) {
    const bool required = node.text[i] == '1';
    const uint32_t field = build(node.children[3 + i], after);
    if (i <= first_required) {
      const std::array<uint32_t, 2> either{field, first};
      first = required ? field : add_split(either);
    }
    const std::array<uint32_t, 2> either{build(node.children[2], field), after};
    after = required ? either[0] : add_split(either);
  }
  return first;
}

bool AutomatonBuilder::is_small(NodeId id) const {
  const GrammarNode& node = tree_.node(id);
  return node.kind == NodeKind::kRule || (node.kind == NodeKind::kText && node.text.size() <= 2) ||
         (node.kind == NodeKind::kClass && tree_.code_point_class(node.index).ranges().back().last < 0x80);
}

// Whether no text of `id` is the beginning of another, so that repetitions can be counted; sets the bytes that a text
// may begin with. May say no where the answer is yes.
bool AutomatonBuilder::is_prefix_code(NodeId id, std::array<bool, 256>* first_bytes) const {
  const GrammarNode& node = tree_.node(id);
  switch (node.kind) {
    case NodeKind::kText:
      (*first_bytes)[static_cast<uint8_t>(node.text[0])] = true;
      return true;
    case NodeKind::kClass:
      for (const CodePointSet::Range& range : tree_.code_point_class(node.index).ranges())
        for (int byte = lead_byte(range.first); byte <= lead_byte(range.last); ++byte) (*first_bytes)[byte] = true;
      return true;
    case NodeKind::kCat: {
      std::array<bool, 256> ignored{};
      for (size_t i = 0; i < node.children.size(); ++i)
        if (!is_prefix_code(node.children[i], i == 0 ? first_bytes : &ignored)) return false;
      return true;
    }
    case NodeKind::kAlt:
      for (const NodeId child : node.children) {
        std::array<bool, 256> first{};
        if (!is_prefix_code(child, &first)) return false;
        for (int byte = 0; byte < 256; ++byte) {
          if (first[byte] && (*first_bytes)[byte]) return false;
          (*first_bytes)[byte] = (*first_bytes)[byte] || first[byte];
        }
      }
      return true;
    default:
      return false;
  }
}

}  // namespace helios::grammar
