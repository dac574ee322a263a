// Walks the syntax tree of a template and writes its text.
//
// One evaluator is one render. Scopes are Jinja's: what a loop, a macro or a block sets is gone behind it; an if has no
// scope of its own; a macro sees the variables of the place where it was defined, at their present values.
// Thread: the one that renders.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/template/ast.h"
#include "coordinator/template/parser.h"
#include "coordinator/template/value.h"

namespace helios::jinja {

/// Steps through anything that Python can iterate.
struct Cursor {
  Value source;
  size_t at = 0;
};

struct Function {
  std::string_view name;
  Value (*call)(Evaluator& ev, const Args& args);
};

struct Method {
  Value self;
  std::string_view name;
  Value (*call)(Evaluator& ev, Value self, const Args& args);  // null: known to Python, not to this engine
};

struct Binding {
  NameId name;
  Value value;
};

struct Scope {
  Scope* parent = nullptr;  // null: the template's top level, which lies in Evaluator::globals_
  Binding* bindings = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
};

struct Macro {
  const MacroNode* node;
  Scope* scope;  // where it was defined
};

/// A lazy sequence, used up by one pass (what Python's generator filters return).
struct Generator {
  bool (*next)(Evaluator& ev, Generator& self, Value* out);
  Cursor source;
  FilterFunction filter = nullptr;
  TestFunction test = nullptr;
  std::string_view name;  // of an attribute to look at; empty for the item itself
  bool by_attribute = false;
  bool reject = false;
  Args args;
  Value extra;  // a default, a fill value, a set of what was seen
  int64_t number = 0, count = 0;
};

/// The `loop` of a for block.
struct Loop {
  const Statement* node;
  Scope* scope;  // around the loop
  Cursor source;
  int64_t depth0 = 0;
  int64_t index0 = -1;
  int64_t length = -1;  // -1: not known before all items were fetched
  Value previous = Value::absent(), current = Value::absent(), next = Value::absent();
  Value last_changed = Value::absent();
  bool filtered = false;  // the source holds only items that the condition let through
};

class Evaluator {
 public:
  Evaluator(const SyntaxTree& tree, Sandbox& box, std::chrono::system_clock::time_point now);

  /// A variable of the template; ignored when the template does not name it.
  void set_variable(std::string_view name, Value value);
  /// Errors: Fault, with the line reached in line().
  void run(TextBuilder* out);
  int line() const { return line_; }

  Sandbox& box() { return box_; }
  std::chrono::system_clock::time_point now() const { return now_; }

  /// value.name and value[key], as the sandbox allows them; undefined when there is none.
  Value attribute(Value value, std::string_view name);
  Value item(Value value, Value key);
  /// "a.b.0": attributes and indices in turn.
  Value attribute_path(Value value, std::string_view path);
  Value call(Value callee, const Args& args);

  Cursor iterate(Value value);
  bool next(Cursor* cursor, Value* out);
  /// All items; a list's own without a copy.
  std::span<const Value> items_of(Value value);
  /// len(); nullopt when the value has none.
  std::optional<size_t> length_of(Value value);
  bool contains(Value container, Value item);

  Value text(std::string_view borrowed) { return borrow_text(box_, borrowed); }
  Value new_text(std::string_view bytes) { return copy_text(box_, bytes); }
  std::string_view str(Value value) { return str_of_value(value); }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  /// A new scope inside `parent`, for as long as it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Evaluator* ev, Scope* parent) : ev_(ev), outer_(ev->scope_) {
      ev->scope_ = ev->box_.make<Scope>(Scope{parent});
    }
    ~ScopeGuard() { ev_->scope_ = outer_; }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Evaluator* ev_;
    Scope* outer_;
  };

  Flow run_block(Block block);
  Flow run_statement(const Statement& s);
  Flow run_if(const Statement* s);
  void run_for(const Statement& s, Value iterable, int64_t depth0);
  Flow run_with(const Statement& s);
  /// The text that `body` writes, in a scope of its own.
  Value capture(Block body);
  void assign(const Expr& target, Value value);

  bool fetch(Loop* loop, Value* out);
  bool loop_has_next(Loop* loop);
  int64_t loop_length(Loop* loop);
  Value loop_attribute(Loop* loop, std::string_view name);

  Value evaluate(const Expr& e);
  Value evaluate_item(const Expr& e);
  Value evaluate_compare(const Expr& e);
  Value evaluate_concat(const Expr& e);
  Value evaluate_dict(const Expr& e);
  std::span<const Value> evaluate_all(std::span<const Expr* const> parts);
  Args evaluate_args(const CallArgs& args);

  Value variable(const Expr& name);
  void bind(NameId name, Value value);
  /// Binds one of the names that the language itself sets (loop, caller); nothing when the template never says it.
  void bind_if_named(std::optional<NameId> name, Value value) {
    if (name) bind(*name, value);
  }
  Value call_macro(const Macro& macro, const Args& args);
  std::string_view str_of_value(Value value);

  const SyntaxTree& tree_;
  Sandbox& box_;
  std::chrono::system_clock::time_point now_;
  std::vector<Value> globals_;  // by NameId; kAbsent where nothing is set
  std::optional<NameId> loop_name_, caller_name_, kwargs_name_, varargs_name_;
  Scope top_;
  Scope* scope_ = &top_;
  TextBuilder* out_ = nullptr;
  Value filter_input_;  // what the filters of a filter or set block begin with
  int line_ = 0;
};

// Parts of the evaluator that have files of their own.
Value apply_binary(Evaluator& ev, BinaryOp op, Value a, Value b);
Value apply_negative(Evaluator& ev, Value a);
Value slice(Evaluator& ev, Value sequence, Value start, Value stop, Value step);
/// Null when the type has no such method.
const Method* find_method(Evaluator& ev, Value self, std::string_view name);
const Function* find_function(std::string_view name);
/// str.format and the % operator of text.
Value format_braces(Evaluator& ev, const Text& format, const Args& args);
Value format_percent(Evaluator& ev, const Text& format, Value argument);

}  // namespace helios::jinja
