// Filters that make text or numbers: trim, upper, replace, indent, tojson, int, round and so on.
//
// Like Jinja's, most take any value and begin with its text. Thread: the one that renders.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/format_spec.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

using std::string_view;

Value as_text(Evaluator& ev, Value value) { return value.is_text() ? value : ev.text(ev.str(value)); }

// The method of str with the same meaning, on the value's text.
Value by_method(Evaluator& ev, string_view method, Value value, const Args& args) {
  const Value text = as_text(ev, value);
  return find_method(ev, text, method)->call(ev, text, args);
}

Value upper_filter(Evaluator& ev, Value v, const Args& args) { return by_method(ev, "upper", v, args); }
Value lower_filter(Evaluator& ev, Value v, const Args& args) { return by_method(ev, "lower", v, args); }
Value capitalize_filter(Evaluator& ev, Value v, const Args& args) { return by_method(ev, "capitalize", v, args); }
Value trim(Evaluator& ev, Value v, const Args& args) { return by_method(ev, "strip", v, args); }

Value center(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("center", args, {"width"});
  const Value width = bound.get(0, Value::from(int64_t{80}));
  return by_method(ev, "center", v, Args{{&width, 1}, {}});
}

Value string(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("string", args, {}, 0, {});
  return as_text(ev, v);
}

// Each word begins with a capital; words are cut at spaces, hyphens and opening brackets, not at apostrophes.
Value title_filter(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("title", args, {}, 0, {});
  const string_view text = ev.str(v);
  ev.box().scan(4 * text.size());
  TextBuilder out(ev.box());
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    const auto cuts = [](char32_t c) {
      return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    };
    while (at < text.size()) {
      size_t next = at;
      if (!cuts(next_char(text, &next))) break;
      at = next;
    }
    out.append(text.substr(begin, at - begin));
    if (at >= text.size()) break;
    begin = at;
    size_t first_end = at;
    next_char(text, &first_end);
    for (at = first_end; at < text.size();) {
      size_t next = at;
      if (cuts(next_char(text, &next))) break;
      at = next;
    }
    out.append(upper(text.substr(begin, first_end - begin)));
    out.append(lower(text.substr(first_end, at - first_end)));
  }
  return out.finish(v.is_text() && v.text->markup);
}

Value replace(Evaluator& ev, Value v, const Args& args) {
  const Bound<3> bound("replace", args, {"old", "new", "count"}, 2);
  const Value count = bound.has(2) && !bound[2].is(Kind::kNone) ? bound[2] : Value::from(int64_t{-1});
  const Value arguments[] = {as_text(ev, bound[0]), as_text(ev, bound[1]), count};
  return by_method(ev, "replace", ev.text(ev.str(v)), Args{arguments, {}});
}

Value format(Evaluator& ev, Value v, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Value text = as_text(ev, v);
  if (args.named.empty()) {
    return format_percent(ev, *text.text,
                          Value::from(ev.box().make<List>(List{args.positional, nullptr, false}), Kind::kTuple));
  }
  Dict* dict = ev.box().make<Dict>();
  for (const NamedValue& named : args.named) dict->set(ev.box(), ev.text(named.name), named.value);
  return format_percent(ev, *text.text, Value::from(dict));
}

Value indent(Evaluator& ev, Value v, const Args& args) {
  const Bound<3> bound("indent", args, {"width", "first", "blank"});
  need_defined(v);
  if (!v.is_text()) fail(cat("indent: expected str, got '", type_name(v), "'"));
  const Value width = bound.get(0, Value::from(int64_t{4}));
  std::string unit;
  if (width.is_text()) {
    unit = width.str();
  } else {
    unit.assign(static_cast<size_t>(std::clamp<int64_t>(to_index(width, "indent width"), 0, 4096)), ' ');
  }
  const bool blank = bound.has(2) && truthy(bound[2]);
  // One more line break first, as Jinja does, so that a text that ends with one keeps it.
  const Value text = concat_text(ev.box(), *v.text, "\n");
  const Value lines = find_method(ev, text, "splitlines")->call(ev, text, {});
  TextBuilder out(ev.box());
  bool first = true;
  for (const Value line : lines.list->items) {
    if (!first) out.append("\n");
    const bool indented = first ? bound.has(1) && truthy(bound[1]) : blank || !line.str().empty();
    if (indented) out.append(unit);
    out.append(line.str());
    first = false;
  }
  return out.finish(v.text->markup);
}

Value truncate(Evaluator& ev, Value v, const Args& args) {
  const Bound<4> bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.has(0) ? to_index(bound[0], "length") : 255;
  const string_view end = bound.has(2) ? ev.str(bound[2]) : "...";
  const int64_t leeway = bound.has(3) && !bound[3].is(Kind::kNone) ? to_index(bound[3], "leeway") : 5;
  const auto end_chars = static_cast<int64_t>(count_chars(end));
  if (length < end_chars) fail(cat("expected length >= ", std::to_string(end_chars), ", got ", std::to_string(length)));
  if (leeway < 0) fail("expected leeway >= 0");
  const Value text = as_text(ev, v);
  if (static_cast<int64_t>(num_chars(ev.box(), *text.text)) - leeway <= length) return text;
  ev.box().scan(text.str().size());
  string_view kept = text.str().substr(0, byte_of_char(text.str(), static_cast<size_t>(length - end_chars)));
  if (!bound.has(1) || !truthy(bound[1])) kept = kept.substr(0, kept.rfind(' '));
  return ev.new_text(cat(kept, end));
}

Value wordcount(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("wordcount", args, {}, 0, {});
  const string_view text = ev.str(v);
  ev.box().scan(text.size());
  int64_t count = 0;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    const bool word = is_alnum(c) || c == '_';
    if (word && !within) ++count;
    within = word;
  }
  return Value::from(count);
}

Value escape(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("escape", args, {}, 0, {});
  if (v.is_text() && v.text->markup) return v;
  TextBuilder out(ev.box());
  append_html_escaped(&out, ev.str(v));
  return out.finish(true);
}

Value forceescape(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("forceescape", args, {}, 0, {});
  TextBuilder out(ev.box());
  append_html_escaped(&out, ev.str(v));
  return out.finish(true);
}

Value safe(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("safe", args, {}, 0, {});
  return borrow_text(ev.box(), ev.str(v), true);
}

Value tojson(Evaluator& ev, Value v, const Args& args) {
  const Bound<4> bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.has(0) && truthy(bound[0]);
  style.sort_keys = bound.has(3) && truthy(bound[3]);
  std::string unit;
  if (bound.has(1) && !bound[1].is(Kind::kNone)) {
    if (bound[1].is_text()) {
      unit = bound[1].str();
    } else {
      unit.assign(static_cast<size_t>(std::clamp<int64_t>(to_index(bound[1], "indent"), 0, 4096)), ' ');
    }
    style.indent = unit;
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    const auto both = ev.items_of(bound[2]);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text()) fail("separators: expected two strings");
    style.item_separator = both[0].str();
    style.key_separator = both[1].str();
  }
  TextBuilder out(ev.box());
  append_json(ev.box(), &out, v, style);
  return out.finish();
}

bool unreserved(unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~'; }

void append_url_quoted(TextBuilder* out, string_view text, bool query) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (unreserved(byte) || (c == '/' && !query)) {
      out->append(c);
    } else if (c == ' ' && query) {
      out->append('+');
    } else {
      out->append('%');
      out->append("0123456789ABCDEF"[byte >> 4]);
      out->append("0123456789ABCDEF"[byte & 15]);
    }
  }
}

Value urlencode(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("urlencode", args, {}, 0, {});
  TextBuilder out(ev.box());
  ev.box().scan(16 * (v.is_text() ? v.str().size() : 0));
  if (!v.is(Kind::kDict)) {
    if (v.is_sequence()) fail("urlencode of a list");
    append_url_quoted(&out, ev.str(v), false);
    return out.finish();
  }
  for (const Dict::Entry& entry : v.dict->entries()) {
    if (!out.view().empty()) out.append('&');
    append_url_quoted(&out, ev.str(entry.key), true);
    out.append('=');
    append_url_quoted(&out, ev.str(entry.value), true);
  }
  return out.finish();
}

// --- numbers ---

// Python's float(text): optional spaces, sign, digits with underscores, inf and nan; nullopt when it is none.
std::optional<double> read_float(string_view text) {
  text = strip(text, true, true);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]));
    } else if (i == 0 || i + 1 == text.size() || !std::isdigit(static_cast<unsigned char>(text[i - 1])) ||
               !std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  string_view rest = digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  double out = 0;
  if (rest == "inf" || rest == "infinity") {
    out = INFINITY;
  } else if (rest == "nan") {
    out = NAN;
  } else {
    if (!std::isdigit(static_cast<unsigned char>(rest[0])) && rest[0] != '.') return std::nullopt;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), out);
    if (parsed.ptr != rest.data() + rest.size() || parsed.ec == std::errc::invalid_argument) return std::nullopt;
    if (parsed.ec == std::errc::result_out_of_range) out = std::strtod(std::string(rest).c_str(), nullptr);
  }
  return negative ? -out : out;
}

// Python's int(text, base); nullopt when it is none.
std::optional<BigInt> read_int(string_view text, int64_t base) {
  text = strip(text, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter; };
  for (const auto& [letter, of] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!prefixed(letter) || (base != of && base != 0)) continue;
    base = of;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  }
  if (base == 0) base = 10;
  std::string digits;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    if (c == '_' && begin > 0 && at < text.size() && text[at] != '_') continue;
    int value = decimal_value(c);
    if (value < 0 && (c | 0x20) >= 'a' && (c | 0x20) <= 'z') value = static_cast<int>((c | 0x20) - 'a') + 10;
    if (value < 0 || value >= base) return std::nullopt;
    digits.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[value]);
  }
  if (digits.empty() || digits.size() > 4300) return std::nullopt;
  const BigInt magnitude = BigInt::parse(digits, static_cast<int>(base));
  return negative ? -magnitude : magnitude;
}

Value int_filter(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("int", args, {"default", "base"});
  need_defined(v);
  const int64_t base = bound.has(1) ? to_index(bound[1], "base") : 10;
  const Value otherwise = bound.get(0, Value::from(int64_t{0}));
  if (v.is(Kind::kBool)) return Value::from(int64_t{v.boolean});
  if (v.is_integral()) return v;
  std::optional<double> real;
  if (v.is(Kind::kFloat)) real = v.real;
  if (v.is_text()) {
    ev.box().scan(v.str().size());
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto whole = read_int(v.str(), base)) return make_integer(ev.box(), *whole);
    }
    real = read_float(v.str());
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  return make_integer(ev.box(), BigInt::from_double(*real));
}

Value float_filter(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("float", args, {"default"});
  need_defined(v);
  if (v.is_number()) return Value::from(to_double(v));
  if (v.is_text()) {
    ev.box().scan(v.str().size());
    if (const auto real = read_float(v.str())) return Value::from(*real);
  }
  return bound.get(0, Value::from(0.0));
}

Value abs_filter(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("abs", args, {}, 0, {});
  need_defined(v);
  if (v.is(Kind::kFloat)) return Value::from(std::fabs(v.real));
  if (!v.is_integral()) fail(cat("bad operand type for abs(): '", type_name(v), "'"));
  const BigInt value = to_big(v);
  return make_integer(ev.box(), value.negative() ? -value : value);
}

Value power_of_ten(Evaluator& ev, int64_t exponent) {
  return apply_binary(ev, BinaryOp::kPower, Value::from(int64_t{10}), Value::from(exponent));
}

// round(): to even on ties, of the value's exact decimal digits.
Value round_common(Evaluator& ev, Value v, int64_t precision) {
  if (v.is_integral()) {
    if (precision >= 0) return make_integer(ev.box(), to_big(v));
    const BigInt unit = to_big(power_of_ten(ev, std::min<int64_t>(-precision, 400)));
    const BigInt::DivMod both = to_big(v).divmod(unit);
    const int side = (both.remainder + both.remainder).compare(unit);
    const bool odd = !both.quotient.zero() && (both.quotient.limbs()[0] & 1);
    const bool up = side > 0 || (side == 0 && odd);
    return make_integer(ev.box(), (up ? both.quotient + BigInt(1) : both.quotient) * unit);
  }
  if (!std::isfinite(v.real) || precision > 330) return v;
  if (precision < -310) return Value::from(std::copysign(0.0, v.real));
  if (precision >= 0)
    return Value::from(std::strtod(format_fixed(v.real, static_cast<int>(precision)).c_str(), nullptr));
  const Value whole = round_common(ev, make_integer(ev.box(), BigInt::from_double(v.real)), precision);
  return Value::from(to_double(whole));
}

Value round_filter(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("round", args, {"precision", "method"});
  need_defined(v);
  const int64_t precision = bound.has(0) ? to_index(bound[0], "precision") : 0;
  const string_view method = bound.has(1) ? ev.str(bound[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (!v.is_number()) fail(cat("type ", type_name(v), " doesn't define __round__ method"));
  if (method == "common") return round_common(ev, v, precision);
  const Value unit = power_of_ten(ev, precision);
  const double scaled = to_double(apply_binary(ev, BinaryOp::kMultiply, v, unit));
  if (!std::isfinite(scaled)) fail("cannot convert float infinity or NaN to integer");
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return apply_binary(ev, BinaryOp::kDivide, make_integer(ev.box(), BigInt::from_double(whole)), unit);
}

Value filesizeformat(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("filesizeformat", args, {"binary"});
  const bool binary = bound.has(0) && truthy(bound[0]);
  const Value real = float_filter(ev, v, {});
  const double bytes = real.real, base = binary ? 1024 : 1000;
  if (bytes == 1) return ev.text("1 Byte");
  if (!(bytes >= base)) return ev.new_text(cat(BigInt::from_double(bytes).to_string(), " Bytes"));
  static constexpr string_view kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr string_view kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  size_t i = 0;
  for (; i < 7 && bytes >= unit * base; ++i) unit *= base;
  return ev.new_text(cat(format_fixed(bytes / unit, 1), " ", binary ? kBinary[i] : kDecimal[i]));
}

constexpr NamedFilter kTextFilters[] = {
    {"abs", abs_filter},      {"capitalize", capitalize_filter},
    {"center", center},       {"e", escape},
    {"escape", escape},       {"filesizeformat", filesizeformat},
    {"float", float_filter},  {"forceescape", forceescape},
    {"format", format},       {"indent", indent},
    {"int", int_filter},      {"lower", lower_filter},
    {"replace", replace},     {"round", round_filter},
    {"safe", safe},           {"string", string},
    {"title", title_filter},  {"tojson", tojson},
    {"trim", trim},           {"truncate", truncate},
    {"upper", upper_filter},  {"urlencode", urlencode},
    {"wordcount", wordcount},
};

}  // namespace

std::span<const NamedFilter> text_filters() { return kTextFilters; }

}  // namespace helios::jinja
