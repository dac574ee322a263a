#include "coordinator/template/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 400;

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int64_t read_number(std::string_view* spec) {
  int64_t out = 0;
  while (!spec->empty() && spec->front() >= '0' && spec->front() <= '9') {
    out = out * 10 + (spec->front() - '0');
    if (out > kMaxWidth) fail("too many decimal digits in format string");
    spec->remove_prefix(1);
  }
  return out;
}

// "1234567.5" to "1,234,567.5"; zero padding up to `width` takes part in the grouping.
std::string group_digits(std::string_view digits, char separator, size_t every, int64_t width) {
  size_t whole = 0;
  while (whole < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[whole]))) ++whole;
  std::string reversed;
  const std::string_view rest = digits.substr(whole);
  for (size_t i = 0; i < whole || static_cast<int64_t>(reversed.size() + rest.size()) < width; ++i) {
    if (i > 0 && i % every == 0) reversed.push_back(separator);
    reversed.push_back(i < whole ? digits[whole - 1 - i] : '0');
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed + std::string(rest);
}

std::string finish_number(bool negative, std::string_view prefix, std::string digits, const FormatSpec& spec,
                          size_t group_every) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  sign += prefix;
  if (spec.grouping) {
    const bool zero_padded = spec.align == '=' && spec.fill == "0";
    digits = group_digits(digits, spec.grouping, group_every,
                          zero_padded ? spec.width - static_cast<int64_t>(sign.size()) : 0);
  }
  return pad(sign + digits, spec, '>', sign.size());
}

std::string format_integer(const BigInt& value, const FormatSpec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  const BigInt magnitude = value.negative() ? -value : value;
  switch (spec.type) {
    case 'b':
      return finish_number(value.negative(), spec.alternate ? "0b" : "", magnitude.to_string(2), spec, 4);
    case 'o':
      return finish_number(value.negative(), spec.alternate ? "0o" : "", magnitude.to_string(8), spec, 4);
    case 'x':
      return finish_number(value.negative(), spec.alternate ? "0x" : "", magnitude.to_string(16), spec, 4);
    case 'X': {
      std::string digits = magnitude.to_string(16);
      std::transform(digits.begin(), digits.end(), digits.begin(), [](char c) { return c >= 'a' ? c - 32 : c; });
      return finish_number(value.negative(), spec.alternate ? "0X" : "", std::move(digits), spec, 4);
    }
    case 'c': {
      const auto code = value.to_int64();
      if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
        fail("%c arg not in range(0x110000)");
      }
      std::string out;
      append_utf8(&out, static_cast<char32_t>(*code));
      return pad(out, spec, '<', 0);
    }
    default:
      return finish_number(value.negative(), "", magnitude.to_string(), spec, 3);
  }
}

std::string scientific(double value, int digits) {
  std::vector<char> buffer(static_cast<size_t>(digits) + 32);
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, digits);
  return {buffer.data(), end.ptr};
}

// '%g' as Python writes it; `alternate` keeps trailing zeros. `dot_zero`: the form without a type, which always shows a
// fraction and turns to exponents one digit earlier.
std::string general(double value, int digits, bool alternate, bool dot_zero) {
  digits = std::max(digits, 1);
  const std::string rounded = scientific(value, digits - 1);
  const int exponent = std::atoi(rounded.c_str() + rounded.find('e') + 1);
  const bool exponential = exponent < -4 || exponent >= digits - (dot_zero ? 1 : 0);
  std::string out = exponential ? rounded : format_fixed(value, digits - 1 - exponent);
  if (alternate) return out;
  const size_t e = std::min(out.find('e'), out.size());
  size_t keep = e;
  if (out.find('.') < e) {
    while (out[keep - 1] == '0') --keep;
    if (out[keep - 1] == '.') --keep;
  }
  out.erase(keep, e - keep);
  if (dot_zero && !exponential && out.find('.') == out.npos) out += ".0";
  return out;
}

std::string float_digits(double magnitude, const FormatSpec& spec, char type) {
  if (spec.precision > kMaxPrecision) fail("precision too big");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  switch (type) {
    case 'e':
      return scientific(magnitude, precision);
    case 'f':
      return format_fixed(magnitude, precision);
    case '%':
      return format_fixed(magnitude * 100, precision) + "%";
    case 'g':
      return general(magnitude, precision, spec.alternate, false);
    default:
      return spec.precision < 0 ? float_repr(magnitude) : general(magnitude, precision, spec.alternate, true);
  }
}

std::string format_float(double value, const FormatSpec& spec) {
  const char type = spec.type == 0 || spec.type == '%' ? spec.type : static_cast<char>(spec.type | 0x20);
  bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (type == '%') digits += "%";
  } else {
    digits = float_digits(std::fabs(value), spec, type == 'n' ? 'g' : type);
    if (spec.zero_negative && digits.find_first_of("123456789") == digits.npos) negative = false;
    if (spec.alternate && type != 'g' && digits.find('.') == digits.npos) {
      digits.insert(std::min(digits.find_first_of("e%"), digits.size()), ".");
    }
  }
  if (spec.type >= 'A' && spec.type <= 'Z') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  }
  return finish_number(negative, "", std::move(digits), spec, 3);
}

std::string format_text(Sandbox& box, std::string_view text, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's') {
    fail(cat("Unknown format code '", std::string(1, spec.type), "' for object of type 'str'"));
  }
  if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  box.scan(text.size());
  if (spec.precision >= 0) text = text.substr(0, byte_of_char(text, static_cast<size_t>(spec.precision)));
  return pad(text, spec, '<', 0);
}

}  // namespace

FormatSpec parse_format_spec(std::string_view spec) {
  FormatSpec out;
  if (!spec.empty()) {
    size_t second = 0;
    next_char(spec, &second);
    if (second < spec.size() && is_align(spec[second])) {
      out.fill = spec.substr(0, second);
      out.align = spec[second];
      spec.remove_prefix(second + 1);
    } else if (is_align(spec[0])) {
      out.align = spec[0];
      spec.remove_prefix(1);
    }
  }
  const auto take = [&](std::string_view any) {
    if (spec.empty() || any.find(spec.front()) == any.npos) return '\0';
    const char c = spec.front();
    spec.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) out.sign = sign;
  out.zero_negative = take("z") != 0;
  out.alternate = take("#") != 0;
  if (take("0") && out.align == 0) {
    out.fill = "0";
    out.align = '=';
  }
  out.width = read_number(&spec);
  out.grouping = take(",_");
  if (take(".")) {
    if (spec.empty() || spec.front() < '0' || spec.front() > '9') fail("Format specifier missing precision");
    out.precision = read_number(&spec);
  }
  out.type = take("bcdeEfFgGnosxX%");
  if (!spec.empty()) fail("Invalid format specifier");
  return out;
}

std::string pad(std::string_view text, const FormatSpec& spec, char default_align, size_t prefix_bytes) {
  const auto chars = static_cast<int64_t>(count_chars(text));
  if (chars >= spec.width) return std::string(text);
  const auto missing = static_cast<size_t>(spec.width - chars);
  const auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align ? spec.align : default_align) {
    case '<':
      return std::string(text) + fill(missing);
    case '^':
      return fill(missing / 2) + std::string(text) + fill(missing - missing / 2);
    case '=':
      return std::string(text.substr(0, prefix_bytes)) + fill(missing) + std::string(text.substr(prefix_bytes));
    default:
      return fill(missing) + std::string(text);
  }
}

std::string format_fixed(double value, int digits) {
  std::vector<char> buffer(static_cast<size_t>(digits) + 340);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits);
  return {buffer.data(), end.ptr};
}

std::string format_value(Sandbox& box, Value value, const FormatSpec& spec) {
  box.scan(static_cast<size_t>(spec.width));
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool float_type = spec.type != 0 && kFloatTypes.find(spec.type) != kFloatTypes.npos;
  if (value.is(Kind::kFloat) || (value.is_integral() && float_type)) {
    if (spec.type != 0 && spec.type != 'n' && !float_type) {
      fail(cat("Unknown format code '", std::string(1, spec.type), "' for object of type 'float'"));
    }
    return format_float(to_double(value), spec);
  }
  const bool plain_bool = value.is(Kind::kBool) && spec.type == 0;
  if (value.is_integral() && !plain_bool) {
    if (spec.type == 's') fail("Unknown format code 's' for object of type 'int'");
    return format_integer(to_big(value), spec);
  }
  if (plain_bool && spec.width > 0) return format_integer(to_big(value), spec);  // bool formats as the int it is
  return format_text(box, str_of(box, value), spec);
}

}  // namespace helios::jinja
