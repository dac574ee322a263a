// str.format and the % operator of text.
//
// Fields reach into values through the sandbox's own lookup, so a format string sees what a template may see and no
// more. Thread: the one that renders.
#include <algorithm>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/format_spec.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class BraceFormatter {
 public:
  BraceFormatter(Evaluator& ev, const Args& args) : ev_(ev), args_(args) {}

  void format(std::string_view text, TextBuilder* out, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    for (size_t at = 0; at < text.size();) {
      const size_t brace = text.find_first_of("{}", at);
      out->append(text.substr(at, brace - at));
      if (brace == text.npos) return;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out->append(text[brace]);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') fail("Single '}' encountered in format string");
      const size_t end = closing(text, brace);
      field(text.substr(brace + 1, end - brace - 1), out, depth);
      at = end + 1;
    }
  }

 private:
  static size_t closing(std::string_view text, size_t open) {
    int depth = 0;
    for (size_t at = open; at < text.size(); ++at) {
      if (text[at] == '{') ++depth;
      if (text[at] == '}' && --depth == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  void field(std::string_view text, TextBuilder* out, int depth) {
    ev_.box().step();
    size_t end = 0;  // of the name; a bracket may hold anything
    for (bool bracket = false; end < text.size(); ++end) {
      if (text[end] == '[') bracket = true;
      if (text[end] == ']') bracket = false;
      if (!bracket && (text[end] == ':' || text[end] == '!')) break;
    }
    Value value = lookup(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with('!')) {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) fail("expected ':' after conversion specifier");
      value = convert(value, text[1]);
      text.remove_prefix(2);
    }
    std::string_view spec = text.empty() ? text : text.substr(1);
    if (spec.find('{') != spec.npos) {
      TextBuilder inner(ev_.box());
      format(spec, &inner, depth + 1);
      spec = inner.view();
    }
    if (!spec.empty() && !value.is_number() && !value.is_text()) {
      fail(cat("unsupported format string passed to ", type_name(value), ".__format__"));
    }
    out->append(spec.empty() ? std::string(ev_.str(value)) : format_value(ev_.box(), value, parse_format_spec(spec)));
  }

  Value lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    Value value;
    if (first.empty() || all_digits(first)) {
      size_t index = next_;
      const Numbering numbering = first.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kNone && numbering_ != numbering) {
        fail("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = numbering;
      if (first.empty()) {
        ++next_;
      } else {
        index = first.size() > 6 ? SIZE_MAX : static_cast<size_t>(std::stoul(std::string(first)));
      }
      if (index >= args_.positional.size()) fail("Replacement index out of range for positional args tuple");
      value = args_.positional[index];
    } else {
      const auto found = std::find_if(args_.named.begin(), args_.named.end(),
                                      [&](const NamedValue& named) { return named.name == first; });
      if (found == args_.named.end()) fail(cat("KeyError: '", first.substr(0, 80), "'"));
      value = found->value;
    }
    name.remove_prefix(first_end);
    while (!name.empty()) value = step_into(value, &name);
    return value;
  }

  Value step_into(Value value, std::string_view* name) {
    if (name->front() == '.') {
      const size_t end = std::min(name->find_first_of(".[", 1), name->size());
      const std::string_view attribute = name->substr(1, end - 1);
      if (attribute.empty()) fail("Empty attribute in format string");
      name->remove_prefix(end);
      return ev_.attribute(value, attribute);
    }
    const size_t end = name->find(']');
    if (name->front() != '[' || end == name->npos) fail("Missing ']' in format string");
    const std::string_view key = name->substr(1, end - 1);
    if (key.empty()) fail("Empty attribute in format string");
    name->remove_prefix(end + 1);
    if (all_digits(key) && key.size() < 18) return ev_.item(value, Value::from(int64_t{std::stol(std::string(key))}));
    return ev_.item(value, ev_.text(key));
  }

  Value convert(Value value, char how) {
    if (how == 's') return ev_.text(ev_.str(value));
    if (how != 'r' && how != 'a') fail("Unknown conversion specifier");
    TextBuilder out(ev_.box());
    append_repr(ev_.box(), &out, value, how == 'a');
    return out.finish();
  }

  enum class Numbering : uint8_t { kNone, kAutomatic, kManual };

  Evaluator& ev_;
  const Args& args_;
  size_t next_ = 0;
  Numbering numbering_ = Numbering::kNone;
};

class PercentFormatter {
 public:
  PercentFormatter(Evaluator& ev, Value argument) : ev_(ev), argument_(argument) {}

  Value format(const Text& format) {
    TextBuilder out(ev_.box());
    std::string_view text = format.bytes;
    while (true) {
      const size_t percent = text.find('%');
      out.append(text.substr(0, percent));
      if (percent == text.npos) break;
      text.remove_prefix(percent + 1);
      conversion(&text, &out);
    }
    // Whatever takes subscripts may stay unused, like a mapping.
    const bool mapping = argument_.is(Kind::kDict) || argument_.is(Kind::kList) || argument_.is(Kind::kRange);
    if (!mapping && !used_mapping_ && next_ < num_arguments())
      fail("not all arguments converted during string formatting");
    return out.finish(format.markup);
  }

 private:
  size_t num_arguments() const { return argument_.is(Kind::kTuple) ? argument_.list->items.size() : 1; }

  Value next_argument() {
    if (mapped_) return *mapped_;
    if (next_ >= num_arguments()) fail("not enough arguments for format string");
    const Value out = argument_.is(Kind::kTuple) ? argument_.list->items[next_] : argument_;
    ++next_;
    return out;
  }

  int64_t number(std::string_view* text) {
    if (text->starts_with('*')) {
      text->remove_prefix(1);
      return std::min<int64_t>(to_index(next_argument(), "width"), 1 << 20);
    }
    int64_t out = 0;
    while (!text->empty() && text->front() >= '0' && text->front() <= '9') {
      out = std::min<int64_t>(out * 10 + (text->front() - '0'), 1 << 20);
      text->remove_prefix(1);
    }
    return out;
  }

  void conversion(std::string_view* text, TextBuilder* out) {
    ev_.box().step();
    mapped_.reset();
    if (text->starts_with('(')) {
      const size_t end = text->find(')');
      if (end == text->npos) fail("incomplete format key");
      if (!argument_.is(Kind::kDict)) fail("format requires a mapping");
      const Value* found = argument_.dict->find(ev_.box(), text->substr(1, end - 1));
      if (!found) fail(cat("KeyError: '", text->substr(1, std::min<size_t>(end - 1, 80)), "'"));
      mapped_ = *found;
      used_mapping_ = true;
      text->remove_prefix(end + 1);
    }
    FormatSpec spec;
    bool zero = false;
    for (; !text->empty() && std::string_view("-+ #0").find(text->front()) != std::string_view::npos;
         text->remove_prefix(1)) {
      if (text->front() == '-') spec.align = '<';
      if (text->front() == '+') spec.sign = '+';
      if (text->front() == ' ' && spec.sign == '-') spec.sign = ' ';
      if (text->front() == '#') spec.alternate = true;
      if (text->front() == '0') zero = true;
    }
    spec.width = number(text);
    if (spec.width < 0) {
      spec.width = -spec.width;
      spec.align = '<';
    }
    if (text->starts_with('.')) {
      text->remove_prefix(1);
      spec.precision = std::max<int64_t>(0, number(text));
    }
    while (text->starts_with('l') || text->starts_with('h') || text->starts_with('L')) text->remove_prefix(1);
    if (text->empty()) fail("incomplete format");
    const char type = text->front();
    text->remove_prefix(1);
    if (type == '%') return out->append('%');
    const Value value = next_argument();
    out->append(one(value, type, zero, spec));
  }

  std::string one(Value value, char type, bool zero, FormatSpec spec) {
    Sandbox& box = ev_.box();
    box.scan(static_cast<size_t>(spec.width));
    if (type == 's' || type == 'r' || type == 'a') {
      std::string_view text = ev_.str(value);
      if (type != 's') {
        TextBuilder repr(box);
        append_repr(box, &repr, value, type == 'a');
        text = repr.view();
      }
      if (spec.precision >= 0) text = text.substr(0, byte_of_char(text, static_cast<size_t>(spec.precision)));
      return pad(text, spec, '>', 0);
    }
    need_defined(value);
    if (type == 'c') {
      if (value.is_text()) {
        if (num_chars(box, *value.text) != 1) fail("%c requires int or char");
        return pad(value.str(), spec, '>', 0);
      }
      spec.type = 'c';
      spec.precision = -1;
      if (!value.is_integral()) fail("%c requires int or char");
      if (spec.align == 0) spec.align = '>';
      return format_value(box, value, spec);
    }
    if (zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    static constexpr std::string_view kInteger = "diuoxX", kFloat = "eEfFgG";
    if (kInteger.find(type) != kInteger.npos) return integer(value, type, spec);
    if (kFloat.find(type) == kFloat.npos) fail(cat("unsupported format character '", std::string(1, type), "'"));
    if (!value.is_number()) fail(cat("must be real number, not ", type_name(value)));
    spec.type = type;
    return format_value(box, value, spec);
  }

  std::string integer(Value value, char type, FormatSpec spec) {
    if (value.is(Kind::kFloat) && (type == 'd' || type == 'i' || type == 'u')) {
      if (value.real - value.real != 0) fail("cannot convert float infinity or NaN to integer");
      value = make_integer(ev_.box(), BigInt::from_double(value.real));
    }
    if (!value.is_integral()) {
      fail(cat("%", std::string(1, type), " format: a real number is required, not ", type_name(value)));
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    const int64_t digits = std::exchange(spec.precision, -1);
    if (digits <= 0) return format_value(ev_.box(), value, spec);
    // A precision is the least number of digits: zeros first, then the width.
    FormatSpec inner = spec;
    const bool negative = to_big(value).negative();
    inner.width = digits + (negative || spec.sign != '-' ? 1 : 0) + (spec.alternate && type != 'd' ? 2 : 0);
    inner.align = '=';
    inner.fill = "0";
    if (spec.fill == "0") {
      spec.fill = " ";
      spec.align = '>';
    }
    return pad(format_value(ev_.box(), value, inner), spec, '>', 0);
  }

  Evaluator& ev_;
  Value argument_;
  size_t next_ = 0;
  bool used_mapping_ = false;
  std::optional<Value> mapped_;
};

}  // namespace

Value format_braces(Evaluator& ev, const Text& format, const Args& args) {
  TextBuilder out(ev.box());
  BraceFormatter(ev, args).format(format.bytes, &out, 1);
  return out.finish(format.markup);
}

Value format_percent(Evaluator& ev, const Text& format, Value argument) {
  return PercentFormatter(ev, argument).format(format);
}

}  // namespace helios::jinja
