// A token's exact bytes, before any UTF-8 replacement (R29): what the decoder makes of one vocabulary piece.
//
// Byte-level vocabularies spell each byte as one printable character (GPT-2's alphabet); SentencePiece-style ones spell
// a byte that has no piece as <0xNN>. No state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace helios {

/// The code point that stands for `byte` in the byte-level alphabet.
uint32_t byte_level_code_point(uint8_t byte);

/// The bytes that a piece of the byte-level alphabet stands for; nothing when a character is not of the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view piece);

/// The byte of a piece of the form <0xNN>, as the ByteFallback decoder reads it; nothing when it is not one.
std::optional<uint8_t> byte_fallback_byte(std::string_view piece);

/// The spelling that the encoder looks up for a byte: <0xNN>, upper case.
std::string byte_fallback_piece(uint8_t byte);

}  // namespace helios
