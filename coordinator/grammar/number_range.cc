// Comparison of digit strings, unrolled into alternatives digit by digit.
#include "coordinator/grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

namespace helios::grammar {
namespace {

constexpr uint64_t kMaxMultipleRules = 4000;

NodeId digit(char first, char last, GrammarTree* tree) {
  return first > last ? tree->never()
                      : tree->code_points({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}});
}

NodeId digits(size_t count, GrammarTree* tree) {
  return tree->repeat(digit('0', '9', tree), static_cast<uint32_t>(count), static_cast<uint32_t>(count));
}

// As many as may stand after the point, or before it beyond those of a bound (json_text.h has the same limit).
constexpr uint32_t kMaxNumberDigits = 64;

NodeId any_digits(GrammarTree* tree) { return tree->repeat(digit('0', '9', tree), 0, kMaxNumberDigits); }

// Strings of as many digits as `bound`, at least (most) it.
NodeId same_length(std::string_view bound, bool at_least, GrammarTree* tree) {
  NodeId node = tree->empty();
  for (size_t i = bound.size(); i-- > 0;) {
    const char c = bound[i];
    const NodeId beyond =
        at_least ? digit(static_cast<char>(c + 1), '9', tree) : digit('0', static_cast<char>(c - 1), tree);
    node = tree->alt(
        {tree->cat({tree->text(bound.substr(i, 1)), node}), tree->cat({beyond, digits(bound.size() - i - 1, tree)})});
  }
  return node;
}

NodeId same_length_between(std::string_view low, std::string_view high, GrammarTree* tree) {
  const size_t common = static_cast<size_t>(std::mismatch(low.begin(), low.end(), high.begin()).first - low.begin());
  if (common == low.size()) return tree->text(low);
  const std::string_view low_rest = low.substr(common + 1), high_rest = high.substr(common + 1);
  const char a = low[common], b = high[common];
  return tree->cat({tree->text(low.substr(0, common)),
                    tree->alt({tree->cat({tree->text(low.substr(common, 1)), same_length(low_rest, true, tree)}),
                               tree->cat({digit(static_cast<char>(a + 1), static_cast<char>(b - 1), tree),
                                          digits(low_rest.size(), tree)}),
                               tree->cat({tree->text(high.substr(common, 1)), same_length(high_rest, false, tree)})})});
}

bool shorter_or_less(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Naturals without leading zeros.
NodeId naturals(const std::string& low, const std::optional<std::string>& high, GrammarTree* tree) {
  if (high && shorter_or_less(*high, low)) return tree->never();
  const size_t last_length = high ? high->size() : low.size();
  std::vector<NodeId> ways;
  for (size_t length = low.size(); length <= last_length; ++length) {
    const std::string from = length == low.size() ? low : "1" + std::string(length - 1, '0');
    const std::string to = high && length == high->size() ? *high : std::string(length, '9');
    ways.push_back(same_length_between(from, to, tree));
  }
  if (!high)
    ways.push_back(
        tree->cat({digit('1', '9', tree), tree->repeat(digit('0', '9', tree), static_cast<uint32_t>(low.size()),
                                                       static_cast<uint32_t>(low.size()) + kMaxNumberDigits)}));
  return tree->alt(std::move(ways));
}

std::string plus_one(std::string natural) {
  for (size_t i = natural.size(); i-- > 0;) {
    if (natural[i] != '9') {
      ++natural[i];
      return natural;
    }
    natural[i] = '0';
  }
  return "1" + natural;
}

std::string minus_one(std::string natural) {  // of a positive one
  for (size_t i = natural.size(); i-- > 0;) {
    if (natural[i] != '0') {
      --natural[i];
      break;
    }
    natural[i] = '9';
  }
  return natural.size() > 1 && natural[0] == '0' ? natural.substr(1) : natural;
}

// What may stand after the decimal point, at least one digit; and whether there may be no point at all.
struct Fraction {
  NodeId some;
  bool none;
};

NodeId go_on(const Fraction& rest, GrammarTree* tree) { return rest.none ? tree->optional(rest.some) : rest.some; }

Fraction fraction_above(std::string_view bound, bool excluded, GrammarTree* tree) {
  if (bound.empty()) {
    const NodeId any = any_digits(tree);
    if (excluded) {
      return {tree->cat({tree->repeat(tree->text("0"), 0, kMaxNumberDigits), digit('1', '9', tree), any}), false};
    }
    return {tree->cat({digit('0', '9', tree), any}), true};
  }
  const Fraction rest = fraction_above(bound.substr(1), excluded, tree);
  return {tree->alt({tree->cat({tree->text(bound.substr(0, 1)), go_on(rest, tree)}),
                     tree->cat({digit(static_cast<char>(bound[0] + 1), '9', tree), any_digits(tree)})}),
          false};
}

Fraction fraction_below(std::string_view bound, bool excluded, GrammarTree* tree) {
  if (bound.empty()) {
    if (excluded) return {tree->never(), false};
    return {tree->repeat(tree->text("0"), 1, kMaxNumberDigits), true};
  }
  const Fraction rest = fraction_below(bound.substr(1), excluded, tree);
  return {tree->alt({tree->cat({tree->text(bound.substr(0, 1)), go_on(rest, tree)}),
                     tree->cat({digit('0', static_cast<char>(bound[0] - 1), tree), any_digits(tree)})}),
          true};
}

Fraction fraction_between(std::string_view low, bool above_low, std::string_view high, bool below_high,
                          GrammarTree* tree) {
  if (low.empty() && high.empty()) {
    if (above_low || below_high) return {tree->never(), false};
    return {tree->repeat(tree->text("0"), 1, kMaxNumberDigits), true};
  }
  const char a = low.empty() ? '0' : low[0];
  const char b = high.empty() ? '0' : high[0];
  const std::string_view low_rest = low.empty() ? low : low.substr(1);
  const std::string_view high_rest = high.empty() ? high : high.substr(1);
  const bool none = low.empty() && !above_low;  // zero; high is above it
  if (a > b) return {tree->never(), false};
  if (a == b) {
    const Fraction rest = fraction_between(low_rest, above_low, high_rest, below_high, tree);
    return {tree->cat({tree->text(std::string(1, a)), go_on(rest, tree)}), none};
  }
  return {
      tree->alt({tree->cat({tree->text(std::string(1, a)), go_on(fraction_above(low_rest, above_low, tree), tree)}),
                 tree->cat({digit(static_cast<char>(a + 1), static_cast<char>(b - 1), tree), any_digits(tree)}),
                 tree->cat({tree->text(std::string(1, b)), go_on(fraction_below(high_rest, below_high, tree), tree)})}),
      none};
}

NodeId with_fraction(NodeId whole, const Fraction& fraction, GrammarTree* tree) {
  const NodeId point = tree->cat({tree->text("."), fraction.some});
  return tree->cat({whole, fraction.none ? tree->optional(point) : point});
}

// Numbers from low to high (or without end), neither negative.
NodeId magnitudes(const Decimal& low, bool above_low, const std::optional<Decimal>& high, bool below_high,
                  GrammarTree* tree) {
  if (high && low.whole == high->whole) {
    if (low.fraction > high->fraction) return tree->never();
    return with_fraction(tree->text(low.whole),
                         fraction_between(low.fraction, above_low, high->fraction, below_high, tree), tree);
  }
  if (high && shorter_or_less(high->whole, low.whole)) return tree->never();
  std::vector<NodeId> ways;
  ways.push_back(with_fraction(tree->text(low.whole), fraction_above(low.fraction, above_low, tree), tree));
  std::optional<std::string> last;
  if (high) last = minus_one(high->whole);
  ways.push_back(with_fraction(naturals(plus_one(low.whole), last, tree), fraction_above("", false, tree), tree));
  if (high)
    ways.push_back(with_fraction(tree->text(high->whole), fraction_below(high->fraction, below_high, tree), tree));
  return tree->alt(std::move(ways));
}

Decimal magnitude(Decimal value) {
  value.negative = false;
  return value;
}

// The smallest integer at or above the bound, or above it.
Decimal first_integer(const Decimal& bound, bool excluded) {
  if (bound.fraction.empty() && !excluded) return bound;
  if (!bound.negative) return {false, plus_one(bound.whole), ""};
  if (!bound.fraction.empty()) return {bound.whole != "0", bound.whole, ""};
  Decimal next{true, minus_one(bound.whole), ""};
  next.negative = next.whole != "0";
  return next;
}

Decimal negated(Decimal value) {
  value.negative = !value.negative && !value.is_zero();
  return value;
}

}  // namespace

std::optional<Decimal> decimal_of(const boost::json::value& value) {
  std::string text;
  if (value.is_int64()) {
    text = std::to_string(value.get_int64());
  } else if (value.is_uint64()) {
    text = std::to_string(value.get_uint64());
  } else if (value.is_double() && std::isfinite(value.get_double())) {
    char buffer[1600];
    text.assign(buffer,
                std::to_chars(buffer, buffer + sizeof buffer, value.get_double(), std::chars_format::fixed).ptr);
  } else {
    return std::nullopt;
  }
  Decimal decimal;
  decimal.negative = text[0] == '-';
  if (decimal.negative) text.erase(0, 1);
  const size_t point = text.find('.');
  decimal.whole = text.substr(0, point);
  if (point != std::string::npos) decimal.fraction = text.substr(point + 1);
  while (!decimal.fraction.empty() && decimal.fraction.back() == '0') decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  if (a.whole != b.whole) return shorter_or_less(a.whole, b.whole) ? -sign : sign;
  return a.fraction == b.fraction ? 0 : a.fraction < b.fraction ? -sign : sign;
}

void NumberBounds::add_low(const Decimal& bound, bool excluded) {
  const int order = low ? compare(bound, *low) : 1;
  if (order > 0) above_low = excluded;
  if (order == 0) above_low = above_low || excluded;
  if (order > 0) low = bound;
}

void NumberBounds::add_high(const Decimal& bound, bool excluded) {
  const int order = high ? compare(*high, bound) : 1;
  if (order > 0) below_high = excluded;
  if (order == 0) below_high = below_high || excluded;
  if (order > 0) high = bound;
}

bool NumberBounds::contain(const Decimal& value) const {
  const int from_low = low ? compare(value, *low) : 1;
  const int to_high = high ? compare(*high, value) : 1;
  return (from_low > 0 || (from_low == 0 && !above_low)) && (to_high > 0 || (to_high == 0 && !below_high));
}

NodeId integers_within(const NumberBounds& bounds, GrammarTree* tree) {
  std::optional<Decimal> low, high;
  if (bounds.low) low = first_integer(*bounds.low, bounds.above_low);
  if (bounds.high) high = negated(first_integer(negated(*bounds.high), bounds.below_high));
  std::vector<NodeId> ways;
  if (!high || !high->negative) {
    std::optional<std::string> last;
    if (high) last = high->whole;
    ways.push_back(naturals(low && !low->negative ? low->whole : "0", last, tree));
  }
  if (!low || low->negative) {
    std::optional<std::string> last;
    if (low) last = low->whole;
    ways.push_back(tree->cat({tree->text("-"), naturals(high && high->negative ? high->whole : "1", last, tree)}));
  }
  return tree->alt(std::move(ways));
}

NodeId numbers_within(const NumberBounds& bounds, GrammarTree* tree) {
  const auto& [low, high, above_low, below_high] = bounds;
  std::vector<NodeId> ways;
  if (!high || !high->negative) {
    const bool from_low = low && !low->negative;
    ways.push_back(magnitudes(from_low ? *low : Decimal{}, from_low && above_low, high, below_high, tree));
  }
  if (!low || low->negative) {
    const bool from_high = high && high->negative;
    std::optional<Decimal> last;
    if (low) last = magnitude(*low);
    ways.push_back(tree->cat({tree->text("-"), magnitudes(from_high ? magnitude(*high) : Decimal{},
                                                          from_high ? below_high : true, last, above_low, tree)}));
  }
  return tree->alt(std::move(ways));
}

std::optional<NodeId> multiples_of(const Decimal& factor, bool integers, bool negatives, GrammarTree* tree) {
  // All is counted in units of the factor's last decimal: a number with d decimals is a multiple when its digits,
  // filled up with zeros to `decimals`, leave no remainder.
  const size_t decimals = factor.fraction.size();
  const std::string unit_digits = factor.whole == "0" ? factor.fraction : factor.whole + factor.fraction;
  uint64_t units = 0;
  for (const char c : unit_digits) {
    units = 10 * units + static_cast<uint64_t>(c - '0');
    if (units * (decimals + 1) > kMaxMultipleRules) return std::nullopt;
  }
  if (units == 0) return std::nullopt;
  // after[d][r]: d digits after the point, and remainder r so far.
  std::vector<std::vector<RuleId>> rules(decimals + 1, std::vector<RuleId>(units));
  for (auto& row : rules)
    for (RuleId& rule : row) rule = tree->declare_rule();
  const auto goes = [&](uint64_t remainder, size_t places) {
    for (size_t i = 0; i < decimals - places; ++i) remainder = remainder * 10 % units;
    return remainder == 0;
  };
  const auto next_digit = [&](size_t places, uint64_t remainder, char from) {
    std::vector<NodeId> ways;
    for (char c = from; c <= '9'; ++c)
      ways.push_back(tree->cat({tree->text(std::string(1, c)),
                                tree->rule(rules[places][(remainder * 10 + static_cast<uint64_t>(c - '0')) % units])}));
    return tree->alt(std::move(ways));
  };
  for (size_t places = 0; places <= decimals; ++places) {
    for (uint64_t r = 0; r < units; ++r) {
      std::vector<NodeId> ways;
      if (goes(r, places)) ways.push_back(tree->empty());
      if (places == 0) ways.push_back(next_digit(0, r, '0'));
      if (places == 0 && decimals > 0 && !integers) ways.push_back(tree->cat({tree->text("."), next_digit(1, r, '0')}));
      if (places > 0 && places < decimals) ways.push_back(next_digit(places + 1, r, '0'));
      tree->define_rule(rules[places][r], tree->alt(std::move(ways)));
    }
  }
  NodeId below_one = tree->never();
  if (decimals > 0 && !integers) below_one = tree->cat({tree->text("0."), next_digit(1, 0, '0')});
  const NodeId positive = tree->alt({tree->text("0"), below_one, next_digit(0, 0, '1')});
  return negatives ? tree->cat({tree->optional(tree->text("-")), positive}) : positive;
}

}  // namespace helios::grammar
