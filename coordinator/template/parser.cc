#include "coordinator/template/parser.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "coordinator/template/expression_parser.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

constexpr size_t kMaxSourceBytes = 4u << 20;
constexpr int kMaxNesting = 200;

constexpr RenderLimits parse_limits() {
  RenderLimits limits;
  limits.max_output_bytes = kMaxSourceBytes;
  limits.max_memory_bytes = 512u << 20;
  limits.max_depth = kMaxNesting;
  return limits;
}

class Parser : private ExpressionParser {
 public:
  explicit Parser(SyntaxTree* tree) : ExpressionParser(tree) {}

  void run() {
    tree_.body = statements({});
    if (!unknown_.empty()) throw unknown_.front();
  }

 private:
  // Up to (and over the "{%" of) one of the tags `until`; its name is the current token then. Empty `until`: to the
  // end.
  Block statements(std::initializer_list<std::string_view> until) {
    const Nested nested(box_);
    std::vector<const Statement*> out;
    while (!at_end()) {
      const Token& token = now();
      if (token.kind == TokenKind::kText) {
        Statement* text = statement(StatementKind::kText);
        text->text = take().text;
        out.push_back(text);
      } else if (token.kind == TokenKind::kPrintBegin) {
        take();
        print(&out, TokenKind::kPrintEnd);
        if (now().kind != TokenKind::kPrintEnd) unexpected("'}}'");
        take();
      } else {
        take();  // {%
        if (now().kind != TokenKind::kName) unexpected("a tag");
        if (std::find(until.begin(), until.end(), now().text) != until.end()) return keep(out);
        tag(&out, until);
      }
    }
    if (until.size() > 0) {
      std::string names;
      for (const std::string_view name : until) names += cat(names.empty() ? "'" : " or '", name, "'");
      syntax_error(cat("unexpected end of template, expected ", names));
    }
    return keep(out);
  }

  Statement* statement(StatementKind kind) {
    Statement* out = box_.make<Statement>(Statement{kind});
    out->line = now().line;
    return out;
  }

  void print(std::vector<const Statement*>* out, TokenKind end) {
    Statement* s = statement(StatementKind::kPrint);
    s->expr = end == TokenKind::kPrintEnd ? tuple() : expression();
    out->push_back(s);
  }

  void tag(std::vector<const Statement*>* out, std::initializer_list<std::string_view> until) {
    const std::string_view name = now().text;
    const auto end_block = [&](const Statement* s) {
      expect_block_end();
      out->push_back(s);
    };
    if (name == "if") return end_block(if_block());
    if (name == "for") return end_block(for_block());
    if (name == "set") return end_block(set_block());
    if (name == "macro") return end_block(macro_block());
    if (name == "call") return end_block(call_block());
    if (name == "filter") return end_block(filter_block());
    if (name == "with") return end_block(with_block());
    if (name == "generation" || name == "block" || name == "autoescape") return end_block(scope_block(name));
    if (name == "print") {
      take();
      while (now().kind != TokenKind::kBlockEnd) {
        print(out, TokenKind::kBlockEnd);
        if (!take_operator(",") && now().kind != TokenKind::kBlockEnd) unexpected("',' or '%}'");
      }
      return expect_block_end();
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) syntax_error(cat("'", name, "' outside of a loop"));
      const Statement* s = statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
      take();
      return end_block(s);
    }
    for (const std::string_view other : {"include", "import", "from", "extends", "trans", "debug"}) {
      if (name == other) unsupported(cat("tag '", name, "': a chat template stands alone"));
    }
    std::string message = cat("unknown tag '", name.substr(0, 40), "'");
    if (until.size() > 0) message += cat("; the innermost block expects '", *until.begin(), "'");
    syntax_error(message);
  }

  const Statement* if_block() {
    Statement* first = statement(StatementKind::kIf);
    Statement* current = first;
    ++soft_;
    take();
    for (int chain = 0;; ++chain) {
      current->expr = tuple(false);
      expect_block_end();
      current->body = statements({"endif", "elif", "else"});
      const Token token = take();
      if (token.text == "endif") break;
      if (token.text == "else") {
        expect_block_end();
        current->other = statements({"endif"});
        take();
        break;
      }
      Statement* next = statement(StatementKind::kIf);
      current->other = keep(std::vector<const Statement*>{next});
      current = next;
    }
    --soft_;
    return first;
  }

  const Statement* for_block() {
    Statement* s = statement(StatementKind::kFor);
    take();
    s->target = assignment_target(false, "in");
    if (!take_name("in")) unexpected("'in'");
    s->expr = tuple(false, "recursive");
    if (take_name("if")) s->condition = expression();
    s->recursive = take_name("recursive");
    expect_block_end();
    const int soft = std::exchange(soft_, 0);
    ++loops_;
    s->body = statements({"endfor", "else"});
    --loops_;
    if (take().text == "else") {
      expect_block_end();
      s->other = statements({"endfor"});
      take();
    }
    soft_ = soft;
    return s;
  }

  const Statement* set_block() {
    Statement* s = statement(StatementKind::kSet);
    take();
    s->target = assignment_target(true, {});
    if (take_operator("=")) {
      s->expr = tuple();
      return s;
    }
    s->kind = StatementKind::kSetBlock;
    if (is_operator(now(), "|")) s->expr = filters(nullptr);
    expect_block_end();
    s->body = inner_block("endset");
    return s;
  }

  // A block whose body is a function of its own: no loop control crosses it.
  Block inner_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const int soft = std::exchange(soft_, 0);
    const Block body = statements({end});
    take();
    loops_ = loops;
    soft_ = soft;
    return body;
  }

  std::span<const Parameter> signature() {
    expect_operator("(");
    std::vector<Parameter> out;
    while (!is_operator(now(), ")")) {
      if (!out.empty()) expect_operator(",");
      const std::string_view name = assignable_name();
      const Expr* default_value = nullptr;
      if (take_operator("=")) {
        default_value = expression();
      } else if (!out.empty() && out.back().default_value) {
        syntax_error("a parameter without a default follows one with a default");
      }
      out.push_back({id_of(name), name, default_value});
    }
    take();
    return keep(out);
  }

  MacroNode* macro_body(std::string_view name, std::span<const Parameter> parameters, std::string_view end) {
    MacroNode* macro = box_.make<MacroNode>(MacroNode{name, parameters, {}});
    const bool caller = std::exchange(uses_caller_, false);
    const bool kwargs = std::exchange(uses_kwargs_, false);
    const bool varargs = std::exchange(uses_varargs_, false);
    macro->body = inner_block(end);
    const auto is_parameter = [&](std::string_view word) {
      return std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& p) { return p.text == word; });
    };
    macro->uses_caller = uses_caller_ && !is_parameter("caller");
    macro->uses_kwargs = uses_kwargs_ && !is_parameter("kwargs");
    macro->uses_varargs = uses_varargs_ && !is_parameter("varargs");
    uses_caller_ |= caller;
    uses_kwargs_ |= kwargs;
    uses_varargs_ |= varargs;
    return macro;
  }

  const Statement* macro_block() {
    Statement* s = statement(StatementKind::kMacro);
    take();
    const std::string_view name = assignable_name();
    s->name = id_of(name);
    const auto parameters = signature();
    expect_block_end();
    s->macro = macro_body(name, parameters, "endmacro");
    return s;
  }

  const Statement* call_block() {
    Statement* s = statement(StatementKind::kCallBlock);
    take();
    std::span<const Parameter> parameters;
    if (is_operator(now(), "(")) parameters = signature();
    s->expr = expression();
    if (s->expr->kind != ExprKind::kCall) syntax_error("expected a call");
    expect_block_end();
    s->macro = macro_body("caller", parameters, "endcall");
    return s;
  }

  const Statement* filter_block() {
    Statement* s = statement(StatementKind::kFilterBlock);
    take();
    s->expr = filters(one_filter(nullptr));
    expect_block_end();
    s->body = inner_block("endfilter");
    return s;
  }

  const Statement* with_block() {
    Statement* s = statement(StatementKind::kWith);
    take();
    Parts targets, values;
    while (now().kind != TokenKind::kBlockEnd) {
      if (!targets.empty()) expect_operator(",");
      targets.push_back(assignment_target(false, {}));
      expect_operator("=");
      values.push_back(expression());
    }
    expect_block_end();
    s->targets = keep(targets);
    s->values = keep(values);
    s->body = statements({"endwith"});
    take();
    return s;
  }

  const Statement* scope_block(std::string_view name) {
    Statement* s = statement(StatementKind::kScope);
    take();
    if (name == "block") {
      expect_name();
      while (take_name("scoped") || take_name("required")) {
      }
    } else if (name == "autoescape") {
      if (!take_name("false") && !take_name("False")) unsupported("autoescape: a prompt is not HTML");
    }
    expect_block_end();
    s->body = inner_block(name == "block" ? "endblock" : name == "autoescape" ? "endautoescape" : "endgeneration");
    if (name == "block" && now().kind == TokenKind::kName) take();
    return s;
  }

  // --- targets ---

  std::string_view assignable_name() {
    const std::string_view name = expect_name();
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
      if (name == word) syntax_error(cat("cannot assign to '", name, "'"));
    }
    return name;
  }

  const Expr* assignment_target(bool with_namespace, std::string_view end_word) {
    const int line = now().line;
    Parts parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty() && (is_name(now(), end_word) || is_operator(now(), "=") || is_operator(now(), ")"))) break;
      parts.push_back(single_target(with_namespace));
      if (!take_operator(",")) break;
      is_tuple = true;
    }
    return is_tuple ? node(ExprKind::kTuple, line, parts) : parts.front();
  }

  const Expr* single_target(bool with_namespace) {
    const Nested nested(box_);
    if (take_operator("(")) {
      const Expr* inner = assignment_target(with_namespace, {});
      expect_operator(")");
      return inner;
    }
    const int line = now().line;
    const std::string_view name = assignable_name();
    Expr* out = node(ExprKind::kName, line);
    out->name = id_of(name);
    out->text = name;
    if (with_namespace && take_operator(".")) {
      out->kind = ExprKind::kNamespaceAttribute;
      out->text = expect_name();
    }
    return out;
  }

  int loops_ = 0;
};

}  // namespace

std::unique_ptr<SyntaxTree> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw Fault{Errc::kTooLarge, cat("the template has more than ", std::to_string(kMaxSourceBytes), " bytes")};
  }
  if (!is_valid_utf8(source)) throw Fault{Errc::kCorruptFile, "the template is not valid UTF-8"};
  auto tree = std::make_unique<SyntaxTree>();
  tree->source = normalized_source(source);
  tree->box = std::make_unique<Sandbox>(parse_limits());
  Parser(tree.get()).run();
  return tree;
}

}  // namespace helios::jinja
