// Arithmetic as Python does it: integers that never overflow, floor division, text and list repetition.
//
// Thread: the one that renders.
#include <algorithm>
#include <cmath>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/python_text.h"

namespace helios::jinja {
namespace {

constexpr std::string_view kOperatorNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void unsupported_operands(BinaryOp op, Value a, Value b) {
  fail(cat("unsupported operand type(s) for ", kOperatorNames[static_cast<int>(op)], ": '", type_name(a), "' and '",
           type_name(b), "'"));
}

std::string_view escaped(Sandbox& box, std::string_view text) {
  TextBuilder out(box);
  append_html_escaped(&out, text);
  return out.view();
}

Value add_texts(Evaluator& ev, Value a, Value b) {
  Sandbox& box = ev.box();
  if (a.text->markup == b.text->markup) return concat_text(box, *a.text, b.str());
  if (a.text->markup) return concat_text(box, *a.text, escaped(box, b.str()));
  return concat_text(box, Text{escaped(box, a.str()), -1, true}, b.str());
}

Value repeat(Evaluator& ev, Value sequence, Value count_value) {
  const int64_t count = std::max<int64_t>(0, to_index(count_value, "repetition count"));
  Sandbox& box = ev.box();
  const size_t size = sequence.is_text() ? sequence.str().size() : sequence.list->items.size() * sizeof(Value);
  if (size > 0 && static_cast<uint64_t>(count) > box.limits().max_memory_bytes / size) {
    throw Fault{Errc::kTooLarge, "a repetition beyond the memory of a template"};  // said before it is tried
  }
  if (sequence.is_text()) {
    const std::string_view bytes = sequence.str();
    TextBuilder out(box);
    for (int64_t i = 0; i < count && !bytes.empty(); ++i) {
      box.step();
      out.append(bytes);
    }
    return out.finish(sequence.text->markup);
  }
  ListBuilder out(box);
  for (int64_t i = 0; i < count && !sequence.list->items.empty(); ++i) {
    for (const Value item : sequence.list->items) out.push(item);
  }
  return out.finish(sequence.kind);
}

double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value apply_floats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::from(a + b);
    case BinaryOp::kSubtract:
      return Value::from(a - b);
    case BinaryOp::kMultiply:
      return Value::from(a * b);
    case BinaryOp::kDivide:
      if (b == 0) fail("division by zero");
      return Value::from(a / b);
    case BinaryOp::kFloorDivide: {
      if (b == 0) fail("float floor division by zero");
      const double exact = (a - floor_mod(a, b)) / b;
      double floored = std::floor(exact);
      if (exact - floored > 0.5) floored += 1;
      return Value::from(exact == 0 ? std::copysign(0.0, a / b) : floored);
    }
    case BinaryOp::kModulo:
      if (b == 0) fail("float modulo");
      return Value::from(floor_mod(a, b));
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) fail("a complex number, which templates do not have");
      const double out = std::pow(a, b);
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) fail("result too large");
      return Value::from(out);
    }
  }
  return Value::none();
}

// Integers of 64 bits whose result is one too; absent when the slow path must decide.
Value apply_small(BinaryOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return __builtin_add_overflow(a, b, &out) ? Value::absent() : Value::from(out);
    case BinaryOp::kSubtract:
      return __builtin_sub_overflow(a, b, &out) ? Value::absent() : Value::from(out);
    case BinaryOp::kMultiply:
      return __builtin_mul_overflow(a, b, &out) ? Value::absent() : Value::from(out);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) fail(op == BinaryOp::kModulo ? "integer modulo by zero" : "integer division or modulo by zero");
      if (b == -1) return Value::absent();
      const int64_t rest = a % b;
      const bool adjust = rest != 0 && (rest < 0) != (b < 0);
      if (op == BinaryOp::kModulo) return Value::from(adjust ? rest + b : rest);
      return Value::from(a / b - (adjust ? 1 : 0));
    }
    default:
      return Value::absent();
  }
}

Value power(Evaluator& ev, const BigInt& base, const BigInt& exponent) {
  if (exponent.negative()) return apply_floats(BinaryOp::kPower, base.to_double(), exponent.to_double());
  const auto small = exponent.to_int64();
  const auto base_small = base.to_int64();
  const bool trivial = base_small && *base_small >= -1 && *base_small <= 1;
  if (!small) {
    if (trivial)
      return Value::from(*base_small == -1 ? (exponent.limbs()[0] & 1 ? int64_t{-1} : int64_t{1}) : *base_small);
    throw Fault{Errc::kTooLarge, "an integer of more than 16384 bits"};
  }
  BigInt out(1), square = base;
  for (int64_t rest = *small; rest > 0; rest >>= 1) {
    ev.box().step(1 + square.limbs().size() * square.limbs().size() / 16);
    if (rest & 1) out = out * square;
    if (rest > 1) square = square * square;
  }
  return make_integer(ev.box(), out);
}

Value divide(const BigInt& a, const BigInt& b) {
  if (b.zero()) fail("division by zero");
  const double x = a.to_double(), y = b.to_double();
  if (std::isinf(x) || std::isinf(y)) fail("integer division result too large for a float");
  return Value::from(x / y);
}

Value apply_integers(Evaluator& ev, BinaryOp op, Value a, Value b) {
  const auto small = [](Value v) { return v.is(Kind::kInt) || v.is(Kind::kBool); };
  const auto as_int = [](Value v) { return v.is(Kind::kBool) ? int64_t{v.boolean} : v.integer; };
  if (small(a) && small(b)) {
    const Value quick = apply_small(op, as_int(a), as_int(b));
    if (!quick.is(Kind::kAbsent)) return quick;
  }
  const BigInt x = to_big(a), y = to_big(b);
  ev.box().step(1 + x.limbs().size() * (1 + y.limbs().size()) / 4);
  switch (op) {
    case BinaryOp::kAdd:
      return make_integer(ev.box(), x + y);
    case BinaryOp::kSubtract:
      return make_integer(ev.box(), x - y);
    case BinaryOp::kMultiply:
      return make_integer(ev.box(), x * y);
    case BinaryOp::kDivide:
      return divide(x, y);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (y.zero()) fail("integer division or modulo by zero");
      ev.box().step(x.limbs().size() * 200);
      const BigInt::DivMod both = x.divmod(y);
      return make_integer(ev.box(), op == BinaryOp::kModulo ? both.remainder : both.quotient);
    }
    case BinaryOp::kPower:
      return power(ev, x, y);
  }
  return Value::none();
}

}  // namespace

Value apply_binary(Evaluator& ev, BinaryOp op, Value a, Value b) {
  need_defined(a);
  if (op == BinaryOp::kModulo && a.is_text()) return format_percent(ev, *a.text, b);
  need_defined(b);
  if (a.is_integral() && b.is_integral()) return apply_integers(ev, op, a, b);
  if (a.is_number() && b.is_number()) return apply_floats(op, to_double(a), to_double(b));
  if (op == BinaryOp::kAdd) {
    if (a.is_text() && b.is_text()) return add_texts(ev, a, b);
    if (a.is_sequence() && a.kind == b.kind) return concat_list(ev.box(), a, b);
    if (a.is_text() || a.is_sequence()) {
      const std::string_view name = a.is_text() ? "str" : type_name(a);
      fail(cat("can only concatenate ", name, " (not \"", type_name(b), "\") to ", name));
    }
  }
  if (op == BinaryOp::kMultiply) {
    if ((a.is_text() || a.is_sequence()) && b.is_integral()) return repeat(ev, a, b);
    if ((b.is_text() || b.is_sequence()) && a.is_integral()) return repeat(ev, b, a);
  }
  unsupported_operands(op, a, b);
}

Value apply_negative(Evaluator& ev, Value a) {
  need_defined(a);
  if (a.is(Kind::kFloat)) return Value::from(-a.real);
  if (a.is_integral()) return make_integer(ev.box(), -to_big(a));
  fail(cat("bad operand type for unary -: '", type_name(a), "'"));
}

}  // namespace helios::jinja
