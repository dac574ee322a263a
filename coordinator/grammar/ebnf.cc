// Recursive descent, one rule after the other; names are looked up at the end.
#include "coordinator/grammar/ebnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/utf8.h"

namespace helios::grammar {
namespace {

class EbnfParser {
 public:
  EbnfParser(std::string_view source, int max_depth, GrammarTree* tree)
      : text_(source), depth_left_(max_depth), tree_(tree) {}

  Result<NodeId> parse() {
    if (!valid_utf8(text_)) return Error{Errc::kInvalidArgument, "grammar: not valid UTF-8"};
    skip_space(true);
    while (more() && !failed()) {
      rule();
      skip_space(true);
    }
    for (const auto& [name, rule] : rules_)
      if (!rule.defined) fail("rule \"" + std::string(name) + "\" is used and not defined");
    if (!rules_.contains("root")) fail("there is no rule named root");
    if (failed()) return Error{Errc::kInvalidArgument, error_};
    return tree_->rule(rules_.at("root").id);
  }

 private:
  struct Rule {
    RuleId id;
    bool defined;
  };

  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool failed() const { return !error_.empty(); }
  void fail(const std::string& what) {
    if (failed()) return;
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    error_ = "grammar: line " + std::to_string(line) + ": " + what;
    at_ = text_.size();
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  void skip_space(bool lines) {
    while (more()) {
      const char c = peek();
      if (c == '#')
        while (more() && peek() != '\n') ++at_;
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        ++at_;
      else
        break;
    }
  }

  static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string_view name() {
    const size_t begin = at_;
    while (more() && name_char(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  Rule& named(std::string_view name) {
    const auto known = rules_.find(name);
    if (known != rules_.end()) return known->second;
    return rules_.emplace(name, Rule{tree_->declare_rule(), false}).first->second;
  }

  void rule() {
    const std::string_view rule_name = name();
    skip_space(false);
    if (rule_name.empty() || !take("::=")) return fail("expected a rule: name ::= ...");
    Rule& rule = named(rule_name);
    if (rule.defined) return fail("rule \"" + std::string(rule_name) + "\" is defined twice");
    rule.defined = true;
    const RuleId id = rule.id;
    skip_space(true);
    const NodeId node = alternatives(false);
    tree_->define_rule(id, node);
    skip_space(false);
    if (more() && peek() != '\n' && peek() != '\r') fail("expected the end of the rule");
  }

  NodeId alternatives(bool nested) {
    if (--depth_left_ < 0) fail("nested too deeply");
    std::vector<NodeId> ways{sequence(nested)};
    while (!failed() && take("|")) {
      skip_space(true);
      ways.push_back(sequence(nested));
    }
    ++depth_left_;
    return tree_->alt(std::move(ways));
  }

  NodeId sequence(bool nested) {
    std::vector<NodeId> parts;
    while (more() && !failed()) {
      NodeId part = 0;
      if (peek() == '"') {
        part = literal();
      } else if (peek() == '[') {
        part = bracket();
      } else if (take(".")) {
        part = tree_->code_points(CodePointSet::all());
      } else if (take("(")) {
        skip_space(true);
        part = alternatives(true);
        if (!failed() && !take(")")) fail("missing )");
      } else if (name_char(peek())) {
        part = tree_->rule(named(name()).id);
      } else {
        break;
      }
      parts.push_back(repeated(part));
      skip_space(nested);
    }
    return tree_->cat(std::move(parts));
  }

  uint32_t number() {
    uint64_t value = 0;
    const size_t begin = at_;
    for (; more() && peek() >= '0' && peek() <= '9'; ++at_)
      value = std::min<uint64_t>(10 * value + static_cast<uint64_t>(peek() - '0'), 1'000'000'000);
    if (at_ == begin) fail("expected a number of repetitions");
    return static_cast<uint32_t>(value);
  }

  NodeId repeated(NodeId part) {
    if (take("*")) return tree_->star(part);
    if (take("+")) return tree_->repeat(part, 1, kUnbounded);
    if (take("?")) return tree_->optional(part);
    if (!take("{")) return part;
    const uint32_t min = number();
    uint32_t max = min;
    if (take(",")) max = more() && peek() == '}' ? kUnbounded : number();
    if (!failed() && !take("}")) fail("missing } of a repetition");
    if (min > max) fail("a repetition with its bounds out of order");
    return tree_->repeat(part, min, max);
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = more() ? peek() : ' ';
      if (c >= '0' && c <= '9')
        value = 16 * value + static_cast<uint32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = 16 * value + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      else
        return fail("expected " + std::to_string(digits) + " hexadecimal digits"), 0;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return fail("an escape that is no character"), 0;
    return value;
  }

  uint32_t character() {
    if (!take("\\")) {
      const Utf8Step step = next_utf8(text_.substr(at_));
      at_ += step.size;
      return step.code_point;
    }
    if (!more()) return fail("a backslash at the end"), 0;
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<uint32_t>(c);
      default:
        return fail(std::string("the escape \\") + c + " is not supported"), 0;
    }
  }

  NodeId literal() {
    ++at_;
    std::string bytes;
    while (more() && peek() != '"' && peek() != '\n') append_utf8(character(), &bytes);
    if (!failed() && !take("\"")) fail("a literal without an end");
    return tree_->text(bytes);
  }

  NodeId bracket() {
    ++at_;
    const bool negated = take("^");
    CodePointSet set;
    while (more() && peek() != ']' && peek() != '\n') {
      const uint32_t first = character();
      uint32_t last = first;
      if (more() && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
        if (last < first) fail("a range in [..] that is none");
      }
      if (!failed()) set.add(first, last);
    }
    if (!failed() && !take("]")) fail("missing ]");
    return tree_->code_points(negated ? set.complement() : set);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_left_;
  GrammarTree* tree_;
  std::map<std::string_view, Rule> rules_;
  std::string error_;
};

}  // namespace

Result<NodeId> translate_ebnf(std::string_view source, int max_depth, GrammarTree* tree) {
  return EbnfParser(source, max_depth, tree).parse();
}

}  // namespace helios::grammar
