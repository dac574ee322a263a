// Characters as Python's str sees them: counting and stepping through UTF-8, classes, case mappings.
//
// Text in this room is always valid UTF-8 (checked where it comes in), and stepping stays within the text even if it
// were not. Classes and simple mappings come from utf8proc; what it lacks (full upper case such as ß to SS, the digits
// that are not decimal) is in unicode_tables.h, made from Python's unicodedata 14. No state; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace helios::jinja {

/// The character at `*position`, which moves past it. Precondition: *position < text.size().
char32_t next_char(std::string_view text, size_t* position);
void append_utf8(std::string* out, char32_t c);
size_t count_chars(std::string_view text);
/// Byte position of character `index`, text.size() when there are fewer.
size_t byte_of_char(std::string_view text, size_t index);
/// First byte of the character that ends before `end`.
size_t previous_char(std::string_view text, size_t end);
/// As string_view::find, in linear time whatever the texts.
size_t find_bytes(std::string_view text, std::string_view part, size_t from = 0);
bool is_valid_utf8(std::string_view text);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_printable(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);
/// 0 to 9 for a decimal digit of any script, -1 for anything else.
int decimal_value(char32_t c);

/// str.strip, lstrip, rstrip: white space, or the characters of `*chars`.
std::string_view strip(std::string_view text, bool left, bool right, const std::string_view* chars = nullptr);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swapcase(std::string_view text);
std::string casefold(std::string_view text);

}  // namespace helios::jinja
