// Recursive descent over the expression's bytes; what is not regular, or not built, is refused where it begins.
#include "coordinator/grammar/regex_syntax.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "coordinator/grammar/grammar_tree.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios::grammar {
namespace {

using Kind = RegexSyntax::Kind;

class RegexParser {
 public:
  RegexParser(std::string_view pattern, int max_depth) : text_(pattern), depth_left_(max_depth) {}

  Result<RegexSyntax> parse() {
    if (!valid_utf8(text_)) return Error{Errc::kInvalidArgument, "the expression is not valid UTF-8"};
    RegexSyntax all = alternatives();
    if (!failed() && at_ < text_.size()) fail("unmatched )");
    if (failed()) return Error{Errc::kInvalidArgument, error_};
    return all;
  }

 private:
  bool failed() const { return !error_.empty(); }
  void fail(std::string what) {
    if (failed()) return;
    error_ = "regex: " + std::move(what) + " at offset " + std::to_string(at_);
    at_ = text_.size();
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  uint32_t take_code_point() {
    const Utf8Step step = next_utf8(text_.substr(at_));
    at_ += step.size;
    return step.code_point;
  }

  RegexSyntax alternatives() {
    RegexSyntax alt{.kind = Kind::kAlt, .offset = at_};
    if (--depth_left_ < 0) fail("groups are nested too deeply");
    do {
      alt.children.push_back(sequence());
    } while (!failed() && take("|"));
    ++depth_left_;
    return alt.children.size() == 1 ? std::move(alt.children[0]) : std::move(alt);
  }

  RegexSyntax sequence() {
    RegexSyntax cat{.kind = Kind::kCat, .offset = at_};
    while (more() && peek() != '|' && peek() != ')') {
      RegexSyntax piece = atom();
      if (failed()) break;
      quantify(&piece);
      cat.children.push_back(std::move(piece));
    }
    return cat;
  }

  RegexSyntax of_class(size_t offset, CodePointSet set) {
    return {.kind = Kind::kClass, .offset = offset, .set = std::move(set)};
  }

  RegexSyntax atom() {
    const size_t offset = at_;
    switch (peek()) {
      case '(':
        return group();
      case '[':
        return of_class(offset, bracket());
      case '.':
        ++at_;
        return of_class(offset, dot_class());
      case '^':
        ++at_;
        return {.kind = Kind::kBegin, .offset = offset};
      case '$':
        ++at_;
        return {.kind = Kind::kEnd, .offset = offset};
      case '*':
      case '+':
      case '?':
        fail("nothing to repeat");
        return {};
      case '\\':
        return of_class(offset, escape(false));
      default: {
        if (peek() == '{' && bounds()) {
          at_ = offset;
          fail("nothing to repeat");
          return {};
        }
        const uint32_t c = take_code_point();
        return of_class(offset, {{c, c}});
      }
    }
  }

  RegexSyntax group() {
    ++at_;
    if (take("?")) {
      if (take("P<") || (text_.substr(at_).starts_with("<") && !text_.substr(at_).starts_with("<=") &&
                         !text_.substr(at_).starts_with("<!") && take("<"))) {
        const size_t close = text_.find('>', at_);
        if (close == std::string_view::npos || close == at_) {
          fail("group name without an end");
          return {};
        }
        at_ = close + 1;
      } else if (!take(":")) {
        const std::string_view rest = text_.substr(at_);
        if (rest.starts_with("=") || rest.starts_with("!"))
          fail("look-ahead is not supported");
        else if (rest.starts_with("<"))
          fail("look-behind is not supported");
        else if (rest.starts_with(">"))
          fail("atomic groups are not supported");
        else
          fail("inline flags and other (? groups are not supported");
        return {};
      }
    }
    RegexSyntax inside = alternatives();
    if (!failed() && !take(")")) fail("missing )");
    return inside;
  }

  // {n}, {n,} or {n,m} at the present place; else nothing, and nothing is read.
  std::optional<std::pair<uint32_t, uint32_t>> bounds() {
    const size_t begin = at_;
    const auto number = [&]() -> std::optional<uint32_t> {
      std::optional<uint64_t> value;
      for (; more() && peek() >= '0' && peek() <= '9'; ++at_) {
        value = value.value_or(0) * 10 + static_cast<uint64_t>(peek() - '0');
        if (*value > 1'000'000'000) value = 1'000'000'000;
      }
      return value ? std::optional<uint32_t>(static_cast<uint32_t>(*value)) : std::nullopt;
    };
    std::optional<std::pair<uint32_t, uint32_t>> found;
    if (take("{")) {
      if (const auto min = number()) {
        if (take("}")) {
          found.emplace(*min, *min);
        } else if (take(",")) {
          const auto max = number();
          if (take("}")) found.emplace(*min, max.value_or(kUnbounded));
        }
      }
    }
    if (!found) at_ = begin;
    return found;
  }

  void quantify(RegexSyntax* piece) {
    while (more() && !failed()) {
      const size_t offset = at_;
      uint32_t min = 0, max = kUnbounded;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (peek() == '{') {
        const auto range = bounds();
        if (!range) return;
        std::tie(min, max) = *range;
        if (min > max) {
          at_ = offset;
          fail("a repetition with its bounds out of order");
        }
      } else if (!take("*")) {
        return;
      }
      if (piece->kind == Kind::kBegin || piece->kind == Kind::kEnd) {
        at_ = offset;
        fail("a repeated anchor is not supported");
      }
      if (!take("?") && take("+")) {
        at_ = offset;
        fail("possessive repetition is not supported");
      }
      if (more() && (peek() == '*' || peek() == '+' || peek() == '?')) fail("a repeated repetition");
      RegexSyntax repeat{.kind = Kind::kRepeat, .offset = offset, .min = min, .max = max};
      repeat.children.push_back(std::move(*piece));
      *piece = std::move(repeat);
      if (more() && peek() == '{' && bounds()) fail("a repeated repetition");
      return;
    }
  }

  std::optional<uint32_t> hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (!more()) return std::nullopt;
      const char c = peek();
      if (c >= '0' && c <= '9')
        value = 16 * value + static_cast<uint32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = 16 * value + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      else
        return std::nullopt;
    }
    return value;
  }

  CodePointSet hex_escape(char letter) {
    std::optional<uint32_t> value;
    if (letter == 'x') {
      value = hex(2);
    } else if (take("{")) {
      const size_t close = text_.find('}', at_);
      if (close != std::string_view::npos && close > at_ && close - at_ <= 6) value = hex(close - at_);
      if (!take("}")) value.reset();
    } else {
      value = hex(4);
      if (value && *value >= 0xD800 && *value <= 0xDBFF && take("\\u")) {
        const auto low = hex(4);
        value = low && *low >= 0xDC00 && *low <= 0xDFFF
                    ? std::optional<uint32_t>(0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00))
                    : std::nullopt;
      }
    }
    if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) {
      fail("an escape that is no character");
      return {};
    }
    return {{*value, *value}};
  }

  CodePointSet property(bool negated) {
    const size_t close = text_.find('}', at_);
    if (!take("{") || close == std::string_view::npos) {
      fail("\\p needs {..}");
      return {};
    }
    const std::string_view name = text_.substr(at_, close - at_);
    const auto set = unicode_property(name);
    if (!set) {
      fail("Unicode property " + std::string(name) + " is not supported");
      return {};
    }
    at_ = close + 1;
    return negated ? set->complement() : *set;
  }

  // After a backslash; in_bracket: inside [..], where \b is a backspace.
  CodePointSet escape(bool in_bracket) {
    ++at_;
    if (!more()) {
      fail("a backslash at the end");
      return {};
    }
    const size_t offset = at_;
    const uint32_t c = take_code_point();
    switch (c) {
      case 'd':
        return digit_class();
      case 'D':
        return digit_class().complement();
      case 'w':
        return word_class();
      case 'W':
        return word_class().complement();
      case 's':
        return space_class();
      case 'S':
        return space_class().complement();
      case 'p':
      case 'P':
        return property(c == 'P');
      case 't':
        return {{'\t', '\t'}};
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'x':
      case 'u':
        return hex_escape(static_cast<char>(c));
      default:
        break;
    }
    if (c == 'b' && in_bracket) return {{'\b', '\b'}};
    const bool digit_follows = more() && peek() >= '0' && peek() <= '9';
    if (c == '0' && !digit_follows) return {{0, 0}};
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (letter || (c >= '0' && c <= '9')) {
      at_ = offset - 1;
      if (c >= '1' && c <= '9')
        fail("back-references are not supported");
      else
        fail("the escape \\" + std::string(1, static_cast<char>(c)) + " is not supported");
      return {};
    }
    return {{c, c}};
  }

  CodePointSet bracket() {
    ++at_;
    const bool negated = take("^");
    CodePointSet set;
    while (more() && peek() != ']' && !failed()) {
      if (take("[:")) {
        fail("POSIX classes are not supported");
        return {};
      }
      bool single = false;
      const CodePointSet first = bracket_item(&single);
      if (failed()) return {};
      if (more() && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        const size_t offset = at_;
        ++at_;
        bool last_single = false;
        const CodePointSet last = bracket_item(&last_single);
        if (failed()) return {};
        if (!single || !last_single || first.ranges()[0].first > last.ranges()[0].first) {
          at_ = offset;
          fail("a range in [..] that is none");
          return {};
        }
        set.add(first.ranges()[0].first, last.ranges()[0].first);
      } else {
        set.add(first);
      }
    }
    if (!failed() && !take("]")) fail("missing ]");
    return negated ? set.complement() : set;
  }

  CodePointSet bracket_item(bool* single) {
    CodePointSet set;
    if (peek() == '\\') {
      set = escape(true);
    } else {
      const uint32_t c = take_code_point();
      set = {{c, c}};
    }
    *single = set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
    return set;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_left_;
  std::string error_;
};

}  // namespace

Result<RegexSyntax> parse_regex(std::string_view pattern, int max_depth) {
  return RegexParser(pattern, max_depth).parse();
}

}  // namespace helios::grammar
