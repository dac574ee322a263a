#include "coordinator/protocol/json_writer.h"

#include <charconv>
#include <cmath>

#include "common/base/check.h"

namespace helios {
namespace {

/// Length of the UTF-8 character at text[at], or 0 when those bytes are not one.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned second = byte(at + 1);
    if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
    if (lead == 0xED && second > 0x9F) return 0;  // surrogates
    return follows(at + 1) && follows(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned second = byte(at + 1);
    if (lead == 0xF0 && second < 0x90) return 0;
    if (lead == 0xF4 && second > 0x8F) return 0;
    return follows(at + 1) && follows(at + 2) && follows(at + 3) ? 4 : 0;
  }
  return 0;
}

void append_escape(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t clean = 0;  // start of what can be copied as it is
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      ++at;
      continue;
    }
    const size_t length = c < 0x80 ? 1 : utf8_length(text, at);
    if (c >= 0x80 && length > 0) {
      at += length;
      continue;
    }
    out.append(text, clean, at - clean);
    if (c < 0x80) {
      append_escape(out, c);
    } else {
      out += "\xEF\xBF\xBD";
    }
    clean = ++at;
  }
  out.append(text, clean, text.size() - clean);
  out += '"';
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void append_json_number(std::string& out, double value) {
  HELIOS_CHECK(std::isfinite(value), value);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value + 0.0);  // -0.0 + 0.0 is 0.0
  const std::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

JsonWriter& JsonWriter::key(std::string_view name) {
  comma();
  out_ += '"';
  out_ += name;
  out_ += "\":";
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  comma();
  append_json_string(out_, text);
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  return raw({digits, static_cast<size_t>(end.ptr - digits)});
}

JsonWriter& JsonWriter::number(double value) {
  comma();
  append_json_number(out_, value);
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  comma();
  out_ += json;
  need_comma_ = true;
  return *this;
}

}  // namespace helios
