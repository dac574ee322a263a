// NFC from utf8proc's tables, with its quadratic reordering of combining marks replaced by a sort.
#include "coordinator/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "common/base/check.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

// Assigned after Unicode 9 and not inert under NFC in Unicode 14 (utf8proc 2.8): Age > 9.0 and (ccc != 0, NFD_QC = No
// or NFC_QC = Maybe). To a library of Unicode 9 they are unassigned: starters that nothing composes with.
constexpr CodePointRange kLaterThanUnicode9[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
};

bool later_than_unicode9(uint32_t c) {
  const auto* range = std::upper_bound(std::begin(kLaterThanUnicode9), std::end(kLaterThanUnicode9), c,
                                       [](uint32_t value, const CodePointRange& r) { return value < r.first; });
  return range != std::begin(kLaterThanUnicode9) && c <= std::prev(range)->last;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Canonical decomposition, ordering and composition of one stretch.
void append_nfc(const std::vector<utf8proc_int32_t>& stretch, std::string* out) {
  if (stretch.empty()) return;
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(stretch.size() * 2);
  for (const utf8proc_int32_t c : stretch) {
    utf8proc_int32_t parts[8];
    int boundclass = 0;
    const auto count = utf8proc_decompose_char(
        c, parts, 8, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundclass);
    HELIOS_CHECK(count > 0 && count <= 8, c, count);
    decomposed.insert(decomposed.end(), parts, parts + count);
  }
  for (size_t i = 0; i < decomposed.size();) {
    size_t end = i;
    while (end < decomposed.size() && combining_class(decomposed[end]) != 0) ++end;
    std::stable_sort(decomposed.begin() + i, decomposed.begin() + end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = std::max(end, i + 1);
  }
  const auto count = utf8proc_normalize_utf32(decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  HELIOS_CHECK(count >= 0, count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<uint32_t>(decomposed[i]), out);
}

// Below U+0300 every character is its own NFC and composes with nothing to its left.
bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

}  // namespace

std::string nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> stretch;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    const std::string_view character = text.substr(0, step.size);
    text.remove_prefix(step.size);
    // ASCII never joins what stands before it; what nothing stands after but ASCII, or an unassigned character, is
    // final.
    const bool joins_backward = step.code_point >= 0x80 && !later_than_unicode9(step.code_point);
    const bool final = text.empty() || static_cast<uint8_t>(text[0]) < 0x80;
    if (!joins_backward) {
      append_nfc(stretch, &out);
      stretch.clear();
      if (step.code_point >= 0x80 || final) {
        out += character;
        continue;
      }
    }
    stretch.push_back(static_cast<utf8proc_int32_t>(step.code_point));
  }
  append_nfc(stretch, &out);
  return out;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(pattern, at), text.size());
    out.append(text.substr(at, found - at));
    if (found < text.size()) out.append(content);
    at = found + pattern.size();
  }
  return out;
}

std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (out.empty()) break;
    if (std::holds_alternative<NfcStep>(step)) {
      out = nfc(out);
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      out.insert(0, prepend->prefix);
    } else {
      const auto& replace = std::get<ReplaceStep>(step);
      out = replace_all(out, replace.pattern, replace.content);
    }
  }
  return out;
}

}  // namespace helios
