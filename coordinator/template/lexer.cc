#include "coordinator/template/lexer.h"

#include <algorithm>
#include <optional>

#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, Sandbox& box) : source_(source), box_(box) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_until_tag();
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void syntax_error(std::string message) { throw Fault{Errc::kCorruptFile, std::move(message), line_}; }

  bool starts(std::string_view what) const { return source_.substr(at_).starts_with(what); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void push(TokenKind kind, std::string_view text) { tokens_.push_back({kind, line_, text}); }

  // Every move over the source goes through here: it counts lines and remembers whether a line begins.
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
    if (bytes > 0) line_starting_ = source_[at_ - 1] == '\n';
  }

  size_t space_bytes(size_t from) const {
    size_t at = from;
    while (at < source_.size()) {
      size_t next = at;
      if (!is_space(next_char(source_, &next))) break;
      at = next;
    }
    return at - from;
  }

  // Literal text up to the next tag, then the tag.
  void text_until_tag() {
    const size_t begin = at_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        emit_text(source_.substr(begin));
        advance(source_.size() - begin);
        return;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char second = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    emit_text(before_tag(source_.substr(begin, tag - begin), second, signed_tag ? sign : '\0'));
    advance(tag - begin + 2 + (signed_tag ? 1 : 0));
    if (second == '#') return comment();
    if (second == '{') return code(TokenKind::kPrintBegin, TokenKind::kPrintEnd, "}}");
    if (const auto opening = raw_tag(at_, "raw")) return raw(*opening);
    code(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  // White space that the tag after `text` takes: all of it with "-", that on its line before a block or comment
  // (lstrip_blocks) unless "+" says otherwise.
  std::string_view before_tag(std::string_view text, char second, char sign) const {
    if (sign == '-') return strip(text, false, true);
    if (sign == '+' || second == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == text.npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    return strip(text.substr(line_begin), true, false).empty() ? text.substr(0, line_begin) : text;
  }

  void emit_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::kText, text);
  }

  // Behind a block or comment: all white space with "-", else one line break (trim_blocks) unless "+".
  void after_tag(char sign) {
    if (sign == '-') {
      advance(space_bytes(at_));
    } else if (sign != '+' && peek() == '\n') {
      advance(1);
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) syntax_error("missing end of comment tag");
    const char last = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(last);
  }

  struct RawTag {
    size_t end;  // behind "%}"
    char sign;
  };

  // "raw %}" or "endraw %}" at `at`, which is behind the "{%".
  std::optional<RawTag> raw_tag(size_t at, std::string_view word) const {
    at += space_bytes(at);
    if (!source_.substr(at).starts_with(word)) return std::nullopt;
    at += word.size();
    at += space_bytes(at);
    const char sign = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
    if (sign) ++at;
    if (!source_.substr(at).starts_with("%}") || (word == "raw" && sign == '+')) return std::nullopt;
    return RawTag{at + 2, sign};
  }

  void raw(const RawTag& opening) {
    advance(opening.end - at_);
    if (opening.sign == '-') advance(space_bytes(at_));
    const size_t begin = at_;
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != source_.npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool signed_tag = sign == '-' || sign == '+';
      const auto closing = raw_tag(tag + 2 + (signed_tag ? 1 : 0), "endraw");
      if (!closing) continue;
      emit_text(before_tag(source_.substr(begin, tag - begin), '%', signed_tag ? sign : '\0'));
      advance(closing->end - at_);
      after_tag(closing->sign);
      return;
    }
    syntax_error("missing end of raw directive");
  }

  void code(TokenKind begin, TokenKind end, std::string_view closing) {
    push(begin, {});
    std::string open;  // brackets that wait for their closing
    while (true) {
      advance(space_bytes(at_));
      if (at_ >= source_.size()) syntax_error(cat("unexpected end of template, expected '", closing, "'"));
      if (open.empty() && tag_end(end, closing)) return;
      if (number() || name()) continue;
      if (peek() == '"' || peek() == '\'') {
        string();
      } else {
        operation(&open);
      }
    }
  }

  bool tag_end(TokenKind end, std::string_view closing) {
    const bool plus_allowed = end == TokenKind::kBlockEnd;
    const char sign = peek() == '-' || (plus_allowed && peek() == '+') ? peek() : '\0';
    if (!source_.substr(at_ + (sign ? 1 : 0)).starts_with(closing)) return false;
    push(end, {});
    advance(2 + (sign ? 1 : 0));
    if (end == TokenKind::kBlockEnd) {
      after_tag(sign);
    } else if (sign == '-') {
      advance(space_bytes(at_));
    }
    return true;
  }

  // Digits with single underscores between them; 0 when there are none.
  template <class IsDigit>
  size_t digits(size_t from, IsDigit is_digit_of) const {
    size_t at = from;
    while (at < source_.size() &&
           (is_digit_of(source_[at]) || (source_[at] == '_' && at > from && source_[at - 1] != '_' &&
                                         at + 1 < source_.size() && is_digit_of(source_[at + 1])))) {
      ++at;
    }
    return at - from;
  }

  bool number() {
    if (!digit(peek())) return false;
    const size_t whole = digits(at_, digit);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // "x.0.1" is two subscripts
    if (!after_dot) {
      size_t length = whole;
      if (peek(length) == '.' && digit(peek(length + 1))) length += 1 + digits(at_ + length + 1, digit);
      if ((peek(length) | 0x20) == 'e') {
        const size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
        if (digit(peek(length + 1 + sign))) length += 1 + sign + digits(at_ + length + 1 + sign, digit);
      }
      if (length > whole) return take(TokenKind::kFloat, length);
    }
    const char prefix = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (prefix == 'x' || prefix == 'b' || prefix == 'o')) {
      const size_t underscore = peek(2) == '_' ? 1 : 0;
      const size_t count = digits(at_ + 2 + underscore, [prefix](char c) {
        return prefix == 'x' ? digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                             : c >= '0' && c <= (prefix == 'b' ? '1' : '7');
      });
      if (count > 0) return take(TokenKind::kInteger, 2 + underscore + count);
    }
    if (peek() == '0') return take(TokenKind::kInteger, digits(at_, [](char c) { return c == '0'; }));
    return take(TokenKind::kInteger, whole);
  }

  bool name() {
    size_t at = at_;
    if (!is_identifier_start(next_char(source_, &at))) return false;
    while (at < source_.size()) {
      size_t next = at;
      if (!is_identifier_part(next_char(source_, &next))) break;
      at = next;
    }
    return take(TokenKind::kName, at - at_);
  }

  bool take(TokenKind kind, size_t bytes) {
    push(kind, source_.substr(at_, bytes));
    advance(bytes);
    return true;
  }

  void string() {
    const char quote = peek();
    size_t end = at_ + 1;
    bool escaped = false;
    for (; end < source_.size() && source_[end] != quote; ++end) {
      if (source_[end] != '\\') continue;
      escaped = true;
      ++end;
    }
    if (end >= source_.size()) syntax_error("a string without its closing quote");
    const std::string_view body = source_.substr(at_ + 1, end - at_ - 1);
    push(TokenKind::kString, escaped ? box_.copy(unescape(body)) : body);
    advance(end + 1 - at_);
  }

  // Python's unicode-escape.
  std::string unescape(std::string_view body) {
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\') {
        out.push_back(body[i]);
        continue;
      }
      const char c = body[++i];
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t simple = kFrom.find(c); simple != kFrom.npos) {
        out.push_back(kTo[simple]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        size_t end = i;
        while (end < body.size() && end < i + 3 && body[end] >= '0' && body[end] <= '7') {
          value = value * 8 + static_cast<char32_t>(body[end++] - '0');
        }
        append_utf8(&out, value);
        i = end - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += hex_escape(body.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, &out);
      } else if (c == 'N') {
        throw Fault{Errc::kUnsupported, "a character by its name (\\N{...}) in a string", line_};
      } else {
        out.push_back('\\');
        --i;  // the character itself, which may be several bytes, is copied next
        if (++i < body.size()) out.push_back(body[i]);
      }
    }
    return out;
  }

  size_t hex_escape(std::string_view rest, size_t count, std::string* out) {
    char32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      const char c = i < rest.size() ? rest[i] : '\0';
      const char low = static_cast<char>(c | 0x20);
      if (digit(c)) {
        value = value << 4 | static_cast<char32_t>(c - '0');
      } else if (low >= 'a' && low <= 'f') {
        value = value << 4 | static_cast<char32_t>(low - 'a' + 10);
      } else {
        syntax_error("a string with a truncated \\x, \\u or \\U escape");
      }
    }
    if (value > 0x10FFFF) syntax_error("a string with an escape beyond U+10FFFF");
    if (value >= 0xD800 && value < 0xE000) {
      throw Fault{Errc::kUnsupported, "a lone surrogate in a string, which UTF-8 cannot hold", line_};
    }
    append_utf8(out, value);
    return count;
  }

  void operation(std::string* open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view two : kTwo) {
      if (starts(two)) {
        take(TokenKind::kOperator, 2);
        return;
      }
    }
    const char c = peek();
    if (kOne.find(c) == kOne.npos) {
      size_t next = at_;
      next_char(source_, &next);
      syntax_error(cat("unexpected character '", source_.substr(at_, next - at_), "'"));
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) syntax_error(cat("unexpected '", std::string(1, c), "'"));
      if (open->back() != c) {
        syntax_error(cat("unexpected '", std::string(1, c), "', expected '", std::string(1, open->back()), "'"));
      }
      open->pop_back();
    }
    take(TokenKind::kOperator, 1);
  }

  std::string_view source_;
  Sandbox& box_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source, Sandbox& box) { return Lexer(source, box).run(); }

}  // namespace helios::jinja
