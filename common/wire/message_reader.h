// What the three codecs share: bytes to a Cap'n Proto reader and back, and checks of what the reader claims.
//
// Cap'n Proto reports malformed pointers by throwing in the middle of an accessor, so inside this room a refused value
// throws too (Malformed), and read_message() turns both into a Result. Nothing throws out of the room. Included only by
// the codecs' own files: it brings the Cap'n Proto headers.
#pragma once

#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/wire/codec.h"

namespace helios::wire {

// Limits of what a decoder accepts. Far above what a real set sends; they bound memory, not features.
inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kAnyLength = kMaxMessageBytes / sizeof(int32_t);
inline constexpr int64_t kMaxSlots = 65536;
inline constexpr int64_t kMaxBlockUpdates = 65536;
inline constexpr int64_t kMaxTokenCapacity = 4096;
inline constexpr int64_t kMaxBuffers = 1024;
inline constexpr int64_t kMaxGraphs = 4096;
inline constexpr int64_t kMaxBindings = 64;
inline constexpr int64_t kMaxBufferRank = 8;
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxStoreKeyBytes = 1024;
inline constexpr size_t kMaxStoreValueBytes = size_t{1} << 20;

/// A value that this room refuses. Caught by read_message().
struct Malformed {
  std::string message;
};

/// Throws Malformed "NAME: expected LOW..HIGH, found VALUE".
int64_t in_range(std::string_view name, int64_t value, int64_t low, int64_t high);
/// Finite and LOW <= value <= HIGH; NaN is refused.
double in_range(std::string_view name, double value, double low, double high);
/// A list's size, at most `limit`.
uint32_t list_size(std::string_view name, uint32_t size, int64_t limit);
/// UTF-8 without control characters, at most `limit` bytes.
std::string text(std::string_view name, capnp::Text::Reader value, size_t limit);
std::string data(std::string_view name, capnp::Data::Reader value, size_t limit);

/// `value` as decoders accept it: control characters and bytes that are not UTF-8 become '?', the rest is cut at
/// `limit`. For messages to people, whose text may come from anywhere (a path, another library).
std::string one_line(std::string_view value, size_t limit);

template <class Word, class List>
std::vector<Word> words(std::string_view name, List list, int64_t limit) {
  const uint32_t size = list_size(name, list.size(), limit);
  std::vector<Word> out(size);
  static_assert(sizeof(Word) == 4 || sizeof(Word) == 8);
  constexpr auto kElement = sizeof(Word) == 8 ? capnp::ElementSize::EIGHT_BYTES : capnp::ElementSize::FOUR_BYTES;
  const capnp::AnyList::Reader any(list);
  if (size > 0 && std::endian::native == std::endian::little && any.getElementSize() == kElement) {
    std::memcpy(out.data(), any.getRawBytes().begin(), size * sizeof(Word));
    return out;
  }
  for (uint32_t i = 0; i < size; ++i) out[i] = list[i];  // a newer or hostile peer's elements may be wider
  return out;
}

/// As words(), each value within [low, high].
template <class Word, class List>
std::vector<Word> words_in_range(std::string_view name, List list, int64_t limit, int64_t low, int64_t high) {
  std::vector<Word> out = words<Word>(name, list, limit);
  for (const Word word : out) in_range(name, static_cast<int64_t>(word), low, high);
  return out;
}

template <class List, class Word>
void set_words(List list, const std::vector<Word>& values) {
  for (uint32_t i = 0; i < values.size(); ++i) list.set(i, values[i]);
}

/// An enum as the sender's raw number: a newer or hostile peer may send any.
template <class Enum>
int64_t enum_number(Enum value) {
  return static_cast<int64_t>(static_cast<uint16_t>(value));
}

/// The framed message and, as one last word, its checksum.
std::string to_bytes(MessageKind kind, capnp::MessageBuilder& builder);

/// What stands before the checksum. Throws Malformed when that says something else.
std::span<const std::byte> checked(MessageKind kind, std::span<const std::byte> bytes);

/// The framed message, 8-byte aligned (copied when the caller's bytes are not), and exactly as long as it says.
class FramedMessage {
 public:
  /// Throws Malformed; kj::Exception for a malformed segment table.
  explicit FramedMessage(std::span<const std::byte> bytes);
  capnp::MessageReader& reader() { return *reader_; }

 private:
  kj::Array<capnp::word> copy_;
  kj::Own<capnp::FlatArrayMessageReader> reader_;
};

Error truncated(std::string_view name, const kj::Exception& exception);

/// Checks the sum, runs decode(Root::Reader), and turns whatever it finds wrong into an Error.
template <class Root, class Decode>
auto read_message(MessageKind kind, std::string_view name, std::span<const std::byte> bytes, Decode decode)
    -> Result<decltype(decode(std::declval<typename Root::Reader>()))> {
  try {
    FramedMessage message(checked(kind, bytes));
    return decode(message.reader().template getRoot<Root>());
  } catch (const Malformed& malformed) {
    return Error{Errc::kInvalidArgument, std::string(name) + ": " + malformed.message};
  } catch (const kj::Exception& exception) {
    return truncated(name, exception);
  }
}

}  // namespace helios::wire
