#include "common/wire/message_reader.h"

#include <fmt/format.h>
#include <kj/io.h>

#include <cmath>
#include <cstring>

#include "common/wire/codec.h"

namespace helios::wire {
namespace {

constexpr int kNestingLimit = 16;  // the deepest message is control -> ready -> manifest -> buffers -> buffer -> shape

/// Length of the well-formed UTF-8 sequence at the start of `bytes`; 0 when there is none.
size_t utf8_length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xf0 && at(1) < 0x90);
  const bool surrogate = lead == 0xed && at(1) >= 0xa0;
  const bool beyond = lead == 0xf4 && at(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

int64_t in_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    throw Malformed{fmt::format("{}: expected {}..{}, found {}", name, low, high, value)};
  }
  return value;
}

double in_range(std::string_view name, double value, double low, double high) {
  if (!std::isfinite(value) || value < low || value > high) {
    throw Malformed{fmt::format("{}: expected {}..{}, found {}", name, low, high, value)};
  }
  return value;
}

uint32_t list_size(std::string_view name, uint32_t size, int64_t limit) {
  if (size > limit) throw Malformed{fmt::format("{}: expected at most {} elements, found {}", name, limit, size)};
  return size;
}

std::string text(std::string_view name, capnp::Text::Reader value, size_t limit) {
  if (value.size() > limit) {
    throw Malformed{fmt::format("{}: expected at most {} bytes, found {}", name, limit, value.size())};
  }
  const std::string_view bytes(value.begin(), value.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = utf8_length(bytes.substr(i));
    if (length == 0 || is_control(bytes[i])) {
      throw Malformed{fmt::format("{}: expected UTF-8 without control characters, found byte 0x{:02x} at {}", name,
                                  static_cast<unsigned char>(bytes[i]), i)};
    }
    i += length;
  }
  return std::string(bytes);
}

std::string data(std::string_view name, capnp::Data::Reader value, size_t limit) {
  if (value.size() > limit) {
    throw Malformed{fmt::format("{}: expected at most {} bytes, found {}", name, limit, value.size())};
  }
  return std::string(reinterpret_cast<const char*>(value.begin()), value.size());
}

std::string one_line(std::string_view value, size_t limit) {
  std::string out;
  for (size_t i = 0; i < value.size();) {
    const size_t length = utf8_length(value.substr(i));
    const bool keep = length > 0 && !is_control(value[i]);
    const std::string_view piece = keep ? value.substr(i, length) : std::string_view("?");
    if (out.size() + piece.size() > limit) break;
    out += piece;
    i += length > 0 ? length : 1;
  }
  return out;
}

std::string to_bytes(MessageKind kind, capnp::MessageBuilder& builder) {
  const size_t size = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
  std::string out(size + sizeof(uint64_t), '\0');
  kj::ArrayOutputStream stream(kj::arrayPtr(reinterpret_cast<kj::byte*>(out.data()), size));
  capnp::writeMessage(stream, builder);
  const uint64_t sum = message_checksum(kind, std::as_bytes(std::span(out.data(), size)));
  std::memcpy(out.data() + size, &sum, sizeof sum);
  return out;
}

std::span<const std::byte> checked(MessageKind kind, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessageBytes) {
    throw Malformed{fmt::format("expected at most {} bytes, found {}", kMaxMessageBytes, bytes.size())};
  }
  if (bytes.size() < 2 * sizeof(uint64_t) || bytes.size() % sizeof(uint64_t) != 0) {
    throw Malformed{fmt::format("expected whole 8-byte words and a checksum, found {} bytes", bytes.size())};
  }
  const auto message = bytes.first(bytes.size() - sizeof(uint64_t));
  uint64_t stated = 0;
  std::memcpy(&stated, bytes.data() + message.size(), sizeof stated);
  if (const uint64_t sum = message_checksum(kind, message); sum != stated) {
    throw Malformed{fmt::format("checksum: expected {:016x}, found {:016x}; it was damaged on its way", sum, stated)};
  }
  return message;
}

FramedMessage::FramedMessage(std::span<const std::byte> bytes) {
  const size_t num_words = bytes.size() / sizeof(capnp::word);
  kj::ArrayPtr<const capnp::word> whole(reinterpret_cast<const capnp::word*>(bytes.data()), num_words);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    copy_ = kj::heapArray<capnp::word>(num_words);
    std::memcpy(copy_.begin(), bytes.data(), bytes.size());
    whole = copy_;
  }
  // An honest reader visits each word once. So the traversal limit is the message itself: pointers that lead many times
  // to the same words, or lists of nothing, run out of it before they can multiply into memory.
  capnp::ReaderOptions options;
  options.traversalLimitInWords = num_words;
  options.nestingLimit = kNestingLimit;
  reader_ = kj::heap<capnp::FlatArrayMessageReader>(whole, options);
  if (reader_->getEnd() != whole.end()) {
    throw Malformed{fmt::format("expected {} words as the segment table says, found {}",
                                reader_->getEnd() - whole.begin(), num_words)};
  }
}

Error truncated(std::string_view name, const kj::Exception& exception) {
  std::string reason = exception.getDescription().cStr();
  reason.resize(std::min(reason.size(), reason.find('\n')));
  return Error{Errc::kTruncatedFrame, fmt::format("{}: {}", name, one_line(reason, kMaxTextBytes))};
}

}  // namespace helios::wire

namespace helios {

uint64_t message_checksum(MessageKind kind, std::span<const std::byte> words) {
  uint64_t sum = (words.size() << 8) | static_cast<uint64_t>(kind);
  for (size_t at = 0; at + sizeof(uint64_t) <= words.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, words.data() + at, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;  // odd, and the shift is invertible: no change within one word is lost
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace helios
