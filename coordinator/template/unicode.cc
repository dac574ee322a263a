#include "coordinator/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "coordinator/template/unicode_tables.h"

namespace helios::jinja {
namespace {

template <size_t N>
bool in_ranges(const CharRange (&ranges)[N], char32_t c) {
  const auto* at = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                    [](char32_t value, const CharRange& range) { return value < range.first; });
  return at != std::begin(ranges) && c <= std::prev(at)->last;
}

template <size_t N>
const char* full_case(const FullCase (&table)[N], char32_t c) {
  const auto* at = std::lower_bound(std::begin(table), std::end(table), c,
                                    [](const FullCase& entry, char32_t value) { return entry.from < value; });
  return at != std::end(table) && at->from == c ? at->to : nullptr;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
             c == 0xFF0E || c == 0xFF1A;
  }
}

void append_upper(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const char* full = full_case(kFullUpper, c)) {
    out->append(full);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string* out, char32_t c) {
  if (const char* full = full_case(kFullTitle, c)) {
    out->append(full);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

// A capital sigma at a word's end becomes ς (Unicode's Final_Sigma, as str.lower has it).
bool sigma_is_final(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = begin; at > 0;) {
    at = previous_char(text, at);
    size_t position = at;
    const char32_t c = next_char(text, &position);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const char32_t c = next_char(text, &end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string* out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    out->append("i\xCC\x87");
  } else if (c == 0x3A3) {
    out->append(sigma_is_final(text, begin, end) ? "\xCF\x82" : "\xCF\x83");
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

char32_t next_char(std::string_view text, size_t* position) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const size_t at = *position;
  const unsigned char lead = byte(at);
  const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 1 || at + length > text.size()) {
    *position = at + 1;
    return lead;
  }
  *position = at + length;
  char32_t c = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(at + i) & 0x3F);
  return c;
}

void append_utf8(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | c >> 12));
    } else {
      out->push_back(static_cast<char>(0xF0 | (c >> 18 & 7)));
      out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    }
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t byte_of_char(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_char(text, &at);
  return at;
}

size_t previous_char(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

size_t find_bytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  if (part.empty()) return from;
  if (from == text.size()) return text.npos;  // an empty view may have no address, and memmem takes no null
  const void* at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : text.npos;
}

bool is_valid_utf8(std::string_view text) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (data[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto length = utf8proc_iterate(data + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(kDigitsNotDecimal, c); }
bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO ||
         in_ranges(kNumericLetters, c);
}
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLower, c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUpper, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_identifier_start(char32_t c) { return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL; }
bool is_identifier_part(char32_t c) {
  if (is_identifier_start(c)) return true;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_PC;
}

int decimal_value(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c < 0x80 || !is_decimal(c)) return -1;
  // Decimal digits come in runs of ten; only the mathematical ones (five runs from U+1D7CE) touch one another.
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<int>((c - 0x1D7CE) % 10);
  char32_t first = c;
  while (c - first < 9 && is_decimal(first - 1)) --first;
  return static_cast<int>(c - first);
}

std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars) {
  const auto strips = [&](char32_t c) {
    if (!chars) return is_space(c);
    for (size_t at = 0; at < chars->size();) {
      if (next_char(*chars, &at) == c) return true;
    }
    return false;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!strips(next_char(text, &next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const size_t previous = previous_char(text, end);
    size_t position = previous;
    if (!strips(next_char(text, &position))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(&out, next_char(text, &at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    append_lower(&out, text, begin, at, c);
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool previous_cased = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    if (previous_cased) {
      append_lower(&out, text, begin, at, c);
    } else {
      append_title(&out, c);
    }
    previous_cased = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    if (begin == 0) {
      append_title(&out, c);
    } else {
      append_lower(&out, text, begin, at, c);
    }
  }
  return out;
}

std::string swapcase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    if (is_upper(c)) {
      append_lower(&out, text, begin, at, c);
    } else if (is_lower(c)) {
      append_upper(&out, c);
    } else {
      append_utf8(&out, c);
    }
  }
  return out;
}

std::string casefold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    utf8proc_int32_t folded[16];
    int last_boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 16, UTF8PROC_CASEFOLD, &last_boundary);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 16); ++i) {
      append_utf8(&out, static_cast<char32_t>(folded[i]));
    }
  }
  return out;
}

}  // namespace helios::jinja
