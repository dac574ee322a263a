// Table 3-7 of the Unicode standard ("Well-Formed UTF-8 Byte Sequences"), as code.
#include "coordinator/tokenizer/utf8.h"

#include <cstring>

namespace helios {
namespace {

// What may follow a lead byte: how many continuation bytes, and the range of the first of them.
struct Lead {
  uint8_t continuation = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

// Length of the ASCII that `text` begins with.
size_t ascii_prefix(std::string_view text) {
  size_t size = 0;
  for (uint64_t word; size + sizeof word <= text.size(); size += sizeof word) {
    std::memcpy(&word, text.data() + size, sizeof word);
    if (word & 0x8080808080808080) break;
  }
  while (size < text.size() && static_cast<uint8_t>(text[size]) < 0x80) ++size;
  return size;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Utf8Status::kComplete, first, 1};
  const Lead lead = lead_of(first);
  if (lead.continuation == 0) return {Utf8Status::kInvalid, 0, 1};
  uint32_t code_point = first & (0x3F >> lead.continuation);
  for (uint8_t i = 1; i <= lead.continuation; ++i) {
    if (i >= text.size()) return {Utf8Status::kIncomplete, 0, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Status::kInvalid, 0, i};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8Status::kComplete, code_point, static_cast<uint8_t>(lead.continuation + 1)};
}

bool valid_utf8(std::string_view text) {
  while (true) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const Utf8Step step = next_utf8(text);
    if (step.status != Utf8Status::kComplete) return false;
    text.remove_prefix(step.size);
  }
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

void append_utf8(uint32_t c, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

size_t append_lossy(std::string_view bytes, std::string* out) {
  while (true) {
    const size_t ascii = ascii_prefix(bytes);
    out->append(bytes.substr(0, ascii));
    bytes.remove_prefix(ascii);
    if (bytes.empty()) return 0;
    const Utf8Step step = next_utf8(bytes);
    if (step.status == Utf8Status::kIncomplete) return step.size;
    out->append(step.status == Utf8Status::kComplete ? bytes.substr(0, step.size) : kReplacementCharacter);
    bytes.remove_prefix(step.size);
  }
}

}  // namespace helios
