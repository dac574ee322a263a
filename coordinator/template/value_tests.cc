// Jinja's tests: value is defined, is string, is divisibleby(3) and so on.
//
// Thread: the one that renders.
#include <algorithm>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/filters.h"

namespace helios::jinja {
namespace {

template <bool (*holds)(Value)>
bool simple(Evaluator&, Value v, const Args& args) {
  bind_arguments("test", args, {}, 0, {});
  return holds(v);
}

bool is_defined(Value v) { return !v.is(Kind::kUndefined); }
bool is_undefined(Value v) { return v.is(Kind::kUndefined); }
bool is_none(Value v) { return v.is(Kind::kNone); }
bool is_true(Value v) { return v.is(Kind::kBool) && v.boolean; }
bool is_false(Value v) { return v.is(Kind::kBool) && !v.boolean; }
bool is_boolean(Value v) { return v.is(Kind::kBool); }
bool is_integer(Value v) { return v.is(Kind::kInt) || v.is(Kind::kBigInt); }
bool is_float(Value v) { return v.is(Kind::kFloat); }
bool is_number(Value v) { return v.is_number(); }
bool is_string(Value v) { return v.is_text(); }
bool is_mapping(Value v) { return v.is(Kind::kDict); }
bool is_escaped(Value v) { return v.is_text() && v.text->markup; }

bool is_iterable(Value v) {
  return is_undefined(v) || is_string(v) || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kDictView) ||
         v.is(Kind::kRange) || v.is(Kind::kGenerator) || v.is(Kind::kLoop);
}

// Has a length and takes subscripts. An undefined value claims both.
bool is_sequence(Value v) {
  return is_undefined(v) || is_string(v) || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange);
}

bool is_callable(Value v) {
  return is_undefined(v) || v.is(Kind::kFunction) || v.is(Kind::kMethod) || v.is(Kind::kMacro) || v.is(Kind::kLoop) ||
         v.is(Kind::kJoiner);
}

template <bool upper>
bool is_cased(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("test", args, {}, 0, {});
  const Value text = ev.text(ev.str(v));
  return truthy(find_method(ev, text, upper ? "isupper" : "islower")->call(ev, text, {}));
}

bool has_remainder(Evaluator& ev, Value v, Value divisor, int64_t remainder) {
  need_defined(v);
  if (v.is_text()) fail("not all arguments converted during string formatting");
  return equals(ev.box(), apply_binary(ev, BinaryOp::kModulo, v, divisor), Value::from(remainder));
}

template <int remainder>
bool is_parity(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("test", args, {}, 0, {});
  return has_remainder(ev, v, Value::from(int64_t{2}), remainder);
}

bool is_divisible(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("divisibleby", args, {"num"}, 1);
  return has_remainder(ev, v, bound[0], 0);
}

template <bool negate>
bool is_equal(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("eq", args, {"other"}, 1);
  return equals(ev.box(), v, bound[0]) != negate;
}

template <Order order>
bool is_ordered(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("comparison", args, {"other"}, 1);
  return compare(ev.box(), order, v, bound[0]);
}

bool is_in(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("in", args, {"seq"}, 1);
  return ev.contains(bound[0], v);
}

bool is_same(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("sameas", args, {"other"}, 1);
  const Value other = bound[0];
  if (v.kind != other.kind) return false;
  if (v.is_number() || v.is(Kind::kNone) || v.is_text()) return equals(ev.box(), v, other);
  return v.integer == other.integer;  // the same object
}

bool is_filter(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("filter", args, {}, 0, {});
  return v.is_text() && find_filter(ev.str(v)) != nullptr;
}

bool is_test(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("test", args, {}, 0, {});
  return v.is_text() && find_test(ev.str(v)) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr NamedTest kTests[] = {
    {"!=", is_equal<true>},
    {"<", is_ordered<Order::kLess>},
    {"<=", is_ordered<Order::kLessEqual>},
    {"==", is_equal<false>},
    {">", is_ordered<Order::kGreater>},
    {">=", is_ordered<Order::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", is_equal<false>},
    {"equalto", is_equal<false>},
    {"escaped", simple<is_escaped>},
    {"even", is_parity<0>},
    {"false", simple<is_false>},
    {"filter", is_filter},
    {"float", simple<is_float>},
    {"ge", is_ordered<Order::kGreaterEqual>},
    {"greaterthan", is_ordered<Order::kGreater>},
    {"gt", is_ordered<Order::kGreater>},
    {"in", is_in},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", is_ordered<Order::kLessEqual>},
    {"lessthan", is_ordered<Order::kLess>},
    {"lower", is_cased<false>},
    {"lt", is_ordered<Order::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", is_equal<true>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", is_parity<1>},
    {"sameas", is_same},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", is_test},
    {"true", simple<is_true>},
    {"undefined", simple<is_undefined>},
    {"upper", is_cased<true>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const NamedTest& t) { return t.name == name; });
  return at == std::end(kTests) ? nullptr : at->function;
}

}  // namespace helios::jinja
