// The filters and tests of Jinja by name, and how functions take their arguments.
//
// filter: value | name(arguments), test: value is name(arguments). Names this engine does not know are found when the
// template is parsed. Thread: the one that renders.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "coordinator/template/value.h"

namespace helios::jinja {

class Evaluator;

struct NamedValue {
  std::string_view name;
  Value value;
};

struct Args {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

/// Binds arguments to parameters as Python does. Errors (Fault): too many, unknown, given twice, missing.
void bind_arguments(std::string_view function, const Args& args, std::span<const std::string_view> names,
                    size_t num_required, std::span<const Value*> out);

/// The arguments of one call, by position of the parameter; a parameter that was not given is null.
template <size_t N>
class Bound {
 public:
  Bound(std::string_view function, const Args& args, const std::string_view (&names)[N], size_t num_required = 0) {
    bind_arguments(function, args, names, num_required, values_);
  }
  bool has(size_t i) const { return values_[i] != nullptr; }
  Value operator[](size_t i) const { return *values_[i]; }
  const Value* pointer(size_t i) const { return values_[i]; }
  Value get(size_t i, Value otherwise) const { return values_[i] ? *values_[i] : otherwise; }

 private:
  std::array<const Value*, N> values_{};
};

using FilterFunction = Value (*)(Evaluator& ev, Value input, const Args& args);
using TestFunction = bool (*)(Evaluator& ev, Value input, const Args& args);

/// Null when there is no such filter (or test).
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
/// Filters of Jinja that are left out on purpose; the reason, or empty.
std::string_view why_no_filter(std::string_view name);

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};
// The two halves of the filter table; only find_filter reads them.
std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> sequence_filters();

}  // namespace helios::jinja
