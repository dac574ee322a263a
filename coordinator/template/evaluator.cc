#include "coordinator/template/evaluator.h"

#include <algorithm>
#include <string>

#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

std::string quoted(std::string_view name) { return cat("'", name.substr(0, byte_of_char(name, 80)), "'"); }

}  // namespace

Evaluator::Evaluator(const SyntaxTree& tree, Sandbox& box, std::chrono::system_clock::time_point now)
    : tree_(tree), box_(box), now_(now), globals_(tree.names.size(), Value::absent()) {
  for (size_t i = 0; i < tree_.names.size(); ++i) {
    const auto id = static_cast<NameId>(i);
    if (tree_.names[i] == "loop") loop_name_ = id;
    if (tree_.names[i] == "caller") caller_name_ = id;
    if (tree_.names[i] == "kwargs") kwargs_name_ = id;
    if (tree_.names[i] == "varargs") varargs_name_ = id;
    if (const Function* function = find_function(tree_.names[i])) {
      globals_[i] = Value::of(Kind::kFunction);
      globals_[i].function = function;
    }
  }
}

void Evaluator::set_variable(std::string_view name, Value value) {
  const auto at = std::find(tree_.names.begin(), tree_.names.end(), name);
  if (at != tree_.names.end()) globals_[static_cast<size_t>(at - tree_.names.begin())] = value;
}

void Evaluator::run(TextBuilder* out) {
  out_ = out;
  run_block(tree_.body);
}

// --- statements ---

Evaluator::Flow Evaluator::run_block(Block block) {
  const Nested nested(box_);
  for (const Statement* s : block) {
    const Flow flow = run_statement(*s);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_statement(const Statement& s) {
  box_.step();
  line_ = s.line;
  switch (s.kind) {
    case StatementKind::kText:
      out_->append(s.text);
      return Flow::kNext;
    case StatementKind::kPrint:
      append_str(box_, out_, evaluate(*s.expr));
      return Flow::kNext;
    case StatementKind::kIf:
      return run_if(&s);
    case StatementKind::kFor:
      run_for(s, evaluate(*s.expr), 0);
      return Flow::kNext;
    case StatementKind::kSet:
      assign(*s.target, evaluate(*s.expr));
      return Flow::kNext;
    case StatementKind::kSetBlock: {
      const Value captured = capture(s.body);
      if (!s.expr) {
        assign(*s.target, captured);
        return Flow::kNext;
      }
      filter_input_ = captured;
      assign(*s.target, evaluate(*s.expr));
      return Flow::kNext;
    }
    case StatementKind::kMacro: {
      Value macro = Value::of(Kind::kMacro);
      macro.macro = box_.make<Macro>(Macro{s.macro, scope_});
      bind(s.name, macro);
      return Flow::kNext;
    }
    case StatementKind::kCallBlock: {
      Value caller = Value::of(Kind::kMacro);
      caller.macro = box_.make<Macro>(Macro{s.macro, scope_});
      const Value callee = evaluate(*s.expr->parts[0]);
      Args args = evaluate_args(*s.expr->args);
      auto* named = box_.make_array<NamedValue>(args.named.size() + 1);
      *std::copy(args.named.begin(), args.named.end(), named) = {"caller", caller};
      args.named = {named, args.named.size() + 1};
      append_str(box_, out_, call(callee, args));
      return Flow::kNext;
    }
    case StatementKind::kFilterBlock:
      filter_input_ = capture(s.body);
      append_str(box_, out_, evaluate(*s.expr));
      return Flow::kNext;
    case StatementKind::kWith:
      return run_with(s);
    case StatementKind::kScope: {
      const ScopeGuard scope(this, scope_);
      return run_block(s.body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_if(const Statement* s) {
  while (true) {
    line_ = s->line;
    if (truthy(evaluate(*s->expr))) return run_block(s->body);
    if (s->other.size() != 1 || s->other[0]->kind != StatementKind::kIf) return run_block(s->other);
    s = s->other[0];
  }
}

Evaluator::Flow Evaluator::run_with(const Statement& s) {
  const auto values = evaluate_all(s.values);  // in the scope around: one value does not see another's name
  const ScopeGuard scope(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(*s.targets[i], values[i]);
  return run_block(s.body);
}

Value Evaluator::capture(Block body) {
  TextBuilder captured(box_);
  TextBuilder* outer = std::exchange(out_, &captured);
  const ScopeGuard scope(this, scope_);
  run_block(body);
  out_ = outer;
  return captured.finish();
}

void Evaluator::run_for(const Statement& s, Value iterable, int64_t depth0) {
  auto* loop = box_.make<Loop>(Loop{&s, scope_, iterate(iterable)});
  loop->depth0 = depth0;
  if (!s.condition) {
    if (const auto length = length_of(iterable)) loop->length = static_cast<int64_t>(*length);
  }
  Value loop_value = Value::of(Kind::kLoop);
  loop_value.loop = loop;
  {
    const ScopeGuard scope(this, loop->scope);
    Value value;
    while (fetch(loop, &value)) {
      box_.step();
      loop->previous = loop->current;
      loop->current = value;
      ++loop->index0;
      scope_->size = 0;  // each pass begins afresh: what the last one set is gone
      bind_if_named(loop_name_, loop_value);
      assign(*s.target, value);
      if (run_block(s.body) == Flow::kBreak) break;
    }
  }
  if (loop->index0 < 0) {
    const ScopeGuard scope(this, loop->scope);
    run_block(s.other);
  }
}

// The next item that the loop's condition lets through.
bool Evaluator::fetch(Loop* loop, Value* out) {
  if (!loop->next.is(Kind::kAbsent)) {
    *out = std::exchange(loop->next, Value::absent());
    return true;
  }
  const Statement& s = *loop->node;
  while (next(&loop->source, out)) {
    if (!s.condition || loop->filtered) return true;
    box_.step();
    const ScopeGuard scope(this, loop->scope);
    assign(*s.target, *out);
    if (truthy(evaluate(*s.condition))) return true;
  }
  return false;
}

bool Evaluator::loop_has_next(Loop* loop) {
  if (!loop->next.is(Kind::kAbsent)) return true;
  Value value;
  if (!fetch(loop, &value)) return false;
  loop->next = value;
  return true;
}

int64_t Evaluator::loop_length(Loop* loop) {
  if (loop->length >= 0) return loop->length;
  ListBuilder rest(box_);
  Value value;
  while (fetch(loop, &value)) rest.push(value);
  loop->length = loop->index0 + 1 + static_cast<int64_t>(rest.size());
  loop->source = iterate(rest.finish());
  loop->filtered = true;
  return loop->length;
}

Value Evaluator::loop_attribute(Loop* loop, std::string_view name) {
  if (name == "index") return Value::from(loop->index0 + 1);
  if (name == "index0") return Value::from(loop->index0);
  if (name == "first") return Value::from(loop->index0 == 0);
  if (name == "last") return Value::from(!loop_has_next(loop));
  if (name == "length") return Value::from(loop_length(loop));
  if (name == "revindex") return Value::from(loop_length(loop) - loop->index0);
  if (name == "revindex0") return Value::from(loop_length(loop) - loop->index0 - 1);
  if (name == "depth") return Value::from(loop->depth0 + 1);
  if (name == "depth0") return Value::from(loop->depth0);
  if (name == "previtem") {
    return loop->index0 == 0 ? make_undefined(box_, "there is no previous item") : loop->previous;
  }
  if (name == "nextitem") return loop_has_next(loop) ? loop->next : make_undefined(box_, "there is no next item");
  return Value::absent();
}

void Evaluator::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) return bind(target.name, value);
  if (target.kind == ExprKind::kNamespaceAttribute) {
    const Value space = variable(target);
    if (!space.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    return space.dict->set(box_, text(target.text), value);
  }
  const auto items = items_of(value);
  if (items.size() != target.parts.size()) {
    fail(cat(items.size() < target.parts.size() ? "not enough" : "too many", " values to unpack (expected ",
             std::to_string(target.parts.size()), ", got ", std::to_string(items.size()), ")"));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

// --- variables ---

Value Evaluator::variable(const Expr& name) {
  for (const Scope* scope = scope_; scope->parent; scope = scope->parent) {
    for (uint32_t i = scope->size; i-- > 0;) {
      if (scope->bindings[i].name == name.name) return scope->bindings[i].value;
    }
  }
  const Value value = globals_[name.name];
  return value.is(Kind::kAbsent) ? make_undefined(box_, tree_.names[name.name]) : value;
}

void Evaluator::bind(NameId name, Value value) {
  if (!scope_->parent) {
    globals_[name] = value;
    return;
  }
  for (uint32_t i = 0; i < scope_->size; ++i) {
    if (scope_->bindings[i].name == name) {
      scope_->bindings[i].value = value;
      return;
    }
  }
  if (scope_->size == scope_->capacity) {
    const uint32_t capacity = std::max<uint32_t>(4, scope_->capacity * 2);
    auto* grown = box_.make_array<Binding>(capacity);
    std::copy(scope_->bindings, scope_->bindings + scope_->size, grown);
    scope_->bindings = grown;
    scope_->capacity = capacity;
  }
  scope_->bindings[scope_->size++] = {name, value};
}

// --- expressions ---

Value Evaluator::evaluate(const Expr& e) {
  if (e.kind == ExprKind::kConstant) return e.constant;
  if (e.kind == ExprKind::kName) return variable(e);
  const Nested nested(box_);
  box_.step();
  switch (e.kind) {
    case ExprKind::kConstant:
    case ExprKind::kName:
    case ExprKind::kNamespaceAttribute:
    case ExprKind::kSlice:
      break;
    case ExprKind::kTuple:
    case ExprKind::kList:
      return Value::from(box_.make<List>(List{evaluate_all(e.parts), nullptr, false}),
                         e.kind == ExprKind::kList ? Kind::kList : Kind::kTuple);
    case ExprKind::kDict:
      return evaluate_dict(e);
    case ExprKind::kAttribute: {
      const Value owner = evaluate(*e.parts[0]);
      line_ = e.line;
      return attribute(owner, e.text);
    }
    case ExprKind::kItem:
      return evaluate_item(e);
    case ExprKind::kCall: {
      const Value callee = evaluate(*e.parts[0]);
      const Args args = evaluate_args(*e.args);
      line_ = e.line;
      return call(callee, args);
    }
    case ExprKind::kFilter: {
      const Value input = e.parts[0] ? evaluate(*e.parts[0]) : filter_input_;
      if (!e.filter) fail(cat("no filter named ", quoted(e.text)));
      const Args args = evaluate_args(*e.args);
      line_ = e.line;
      return e.filter(*this, input, args);
    }
    case ExprKind::kTest: {
      const Value input = evaluate(*e.parts[0]);
      if (!e.test) fail(cat("no test named ", quoted(e.text)));
      const Args args = evaluate_args(*e.args);
      line_ = e.line;
      return Value::from(e.test(*this, input, args));
    }
    case ExprKind::kNot:
      return Value::from(!truthy(evaluate(*e.parts[0])));
    case ExprKind::kNegative:
      return apply_negative(*this, evaluate(*e.parts[0]));
    case ExprKind::kPositive: {
      const Value value = evaluate(*e.parts[0]);
      need_defined(value);
      if (!value.is_number()) fail(cat("bad operand type for unary +: '", type_name(value), "'"));
      return value.is(Kind::kBool) ? Value::from(int64_t{value.boolean}) : value;
    }
    case ExprKind::kBinary: {
      const Value a = evaluate(*e.parts[0]);
      const Value b = evaluate(*e.parts[1]);
      line_ = e.line;
      return apply_binary(*this, e.op, a, b);
    }
    case ExprKind::kConcat:
      return evaluate_concat(e);
    case ExprKind::kCompare:
      return evaluate_compare(e);
    case ExprKind::kAnd: {
      const Value left = evaluate(*e.parts[0]);
      return truthy(left) ? evaluate(*e.parts[1]) : left;
    }
    case ExprKind::kOr: {
      const Value left = evaluate(*e.parts[0]);
      return truthy(left) ? left : evaluate(*e.parts[1]);
    }
    case ExprKind::kConditional:
      if (truthy(evaluate(*e.parts[0]))) return evaluate(*e.parts[1]);
      return e.parts[2] ? evaluate(*e.parts[2]) : make_undefined(box_, "the value of an if without else");
  }
  fail("a slice outside of a subscript");
}

Value Evaluator::evaluate_item(const Expr& e) {
  const Value owner = evaluate(*e.parts[0]);
  const Expr& key = *e.parts[1];
  if (key.kind != ExprKind::kSlice) {
    const Value index = evaluate(key);
    line_ = e.line;
    return item(owner, index);
  }
  const auto part = [&](size_t i) { return key.parts[i] ? evaluate(*key.parts[i]) : Value::none(); };
  const Value start = part(0), stop = part(1), step = part(2);
  line_ = e.line;
  return slice(*this, owner, start, stop, step);
}

Value Evaluator::evaluate_compare(const Expr& e) {
  Value left = evaluate(*e.parts[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Value right = evaluate(*e.parts[i + 1]);
    line_ = e.line;
    bool holds = false;
    switch (e.ops[i]) {
      case CompareOp::kEqual:
        holds = equals(box_, left, right);
        break;
      case CompareOp::kNotEqual:
        holds = !equals(box_, left, right);
        break;
      case CompareOp::kLess:
        holds = compare(box_, Order::kLess, left, right);
        break;
      case CompareOp::kLessEqual:
        holds = compare(box_, Order::kLessEqual, left, right);
        break;
      case CompareOp::kGreater:
        holds = compare(box_, Order::kGreater, left, right);
        break;
      case CompareOp::kGreaterEqual:
        holds = compare(box_, Order::kGreaterEqual, left, right);
        break;
      case CompareOp::kIn:
        holds = contains(right, left);
        break;
      case CompareOp::kNotIn:
        holds = !contains(right, left);
        break;
    }
    if (!holds) return Value::from(false);
    left = right;
  }
  return Value::from(true);
}

Value Evaluator::evaluate_concat(const Expr& e) {
  // The first part may be a text that grows in place.
  const Value first = evaluate(*e.parts[0]);
  Text joined{str(first), -1, false, first.is_text() ? first.text->tail : nullptr};
  Value out = Value::from(box_.make<Text>(joined));
  for (size_t i = 1; i < e.parts.size(); ++i) out = concat_text(box_, *out.text, str(evaluate(*e.parts[i])));
  return out;
}

Value Evaluator::evaluate_dict(const Expr& e) {
  Dict* dict = box_.make<Dict>();
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    const Value key = evaluate(*e.parts[i]);
    dict->set(box_, key, evaluate(*e.parts[i + 1]));
  }
  return Value::from(dict);
}

std::span<const Value> Evaluator::evaluate_all(std::span<const Expr* const> parts) {
  auto* values = box_.make_array<Value>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) values[i] = evaluate(*parts[i]);
  return {values, parts.size()};
}

Args Evaluator::evaluate_args(const CallArgs& args) {
  if (args.positional.empty() && args.named.empty() && !args.star && !args.star_star) return {};
  Args out;
  out.positional = evaluate_all(args.positional);
  auto* named = box_.make_array<NamedValue>(args.named.size());
  for (size_t i = 0; i < args.named.size(); ++i) named[i] = {args.named[i].name, evaluate(*args.named[i].value)};
  out.named = {named, args.named.size()};
  if (args.star) {
    ListBuilder all(box_);
    for (const Value v : out.positional) all.push(v);
    for (const Value v : items_of(evaluate(*args.star))) all.push(v);
    out.positional = all.items();
  }
  if (args.star_star) {
    const Value more = evaluate(*args.star_star);
    if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping");
    auto* all = box_.make_array<NamedValue>(out.named.size() + more.dict->size());
    auto* at = std::copy(out.named.begin(), out.named.end(), all);
    for (const Dict::Entry& entry : more.dict->entries()) {
      if (!entry.key.is_text()) fail("keywords must be strings");
      *at++ = {entry.key.str(), entry.value};
    }
    out.named = {all, static_cast<size_t>(at - all)};
  }
  return out;
}

std::string_view Evaluator::str_of_value(Value value) { return str_of(box_, value); }

// --- calls ---

Value Evaluator::call(Value callee, const Args& args) {
  const Nested nested(box_);
  box_.step();
  switch (callee.kind) {
    case Kind::kUndefined:
      fail_undefined(*callee.undefined);
    case Kind::kFunction:
      return callee.function->call(*this, args);
    case Kind::kMethod:
      if (!callee.method->call) {
        throw Fault{Errc::kUnsupported,
                    cat("method ", quoted(callee.method->name), " of '", type_name(callee.method->self), "'")};
      }
      return callee.method->call(*this, callee.method->self, args);
    case Kind::kMacro:
      return call_macro(*callee.macro, args);
    case Kind::kJoiner:
      if (!callee.joiner->used) {
        callee.joiner->used = true;
        return text("");
      }
      return callee.joiner->separator;
    case Kind::kLoop: {
      if (!callee.loop->node->recursive) fail("the loop must have the 'recursive' marker to be called recursively");
      const Bound<1> bound("loop", args, {"iterable"}, 1);
      TextBuilder captured(box_);
      TextBuilder* outer = std::exchange(out_, &captured);
      Scope* scope = std::exchange(scope_, callee.loop->scope);
      run_for(*callee.loop->node, bound[0], callee.loop->depth0 + 1);
      scope_ = scope;
      out_ = outer;
      return captured.finish();
    }
    default:
      fail(cat("'", type_name(callee), "' object is not callable"));
  }
}

Value Evaluator::call_macro(const Macro& macro, const Args& args) {
  const MacroNode& node = *macro.node;
  const std::string name = quoted(node.name);
  const size_t num_parameters = node.parameters.size();
  const size_t num_bound = std::min(args.positional.size(), num_parameters);
  if (args.positional.size() > num_parameters && !node.uses_varargs) {
    fail(cat("macro ", name, " takes not more than ", std::to_string(num_parameters), " argument(s)"));
  }
  const ScopeGuard scope(this, macro.scope);
  std::vector<bool> used(args.named.size());
  for (size_t i = 0; i < num_parameters; ++i) {
    const Parameter& parameter = node.parameters[i];
    Value value = i < num_bound ? args.positional[i] : Value::absent();
    for (size_t k = 0; k < args.named.size() && i >= num_bound; ++k) {
      if (args.named[k].name != parameter.text || used[k]) continue;
      used[k] = true;
      value = args.named[k].value;
      break;
    }
    if (value.is(Kind::kAbsent)) {
      value = parameter.default_value ? evaluate(*parameter.default_value) : make_undefined(box_, parameter.text);
    }
    bind(parameter.name, value);
  }
  Dict* rest = box_.make<Dict>();
  Value caller = make_undefined(box_, "caller");
  for (size_t k = 0; k < args.named.size(); ++k) {
    if (used[k]) continue;
    if (args.named[k].name == "caller" && node.uses_caller) {
      caller = args.named[k].value;
    } else if (node.uses_kwargs) {
      rest->set(box_, text(args.named[k].name), args.named[k].value);
    } else {
      fail(cat("macro ", name, " takes no keyword argument ", quoted(args.named[k].name)));
    }
  }
  if (node.uses_caller) bind_if_named(caller_name_, caller);
  if (node.uses_kwargs) bind_if_named(kwargs_name_, Value::from(rest));
  if (node.uses_varargs) {
    const auto more = args.positional.subspan(num_bound);
    bind_if_named(varargs_name_, Value::from(box_.make<List>(List{more, nullptr, false}), Kind::kTuple));
  }
  TextBuilder captured(box_);
  TextBuilder* outer = std::exchange(out_, &captured);
  run_block(node.body);
  out_ = outer;
  return captured.finish();
}

}  // namespace helios::jinja
