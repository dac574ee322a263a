// What tokenizer.json does to text before it is cut: NFC, a prefix, replacements of one string by another.
//
// NFC is that of Unicode 9, the version the vocabularies' own library was built with: characters that later versions
// gave a combining class or a composition stay as they are. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace helios {

struct NfcStep {};
struct PrependStep {
  std::string prefix;  // put before any text but the empty one
};
struct ReplaceStep {
  std::string pattern;  // literal, not empty
  std::string content;
};
using NormalizerStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

/// Runs the steps in order. `text` is valid UTF-8.
std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text);

/// NFC of Unicode 9; linear in the text but for a sort of each run of combining marks.
std::string nfc(std::string_view text);

/// Every occurrence of `pattern` (not empty), from the left, becomes `content`.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

}  // namespace helios
