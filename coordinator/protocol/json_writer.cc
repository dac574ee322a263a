#include "coordinator/protocol/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

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

char* write_escape(char* out, unsigned char c) {
  *out++ = '\\';
  switch (c) {
    case '"':
    case '\\':
      *out++ = static_cast<char>(c);
      return out;
    case '\b':
      *out++ = 'b';
      return out;
    case '\f':
      *out++ = 'f';
      return out;
    case '\n':
      *out++ = 'n';
      return out;
    case '\r':
      *out++ = 'r';
      return out;
    case '\t':
      *out++ = 't';
      return out;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      const char text[] = {'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
      return std::copy_n(text, sizeof text, out);
    }
  }
}

/// No byte of the eight is below 0x20, above 0x7F, a quote or a backslash.
bool all_plain(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101'0101'0101'0101, kTops = 0x8080'8080'8080'8080;
  // Where all tops are clear, the top of x - y shows a byte of x below y's, at least the lowest such.
  const uint64_t quotes = bytes ^ (kOnes * '"'), backslashes = bytes ^ (kOnes * '\\');
  return ((bytes | (bytes - kOnes * 0x20) | (quotes - kOnes) | (backslashes - kOnes)) & kTops) == 0;
}

bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

char* write_escaped(char* out, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if (all_plain(eight)) {
        std::memcpy(out, &eight, sizeof eight);
        out += sizeof eight;
        at += sizeof eight;
        continue;
      }
    }
    const auto c = static_cast<unsigned char>(text[at]);
    if (is_plain(c)) {
      *out++ = text[at++];
      continue;
    }
    const size_t length = c < 0x80 ? 1 : utf8_length(text, at);
    if (c < 0x80) {
      out = write_escape(out, c);
    } else if (length > 0) {
      out = std::copy_n(text.data() + at, length, out);
    } else {
      out = std::copy_n("\xEF\xBF\xBD", 3, out);
    }
    at += std::max<size_t>(length, 1);
  }
  return out;
}

/// The first bytes of `text`, `most` or up to three fewer: not cut within a character. (Four continuation bytes in a
/// row are no character, and each is replaced alone wherever the cut is.)
size_t piece_of(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  for (size_t size = most; size + 4 > most; --size) {
    if ((static_cast<unsigned char>(text[size]) & 0xC0) != 0x80) return size;
  }
  return most;
}

}  // namespace

char* write_json_string(char* out, std::string_view text) {
  *out++ = '"';
  out = write_escaped(out, text);
  *out++ = '"';
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  constexpr size_t kPiece = 512;
  std::array<char, 6 * kPiece> escaped;
  out += '"';
  while (!text.empty()) {
    const size_t size = piece_of(text, kPiece);
    out.append(escaped.data(), write_escaped(escaped.data(), text.substr(0, size)));
    text.remove_prefix(size);
  }
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
  out_.append(",\"" + (need_comma_ ? 0 : 1)).append(name).append("\":");
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
