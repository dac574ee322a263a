// UTF-8 as the tokenizers see it: validation, code points, and replacement of invalid bytes.
//
// Replacement follows Unicode's "maximal subparts", as Rust's from_utf8_lossy does: one U+FFFD for each longest prefix
// of a well-formed sequence, one for each byte that starts none. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace helios {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Status {
  kComplete,    // a whole code point
  kInvalid,     // these bytes can never become one
  kIncomplete,  // the text ends inside a code point that may still be completed
};

struct Utf8Step {
  Utf8Status status = Utf8Status::kInvalid;
  uint32_t code_point = 0;  // when complete
  uint8_t size = 0;         // bytes of the code point, or of the maximal subpart
};

/// Looks at the first code point of `text`, which must not be empty.
Utf8Step next_utf8(std::string_view text);

bool valid_utf8(std::string_view text);

/// Number of code points in valid UTF-8.
int64_t count_code_points(std::string_view text);

void append_utf8(uint32_t code_point, std::string* out);

/// Appends `bytes` to `out` as UTF-8, invalid parts as U+FFFD. Returns how many bytes at the end form an incomplete
/// code point; those are not appended.
size_t append_lossy(std::string_view bytes, std::string* out);

/// Unicode's White_Space property, which is also what \s means in the patterns of tokenizer.json.
constexpr bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace helios
