// GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100.
#include "coordinator/tokenizer/token_bytes.h"

#include <array>

#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> alphabet{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[byte] = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return alphabet;
}

constexpr std::array<uint16_t, 256> kAlphabet = make_alphabet();
constexpr uint32_t kAlphabetEnd = 0x100 + 68;

constexpr std::array<int16_t, kAlphabetEnd> make_inverse() {
  std::array<int16_t, kAlphabetEnd> inverse{};
  for (auto& byte : inverse) byte = -1;
  for (int byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int16_t>(byte);
  return inverse;
}

constexpr std::array<int16_t, kAlphabetEnd> kInverse = make_inverse();

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

uint32_t byte_level_code_point(uint8_t byte) { return kAlphabet[byte]; }

std::optional<std::string> byte_level_bytes(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    const Utf8Step step = next_utf8(piece);
    if (step.status != Utf8Status::kComplete || step.code_point >= kAlphabetEnd || kInverse[step.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kInverse[step.code_point]));
    piece.remove_prefix(step.size);
  }
  return bytes;
}

std::optional<uint8_t> byte_fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  // The reference decoder parses the two characters as a number, so a plus sign passes for the first digit.
  const int high = piece[3] == '+' ? 0 : hex_digit(piece[3]);
  const int low = hex_digit(piece[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

std::string byte_fallback_piece(uint8_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace helios
