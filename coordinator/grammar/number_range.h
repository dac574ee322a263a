// Decimal numbers between bounds, and multiples of a number, as grammar nodes.
//
// Works on the digits as written, so it is exact at any size: no bound is rounded. Numbers within bounds have no
// exponent and no superfluous leading zeros; zero has no sign. No state; one tree.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>

#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no leading zeros
  std::string fraction;     // no trailing zeros
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// A JSON number as it is written in its shortest form; nothing for other values.
std::optional<Decimal> decimal_of(const boost::json::value& value);
/// Below, at or above zero, as a is to b.
int compare(const Decimal& a, const Decimal& b);

struct NumberBounds {
  std::optional<Decimal> low, high;
  bool above_low = false;   // low itself is excluded
  bool below_high = false;  // high itself is excluded
  bool any() const { return low || high; }
  /// Both hold.
  void add_low(const Decimal& bound, bool excluded);
  void add_high(const Decimal& bound, bool excluded);
  bool contain(const Decimal& value) const;
};

NodeId integers_within(const NumberBounds& bounds, GrammarTree* tree);
NodeId numbers_within(const NumberBounds& bounds, GrammarTree* tree);

/// Multiples of `factor` (positive): integers only, or with as many decimals as the factor has. Nothing when it would
/// take too many rules, which depend on the factor's digits.
std::optional<NodeId> multiples_of(const Decimal& factor, bool integers, bool negatives, GrammarTree* tree);

}  // namespace helios::grammar
