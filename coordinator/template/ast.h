// A parsed template: expressions and statements, immutable, shared by every render.
//
// Nodes lie in the arena of their template and are never freed alone, so a deep tree costs no deep destructor. Names
// are small numbers, the same for the whole template. Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "coordinator/template/filters.h"
#include "coordinator/template/value.h"

namespace helios::jinja {

using NameId = uint32_t;

struct Expr;
struct Statement;
using Block = std::span<const Statement* const>;

struct NamedExpr {
  std::string_view name;
  const Expr* value;
};

struct CallArgs {
  std::span<const Expr* const> positional;
  std::span<const NamedExpr> named;
  const Expr* star = nullptr;       // *args
  const Expr* star_star = nullptr;  // **kwargs
};

enum class ExprKind : uint8_t {
  kConstant,            // constant
  kName,                // name
  kTuple,               // parts
  kList,                // parts
  kDict,                // parts: key, value, key, value
  kAttribute,           // parts[0], text
  kItem,                // parts[0], parts[1]
  kSlice,               // parts[0..2], each may be null; only as the second part of kItem
  kCall,                // parts[0], args
  kFilter,              // parts[0] (null in a filter block), text, filter, args
  kTest,                // parts[0], text, test, args
  kNot,                 // parts[0]
  kNegative,            // parts[0]
  kPositive,            // parts[0]
  kBinary,              // parts[0], parts[1], op
  kConcat,              // parts
  kCompare,             // parts[0], then parts[i] compared by ops[i - 1]
  kAnd,                 // parts[0], parts[1]
  kOr,                  // parts[0], parts[1]
  kConditional,         // parts: condition, value, other (null: undefined)
  kNamespaceAttribute,  // only as a target of set: name, text
};

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expr {
  ExprKind kind;
  BinaryOp op = BinaryOp::kAdd;
  int line = 0;
  NameId name = 0;
  std::string_view text;
  Value constant;
  std::span<const Expr* const> parts;
  std::span<const CompareOp> ops;
  const CallArgs* args = nullptr;
  FilterFunction filter = nullptr;  // null: unknown, an error when it is reached
  TestFunction test = nullptr;
};

struct Parameter {
  NameId name;
  std::string_view text;
  const Expr* default_value;  // null: none
};

/// A macro, or the body of a call block.
struct MacroNode {
  std::string_view name;
  std::span<const Parameter> parameters;
  Block body;
  bool uses_caller = false;  // its body names them: only then may a call pass them
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

enum class StatementKind : uint8_t {
  kText,         // text
  kPrint,        // expr
  kIf,           // expr, body, other
  kFor,          // target, expr (what to iterate), condition (may be null), body, other, recursive
  kSet,          // target, expr
  kSetBlock,     // target, expr (filters over an absent value, may be null), body
  kMacro,        // name, macro
  kCallBlock,    // expr (kCall), macro
  kFilterBlock,  // expr, body
  kWith,         // targets, values, body
  kScope,        // body, in a scope of its own: generation, block, autoescape
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind;
  bool recursive = false;
  int line = 0;
  NameId name = 0;
  std::string_view text;
  const Expr* expr = nullptr;
  const Expr* target = nullptr;
  const Expr* condition = nullptr;
  const MacroNode* macro = nullptr;
  std::span<const Expr*const> targets, values;
  Block body, other;
};

}  // namespace helios::jinja
