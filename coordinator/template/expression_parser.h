// The expressions of a template: tokens to nodes, with Jinja's precedence.
//
// Base of the statement parser, which shares its tokens and its node makers. Thread: any.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/template/ast.h"
#include "coordinator/template/lexer.h"
#include "coordinator/template/parser.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {

class ExpressionParser {
 protected:
  using Parts = std::vector<const Expr*>;

  explicit ExpressionParser(SyntaxTree* tree) : tree_(*tree), box_(*tree->box), tokens_(tokenize(tree->source, box_)) {}

  // --- tokens ---

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    const Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at_end() const { return now().kind == TokenKind::kEnd; }
  static bool is_name(const Token& token, std::string_view word) {
    return token.kind == TokenKind::kName && token.text == word;
  }
  static bool is_operator(const Token& token, std::string_view op) {
    return token.kind == TokenKind::kOperator && token.text == op;
  }
  bool take_name(std::string_view word) { return is_name(now(), word) && (take(), true); }
  bool take_operator(std::string_view op) { return is_operator(now(), op) && (take(), true); }
  void expect_operator(std::string_view op) {
    if (!take_operator(op)) unexpected(cat("'", op, "'"));
  }
  std::string_view expect_name() {
    if (now().kind != TokenKind::kName) unexpected("a name");
    return take().text;
  }
  void expect_block_end() {
    if (now().kind != TokenKind::kBlockEnd) unexpected("'%}'");
    take();
  }

  [[noreturn]] void syntax_error(std::string message) const {
    throw Fault{Errc::kCorruptFile, std::move(message), now().line};
  }
  [[noreturn]] void unsupported(std::string message) const {
    throw Fault{Errc::kUnsupported, std::move(message), now().line};
  }
  [[noreturn]] void unexpected(std::string_view expected) const {
    syntax_error(cat("unexpected ", describe(now()), ", expected ", expected));
  }
  static std::string describe(const Token& token);

  // --- nodes ---

  template <class T>
  std::span<const T> keep(const std::vector<T>& items) {
    T* data = box_.make_array<T>(items.size());
    std::copy(items.begin(), items.end(), data);
    return {data, items.size()};
  }

  NameId id_of(std::string_view name) {
    const auto [at, fresh] = ids_.emplace(name, static_cast<NameId>(tree_.names.size()));
    if (fresh) tree_.names.push_back(name);
    return at->second;
  }

  Expr* node(ExprKind kind, int line, const Parts& parts = {}) {
    Expr* out = box_.make<Expr>(Expr{kind});
    out->line = line;
    out->parts = keep(parts);
    return out;
  }

  const Expr* constant(Value value, int line) {
    Expr* out = node(ExprKind::kConstant, line);
    out->constant = value;
    return out;
  }

  Value text_constant(std::string_view text) {
    const Value value = borrow_text(box_, text);
    value.text->chars = static_cast<int64_t>(count_chars(text));  // now: renders share it and must not write
    return value;
  }

  const Expr* load(std::string_view name, int line) {
    if (name == "caller") uses_caller_ = true;
    if (name == "kwargs") uses_kwargs_ = true;
    if (name == "varargs") uses_varargs_ = true;
    Expr* out = node(ExprKind::kName, line);
    out->name = id_of(name);
    out->text = name;
    return out;
  }

  // --- expressions, loosest first ---

  bool tuple_ends(std::string_view end_word) const;
  // One expression, or several with commas between them. `conditional`: "a if b" is taken as one.
  const Expr* tuple(bool conditional = true, std::string_view end_word = {}, bool parenthesized = false);
  const Expr* expression();
  const Expr* or_expression();
  const Expr* and_expression();
  const Expr* logical(std::string_view word, ExprKind kind, const Expr* (ExpressionParser::*operand)());
  const Expr* not_expression();
  const Expr* comparison();
  struct Operator {
    std::string_view text;
    BinaryOp op;
  };
  const Expr* binary(std::span<const Operator> operators, const Expr* (ExpressionParser::*operand)());
  const Expr* sum();
  const Expr* concatenation();
  const Expr* product();
  const Expr* power();
  const Expr* unary();
  const Expr* unary(bool with_filters);
  const Expr* primary();
  const Expr* name_or_constant(const Token& token);
  const Expr* strings();
  Value integer(std::string_view token);
  static Value real(std::string_view token);
  const Expr* list(int line);
  const Expr* dict(int line);
  const Expr* postfix(const Expr* value);
  const Expr* filters(const Expr* value);
  const Expr* subscript(const Expr* value);
  const Expr* subscripted();
  const Expr* call(const Expr* callee);
  const CallArgs* call_args();
  static const CallArgs* no_args();
  std::string_view dotted_name();
  // Outside of an if, an unknown filter or test refuses the template; within one, only reaching it is an error.
  void unknown(std::string_view kind, std::string_view name);
  const Expr* one_filter(const Expr* value);
  bool test_argument_follows() const;
  const Expr* one_test(const Expr* value);

  SyntaxTree& tree_;
  Sandbox& box_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unordered_map<std::string_view, NameId> ids_;
  int soft_ = 0;  // within an if or a conditional
  std::vector<Fault> unknown_;
  bool uses_caller_ = false, uses_kwargs_ = false, uses_varargs_ = false;
};

}  // namespace helios::jinja
