#include "coordinator/template/expression_parser.h"

#include <cstdlib>
#include <iterator>

namespace helios::jinja {

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
      return "a string";
    default:
      return cat("'", token.text.substr(0, byte_of_char(token.text, 40)), "'");
  }
}

bool ExpressionParser::tuple_ends(std::string_view end_word) const {
  return now().kind == TokenKind::kPrintEnd || now().kind == TokenKind::kBlockEnd || is_operator(now(), ")") ||
         (!end_word.empty() && is_name(now(), end_word));
}

const Expr* ExpressionParser::tuple(bool conditional, std::string_view end_word, bool parenthesized) {
  const int line = now().line;
  Parts parts;
  bool is_tuple = false;
  while (!tuple_ends(end_word)) {
    parts.push_back(conditional ? expression() : or_expression());
    if (!is_operator(now(), ",")) break;
    is_tuple = true;
    take();
  }
  if (is_tuple || (parts.empty() && parenthesized)) return node(ExprKind::kTuple, line, parts);
  if (parts.empty()) unexpected("an expression");
  return parts.front();
}

const Expr* ExpressionParser::expression() {
  const Nested nested(box_);
  const int line = now().line;
  const size_t num_unknown = unknown_.size();
  const Expr* value = or_expression();
  while (take_name("if")) {
    unknown_.resize(num_unknown);  // all parts of a conditional are soft, and its value came before the "if"
    ++soft_;
    const Expr* condition = or_expression();
    const Expr* other = take_name("else") ? expression() : nullptr;
    --soft_;
    value = node(ExprKind::kConditional, line, {condition, value, other});
  }
  return value;
}

const Expr* ExpressionParser::or_expression() {
  return logical("or", ExprKind::kOr, &ExpressionParser::and_expression);
}

const Expr* ExpressionParser::and_expression() {
  return logical("and", ExprKind::kAnd, &ExpressionParser::not_expression);
}

const Expr* ExpressionParser::logical(std::string_view word, ExprKind kind,
                                      const Expr* (ExpressionParser::*operand)()) {
  const int line = now().line;
  const Expr* left = (this->*operand)();
  while (take_name(word)) left = node(kind, line, {left, (this->*operand)()});
  return left;
}

const Expr* ExpressionParser::not_expression() {
  if (!is_name(now(), "not")) return comparison();
  const Nested nested(box_);
  const int line = take().line;
  return node(ExprKind::kNot, line, {not_expression()});
}

const Expr* ExpressionParser::comparison() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = now().line;
  Parts parts = {sum()};
  std::vector<CompareOp> ops;
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view op) { return is_operator(now(), op); });
    if (found != std::end(kOperators)) {
      take();
      ops.push_back(static_cast<CompareOp>(found - std::begin(kOperators)));
    } else if (take_name("in")) {
      ops.push_back(CompareOp::kIn);
    } else if (is_name(now(), "not") && is_name(ahead(), "in")) {
      take();
      take();
      ops.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (ops.empty()) return parts.front();
  Expr* out = node(ExprKind::kCompare, line, parts);
  out->ops = keep(ops);
  return out;
}

const Expr* ExpressionParser::binary(std::span<const Operator> operators, const Expr* (ExpressionParser::*operand)()) {
  const int line = now().line;
  const Expr* left = (this->*operand)();
  while (true) {
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](const Operator& o) { return is_operator(now(), o.text); });
    if (found == operators.end()) return left;
    take();
    Expr* out = node(ExprKind::kBinary, line, {left, (this->*operand)()});
    out->op = found->op;
    left = out;
  }
}

const Expr* ExpressionParser::sum() {
  static constexpr Operator kOperators[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}};
  return binary(kOperators, &ExpressionParser::concatenation);
}

const Expr* ExpressionParser::concatenation() {
  const int line = now().line;
  Parts parts = {product()};
  while (take_operator("~")) parts.push_back(product());
  return parts.size() == 1 ? parts.front() : node(ExprKind::kConcat, line, parts);
}

const Expr* ExpressionParser::product() {
  static constexpr Operator kOperators[] = {
      {"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}};
  return binary(kOperators, &ExpressionParser::power);
}

const Expr* ExpressionParser::power() {
  static constexpr Operator kOperators[] = {{"**", BinaryOp::kPower}};
  return binary(kOperators, &ExpressionParser::unary);
}

const Expr* ExpressionParser::unary() { return unary(true); }

const Expr* ExpressionParser::unary(bool with_filters) {
  const int line = now().line;
  const Expr* out = nullptr;
  if (is_operator(now(), "-") || is_operator(now(), "+")) {
    const Nested nested(box_);
    const ExprKind kind = take().text == "-" ? ExprKind::kNegative : ExprKind::kPositive;
    out = node(kind, line, {unary(false)});
  } else {
    out = primary();
  }
  out = postfix(out);
  return with_filters ? filters(out) : out;
}

const Expr* ExpressionParser::primary() {
  const Nested nested(box_);
  const Token token = now();
  switch (token.kind) {
    case TokenKind::kName:
      take();
      return name_or_constant(token);
    case TokenKind::kString:
      return strings();
    case TokenKind::kInteger:
      take();
      return constant(integer(token.text), token.line);
    case TokenKind::kFloat:
      take();
      return constant(real(token.text), token.line);
    default:
      break;
  }
  if (take_operator("(")) {
    const Expr* inner = tuple(true, {}, true);
    expect_operator(")");
    return inner;
  }
  if (take_operator("[")) return list(token.line);
  if (take_operator("{")) return dict(token.line);
  unexpected("an expression");
}

const Expr* ExpressionParser::name_or_constant(const Token& token) {
  if (token.text == "true" || token.text == "True") return constant(Value::from(true), token.line);
  if (token.text == "false" || token.text == "False") return constant(Value::from(false), token.line);
  if (token.text == "none" || token.text == "None") return constant(Value::none(), token.line);
  return load(token.text, token.line);
}

const Expr* ExpressionParser::strings() {
  const Token first = take();
  if (now().kind != TokenKind::kString) return constant(text_constant(first.text), first.line);
  std::string joined(first.text);
  while (now().kind == TokenKind::kString) joined += take().text;
  return constant(text_constant(box_.copy(joined)), first.line);
}

Value ExpressionParser::integer(std::string_view token) {
  std::string digits;
  std::copy_if(token.begin(), token.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    if (base != 10) digits.erase(0, 2);
  }
  return make_integer(box_, BigInt::parse(digits, base));
}

Value ExpressionParser::real(std::string_view token) {
  std::string digits;
  std::copy_if(token.begin(), token.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
  return Value::from(std::strtod(digits.c_str(), nullptr));
}

const Expr* ExpressionParser::list(int line) {
  Parts parts;
  while (!is_operator(now(), "]")) {
    if (!parts.empty()) expect_operator(",");
    if (is_operator(now(), "]")) break;
    parts.push_back(expression());
  }
  take();
  return node(ExprKind::kList, line, parts);
}

const Expr* ExpressionParser::dict(int line) {
  Parts parts;
  while (!is_operator(now(), "}")) {
    if (!parts.empty()) expect_operator(",");
    if (is_operator(now(), "}")) break;
    parts.push_back(expression());
    expect_operator(":");
    parts.push_back(expression());
  }
  take();
  return node(ExprKind::kDict, line, parts);
}

const Expr* ExpressionParser::postfix(const Expr* value) {
  while (true) {
    if (is_operator(now(), ".") || is_operator(now(), "[")) {
      value = subscript(value);
    } else if (is_operator(now(), "(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

const Expr* ExpressionParser::filters(const Expr* value) {
  while (true) {
    if (take_operator("|")) {
      value = one_filter(value);
    } else if (is_name(now(), "is")) {
      value = one_test(value);
    } else if (value && is_operator(now(), "(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

const Expr* ExpressionParser::subscript(const Expr* value) {
  const Token token = take();
  if (token.text == ".") {
    const Token attribute = take();
    if (attribute.kind == TokenKind::kInteger) {
      return node(ExprKind::kItem, token.line, {value, constant(integer(attribute.text), token.line)});
    }
    if (attribute.kind != TokenKind::kName) syntax_error("expected a name or an integer behind '.'");
    Expr* out = node(ExprKind::kAttribute, token.line, {value});
    out->text = attribute.text;
    return out;
  }
  Parts keys;
  while (!is_operator(now(), "]")) {
    if (!keys.empty()) expect_operator(",");
    keys.push_back(subscripted());
  }
  take();
  const bool sliced = std::any_of(keys.begin(), keys.end(), [](const Expr* k) { return k->kind == ExprKind::kSlice; });
  if (keys.size() > 1 && sliced) syntax_error("a slice beside another subscript");
  const Expr* key = keys.size() == 1 ? keys.front() : node(ExprKind::kTuple, token.line, keys);
  return node(ExprKind::kItem, token.line, {value, key});
}

const Expr* ExpressionParser::subscripted() {
  const int line = now().line;
  Parts parts(3, nullptr);
  size_t colons = 0;
  const auto ends = [&] { return is_operator(now(), "]") || is_operator(now(), ","); };
  while (!ends()) {
    if (take_operator(":")) {
      if (++colons > 2) syntax_error("a slice has at most three parts");
    } else if (parts[colons]) {
      unexpected("']'");
    } else {
      parts[colons] = expression();
    }
  }
  if (colons == 0) {
    if (!parts[0]) unexpected("an expression");
    return parts[0];
  }
  return node(ExprKind::kSlice, line, parts);
}

const Expr* ExpressionParser::call(const Expr* callee) {
  const int line = now().line;
  Expr* out = node(ExprKind::kCall, line, {callee});
  out->args = call_args();
  return out;
}

const CallArgs* ExpressionParser::call_args() {
  expect_operator("(");
  CallArgs* out = box_.make<CallArgs>();
  Parts positional;
  std::vector<NamedExpr> named;
  bool first = true;
  while (!is_operator(now(), ")")) {
    if (!first) {
      expect_operator(",");
      if (is_operator(now(), ")")) break;
    }
    first = false;
    if (take_operator("*")) {
      if (out->star || out->star_star) syntax_error("invalid call: a second '*'");
      out->star = expression();
    } else if (take_operator("**")) {
      if (out->star_star) syntax_error("invalid call: a second '**'");
      out->star_star = expression();
    } else if (now().kind == TokenKind::kName && is_operator(ahead(), "=")) {
      if (out->star_star) syntax_error("invalid call: an argument behind '**'");
      const std::string_view name = take().text;
      take();
      named.push_back({name, expression()});
    } else {
      if (out->star || out->star_star || !named.empty()) {
        syntax_error("invalid call: a positional argument behind a named one");
      }
      positional.push_back(expression());
    }
  }
  take();
  out->positional = keep(positional);
  out->named = keep(named);
  return out;
}

const CallArgs* ExpressionParser::no_args() {
  static const CallArgs none;
  return &none;
}

std::string_view ExpressionParser::dotted_name() {
  const std::string_view name = expect_name();
  if (is_operator(now(), ".")) unsupported(cat("filter or test '", name, ".'"));
  return name;
}

void ExpressionParser::unknown(std::string_view kind, std::string_view name) {
  if (soft_ == 0) unknown_.push_back({Errc::kCorruptFile, cat("no ", kind, " named '", name, "'"), now().line});
}

const Expr* ExpressionParser::one_filter(const Expr* value) {
  Expr* out = node(ExprKind::kFilter, now().line, {value});
  out->text = dotted_name();
  out->filter = find_filter(out->text);
  if (const std::string_view why = why_no_filter(out->text); !why.empty()) {
    unsupported(cat("filter '", out->text, "': ", why));
  }
  if (!out->filter) unknown("filter", out->text);
  out->args = is_operator(now(), "(") ? call_args() : no_args();
  return out;
}

bool ExpressionParser::test_argument_follows() const {
  switch (now().kind) {
    case TokenKind::kName:
      return !is_name(now(), "else") && !is_name(now(), "or") && !is_name(now(), "and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kOperator:
      return now().text == "[" || now().text == "{";
    default:
      return false;
  }
}

const Expr* ExpressionParser::one_test(const Expr* value) {
  const int line = take().line;
  const bool negated = take_name("not");
  Expr* out = node(ExprKind::kTest, line, {value});
  out->text = dotted_name();
  out->test = find_test(out->text);
  if (!out->test) unknown("test", out->text);
  if (is_operator(now(), "(")) {
    out->args = call_args();
  } else if (test_argument_follows()) {
    if (is_name(now(), "is")) syntax_error("tests cannot be chained with 'is'");
    CallArgs* args = box_.make<CallArgs>();
    args->positional = keep(Parts{postfix(primary())});
    out->args = args;
  } else {
    out->args = no_args();
  }
  return negated ? node(ExprKind::kNot, line, {out}) : out;
}

}  // namespace helios::jinja
