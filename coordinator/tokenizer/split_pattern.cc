// The subset of pattern syntax on which PCRE2 and Oniguruma (Ruby syntax) agree, and its spelling for PCRE2.
//
// Refused, since the engines differ: \w \b ^ $ (other definitions), && and [ in a class (set operations in one,
// literals in the other), {n}? and {n}+, inline (?i) without a colon, and whatever else is not listed here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "coordinator/tokenizer/later_unicode.h"
#include "coordinator/tokenizer/split_regex.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

constexpr int kMaxGroupDepth = 32;
constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr uint32_t kMaxRepeat = 1000;

constexpr std::string_view kSpaceRanges =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpaceRanges =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";

constexpr std::array<std::string_view, 34> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P",  "Pc", "Pd",
    "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

struct PatternRefused {
  std::string reason;
};

[[noreturn]] void refuse(std::string reason) { throw PatternRefused{std::move(reason)}; }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    alternatives(0);
    if (!rest_.empty()) refuse("unmatched )");
    return std::move(out_);
  }

 private:
  bool eat(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  uint32_t take() {
    if (rest_.empty()) refuse("pattern ends early");
    const Utf8Step step = next_utf8(rest_);
    if (step.status != Utf8Status::kComplete) refuse("pattern is not valid UTF-8");
    rest_.remove_prefix(step.size);
    return step.code_point;
  }

  void put(uint32_t code_point) { out_ += fmt::format("\\x{{{:x}}}", code_point); }

  void alternatives(int depth) {
    if (depth > kMaxGroupDepth) refuse(fmt::format("groups nest deeper than {}", kMaxGroupDepth));
    while (!rest_.empty() && rest_[0] != ')') {
      if (eat("|")) {
        out_ += '|';
        last_literal_ = 0;
      } else if (atom(depth)) {
        quantifier();
      } else if (!rest_.empty() && std::string_view("?*+{").find(rest_[0]) != std::string_view::npos) {
        refuse("a repeated look-around");
      }
    }
  }

  /// False for a look-around, which may not be repeated.
  bool atom(int depth) {
    if (eat("(")) return group(depth);
    if (eat("[")) {
      if (caseless_) refuse("a character class under (?i:");
      character_class();
      last_literal_ = 0;
      return true;
    }
    if (eat(".")) {
      out_ += '.';
      last_literal_ = 0;
      return true;
    }
    if (eat("\\")) {
      escape_outside_class();
      return true;
    }
    const uint32_t c = take();
    if (c < 0x80 && std::string_view("^$?*+{").find(static_cast<char>(c)) != std::string_view::npos) {
      refuse(fmt::format("'{}' at this place", static_cast<char>(c)));
    }
    literal(c);
    return true;
  }

  bool group(int depth) {
    last_literal_ = 0;
    const bool caseless_outside = caseless_;
    bool look_around = false;
    bool opened = false;
    for (const std::string_view kind : {"?:", "?i:", "?>", "?=", "?!", "?<=", "?<!"}) {
      if (!eat(kind)) continue;
      out_ += fmt::format("({}", kind);
      caseless_ = caseless_ || kind == "?i:";
      look_around = kind.ends_with('=') || kind.ends_with('!');
      opened = true;
      break;
    }
    if (!opened) {
      if (rest_.starts_with("?")) refuse("a (? group other than (?: (?i: (?> (?= (?! (?<= (?<!");
      out_ += "(?:";  // captures are never read
    }
    alternatives(depth + 1);
    if (!eat(")")) refuse("missing )");
    out_ += ')';
    caseless_ = caseless_outside;
    last_literal_ = 0;
    return !look_around;
  }

  void literal(uint32_t c) {
    if (caseless_) {
      if (c >= 0x80) refuse("a non-ASCII character under (?i:");
      const char lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      // Oniguruma also folds ligatures and sharp s, one character for two.
      for (const std::string_view pair : {"ff", "fi", "fl", "ss", "st"}) {
        if (last_literal_ == pair[0] && lower == pair[1]) refuse(fmt::format("'{}' under (?i:", pair));
      }
      last_literal_ = lower;
    }
    put(c);
  }

  void quantifier() {
    if (rest_.empty()) return;
    if (eat("{")) {
      interval();
    } else if (std::string_view("?*+").find(rest_[0]) != std::string_view::npos) {
      out_ += static_cast<char>(take());
      if (!rest_.empty() && (rest_[0] == '?' || rest_[0] == '+')) out_ += static_cast<char>(take());
    } else {
      return;
    }
    if (!rest_.empty() && std::string_view("?*+{").find(rest_[0]) != std::string_view::npos) {
      refuse("a repeated quantifier");
    }
  }

  std::optional<uint32_t> number() {
    std::optional<uint32_t> value;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = value.value_or(0) * 10 + (take() - '0');
      if (*value > kMaxRepeat) refuse(fmt::format("a repeat count above {}", kMaxRepeat));
    }
    return value;
  }

  void interval() {
    const std::optional<uint32_t> low = number();
    if (!low) refuse("'{' that begins no {n}, {n,} or {n,m}");
    out_ += fmt::format("{{{}", *low);
    if (eat(",")) {
      out_ += ',';
      if (const std::optional<uint32_t> high = number()) {
        if (*high < *low) refuse("an interval that runs backwards");
        out_ += fmt::format("{}", *high);
      }
    }
    if (!eat("}")) refuse("'{' that begins no {n}, {n,} or {n,m}");
    out_ += '}';
  }

  struct Escape {
    std::optional<uint32_t> code_point;  // a single character
    std::string ranges;                  // or the inside of a class
    bool negated = false;                // of which the complement is meant
  };

  Escape escape() {
    const uint32_t c = take();
    switch (c) {
      case 'r':
        return {'\r'};
      case 'n':
        return {'\n'};
      case 't':
        return {'\t'};
      case 'f':
        return {'\f'};
      case 's':
        return {std::nullopt, std::string(kSpaceRanges)};
      case 'S':
        return {std::nullopt, std::string(kNonSpaceRanges)};
      case 'd':
        return {std::nullopt, category_ranges("Nd")};
      case 'D':
        return {std::nullopt, category_ranges("Nd"), true};
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'x':
        return {hexadecimal_in_braces()};
      case 'u':
        return {hexadecimal(4)};
      default:
        break;
    }
    const bool punctuation =
        c < 0x80 && c > 0x20 && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !(c >= '0' && c <= '9');
    if (!punctuation && c != ' ') refuse(fmt::format("the escape \\{}", c < 0x80 ? std::string(1, c) : "?"));
    return {c};
  }

  uint32_t hexadecimal(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = take();
      const uint32_t lower = c | 0x20;
      if (c >= '0' && c <= '9') {
        value = value << 4 | (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value << 4 | (lower - 'a' + 10);
      } else {
        refuse("a malformed hexadecimal escape");
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) refuse("an escape that is no code point");
    return value;
  }

  uint32_t hexadecimal_in_braces() {
    if (!eat("{")) refuse("\\x without braces");
    const size_t digits = rest_.find('}');
    if (digits == std::string_view::npos || digits == 0 || digits > 6) refuse("a malformed hexadecimal escape");
    const uint32_t value = hexadecimal(static_cast<int>(digits));
    eat("}");
    return value;
  }

  Escape property(bool negated) {
    if (!eat("{")) refuse("\\p without braces");
    if (eat("^")) negated = !negated;
    const size_t length = rest_.find('}');
    const std::string_view name = rest_.substr(0, length);
    if (length == std::string_view::npos ||
        std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
      refuse("a property that is no general category");
    }
    rest_.remove_prefix(length + 1);
    return {std::nullopt, category_ranges(name), negated};
  }

  // PCRE2's tables are of an older Unicode than the reference's: what came since is added.
  static std::string category_ranges(std::string_view name) {
    std::string ranges = fmt::format("\\p{{{}}}", name);
    for (const LaterRange& range : kLaterUnicode) {
      if (std::string_view(range.category).starts_with(name)) {
        ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", range.first, range.last);
      }
    }
    return ranges;
  }

  void escape_outside_class() {
    const Escape escaped = escape();
    if (escaped.code_point) return literal(*escaped.code_point);
    if (caseless_) refuse("a character class under (?i:");
    last_literal_ = 0;
    out_ += fmt::format("[{}{}]", escaped.negated ? "^" : "", escaped.ranges);
  }

  void character_class() {
    out_ += eat("^") ? "[^" : "[";
    if (rest_.starts_with("]")) refuse("an empty character class");
    for (bool first = true; !eat("]"); first = false) {
      if (rest_.starts_with("&&")) refuse("&& in a character class");
      if (rest_.starts_with("[")) refuse("[ in a character class");
      if (rest_.starts_with("-") && !first && !rest_.starts_with("-]"))
        refuse("a bare - inside a character class");
      const std::optional<uint32_t> low = class_item();
      if (!low || !rest_.starts_with("-") || rest_.starts_with("-]")) continue;
      eat("-");
      if (rest_.starts_with("[")) refuse("[ in a character class");
      const std::optional<uint32_t> high = class_item(/*range_end=*/true);
      if (!high || *high < *low) refuse("a malformed range in a character class");
    }
    out_ += ']';
  }

  /// One character, or nothing when the item was a class of its own.
  std::optional<uint32_t> class_item(bool range_end = false) {
    if (range_end) out_ += '-';
    if (!eat("\\")) {
      const uint32_t c = take();
      put(c);
      return c;
    }
    const Escape escaped = escape();
    if (escaped.code_point) {
      put(*escaped.code_point);
      return escaped.code_point;
    }
    if (escaped.negated) refuse("a negated property inside a character class");
    out_ += escaped.ranges;
    return std::nullopt;
  }

  std::string_view rest_;
  std::string out_;
  bool caseless_ = false;
  char last_literal_ = 0;  // under (?i:, for pairs that fold into one character
};

}  // namespace

Result<std::string> translate_split_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{Errc::kUnsupported,
                 fmt::format("pattern of {} bytes, more than {}", pattern.size(), kMaxPatternBytes)};
  }
  try {
    return Translator(pattern).run();
  } catch (const PatternRefused& refused) {
    return Error{Errc::kUnsupported, fmt::format("pattern uses {}, which cannot be matched exactly", refused.reason)};
  }
}

}  // namespace helios
