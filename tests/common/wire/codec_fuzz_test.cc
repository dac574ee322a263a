// Bytes that no sender of ours made: decoders answer with an Error, or with a message that encodes back to itself. They
// never crash, and never allocate much more than the message's own size.
#include <gtest/gtest.h>

#include <cstring>

#include "common/wire/codec.h"
#include "tests/common/wire/allocation_watch.h"
#include "tests/common/wire/random_messages.h"

namespace helios {
namespace {

using testing::bytes_of;
using testing::RandomMessages;
using testing::same_message;

/// The same bytes with the checksum that they would need, so that what fuzz does to them reaches the decoder.
std::string sealed(MessageKind kind, std::span<const std::byte> bytes) {
  const auto words = bytes.first(bytes.size() / 8 * 8);
  const uint64_t sum = message_checksum(kind, words);
  std::string out(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return out.append(reinterpret_cast<const char*>(&sum), sizeof sum);
}
/// A message without its checksum.
std::string body_of(std::string encoded) {
  encoded.resize(encoded.size() - 8);
  return encoded;
}
std::string encode(const Submission& m) { return body_of(encode_submission(m)); }

/// All three decoders on the same bytes, checksum added; each either refuses with a one-line message or is stable under
/// re-encoding. Returns how many accepted.
int decode_anything(std::span<const std::byte> bytes) {
  int accepted = 0;
  const auto check_error = [](const Error& error) {
    EXPECT_TRUE(error.code == Errc::kTruncatedFrame || error.code == Errc::kInvalidArgument) << error.message;
    EXPECT_FALSE(error.message.empty());
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  };
  const std::string for_submission = sealed(MessageKind::kSubmission, bytes);
  const std::string for_completion = sealed(MessageKind::kCompletion, bytes);
  const std::string for_control = sealed(MessageKind::kControl, bytes);
  testing::forget_allocations();
  const auto submission = decode_submission(bytes_of(for_submission));
  const auto completion = decode_completion(bytes_of(for_completion));
  const auto control = decode_control(bytes_of(for_control));
  EXPECT_LE(testing::largest_allocation(), 64 * bytes.size() + (64 << 10)) << "for " << bytes.size() << " bytes";
  if (submission.ok()) {
    ++accepted;
    EXPECT_EQ(decode_submission(bytes_of(encode_submission(*submission))).value(), *submission);
  } else {
    check_error(submission.error());
  }
  if (completion.ok()) {
    ++accepted;
    EXPECT_EQ(decode_completion(bytes_of(encode_completion(*completion))).value(), *completion);
  } else {
    check_error(completion.error());
  }
  if (control.ok()) {
    ++accepted;
    EXPECT_TRUE(same_message(decode_control(bytes_of(encode_control(*control))).value(), *control));
  } else {
    check_error(control.error());
  }
  return accepted;
}

std::vector<std::string> sample_messages(uint64_t seed) {
  RandomMessages random(seed);
  std::vector<std::string> out = {encode(random.submission()), body_of(encode_completion(random.completion()))};
  for (size_t kind = 0; kind < RandomMessages::kControlKinds; ++kind)
    out.push_back(body_of(encode_control(random.control(kind))));
  return out;
}

TEST(CodecFuzz, EveryTruncationIsRefused) {
  for (const std::string& whole : sample_messages(11)) {
    const size_t step = std::max<size_t>(1, whole.size() / 500);
    for (size_t length = 0; length < whole.size(); length += step) {
      EXPECT_EQ(decode_anything(bytes_of(whole).first(length)), 0) << length << " of " << whole.size();
    }
  }
}

TEST(CodecFuzz, TrailingBytesAreRefused) {
  for (const std::string& whole : sample_messages(12)) {
    for (const size_t extra : {1u, 7u, 8u, 64u}) {
      EXPECT_EQ(decode_anything(bytes_of(whole + std::string(extra, '\0'))), 0);
    }
  }
}

TEST(CodecFuzz, EveryFlippedBitOfASealedMessageIsRefused) {
  RandomMessages random(40);
  for (int round = 0; round < 3; ++round) {
    const std::string whole = encode_completion(random.completion());
    const size_t step = std::max<size_t>(1, whole.size() * 8 / 4000);
    for (size_t bit = 0; bit < whole.size() * 8; bit += step) {
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      const auto result = decode_completion(bytes_of(flipped));
      ASSERT_FALSE(result.ok()) << "bit " << bit;
      EXPECT_NE(result.error().message.find("checksum"), std::string::npos) << result.error().message;
    }
  }
}

TEST(CodecFuzz, AMessageOfOneKindIsNoneOfAnother) {
  RandomMessages random(41);
  EXPECT_FALSE(decode_completion(bytes_of(encode_submission(random.submission()))).ok());
  EXPECT_FALSE(decode_submission(bytes_of(encode_control(random.control(0)))).ok());
  EXPECT_FALSE(decode_control(bytes_of(encode_completion(random.completion()))).ok());
}

TEST(CodecFuzz, SingleBitFlipsNeverCrash) {
  for (uint64_t seed = 20; seed < 23; ++seed) {
    for (const std::string& whole : sample_messages(seed)) {
      const size_t step = std::max<size_t>(1, whole.size() * 8 / 1500);
      for (size_t bit = seed % step; bit < whole.size() * 8; bit += step) {
        std::string flipped = whole;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        decode_anything(bytes_of(flipped));
      }
    }
  }
}

TEST(CodecFuzz, RandomWordOverwritesNeverCrash) {
  RandomMessages random(30);
  for (int round = 0; round < 60; ++round) {
    for (std::string damaged : sample_messages(1000 + round)) {
      for (int64_t n = random.between(1, 4); n > 0; --n) {
        const uint64_t word = random.coin() ? random.bits() : random.bits() & 0x0000ffff0000ffff;
        std::memcpy(damaged.data() + random.between(0, damaged.size() / 8 - 1) * 8, &word, 8);
      }
      decode_anything(bytes_of(damaged));
    }
  }
}

TEST(CodecFuzz, RandomBytesNeverCrash) {
  RandomMessages random(31);
  for (int round = 0; round < 3000; ++round) {
    std::string noise(random.between(0, 40) * 8 + random.between(0, 1) * random.between(0, 7), '\0');
    for (char& c : noise) c = static_cast<char>(random.coin() ? random.between(0, 255) : random.between(0, 3));
    if (noise.size() > 8 && random.coin()) {  // an honest segment table, so that the noise reaches the pointers
      const uint32_t table[2] = {0, static_cast<uint32_t>(noise.size() / 8 - 1)};
      std::memcpy(noise.data(), table, sizeof table);
    }
    decode_anything(bytes_of(noise));
  }
}

TEST(CodecFuzz, MisalignedBytesDecodeTheSame) {
  RandomMessages random(32);
  const Submission sent = random.submission();
  const std::string whole = encode_submission(sent);
  for (size_t offset = 0; offset < 8; ++offset) {
    const std::string shifted = std::string(offset, 'x') + whole;
    const auto result = decode_submission(bytes_of(shifted).subspan(offset));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, sent);
  }
}

// Hand-made messages: an honest empty submission whose pointer number `pointer` leads to words that we append.
// Layout: [segment table][root pointer][2 data words][6 pointers].
constexpr size_t kFirstPointerWord = 4;
enum SubmissionPointer { kAdmissionsPointer, kBlockUpdatesPointer, kLanesPointer };

std::string with_appended(SubmissionPointer pointer, const std::vector<uint64_t>& words, uint32_t size_code,
                          uint32_t size) {
  Submission empty;
  empty.operation = Operation::kDecode;
  std::string out = encode(empty);
  const size_t target = out.size() / 8;
  const size_t at = kFirstPointerWord + pointer;
  const uint64_t value =
      1 | uint64_t{static_cast<uint32_t>((target - at - 1) << 2)} | uint64_t{size_code} << 32 | uint64_t{size} << 35;
  std::memcpy(out.data() + at * 8, &value, 8);
  for (const uint64_t word : words) out.append(reinterpret_cast<const char*>(&word), 8);
  const auto segment_words = static_cast<uint32_t>(out.size() / 8 - 1);
  std::memcpy(out.data() + 4, &segment_words, 4);
  return out;
}

Result<Submission> decode_sealed(const std::string& body) {
  return decode_submission(bytes_of(sealed(MessageKind::kSubmission, bytes_of(body))));
}

TEST(CodecFuzz, ListsOfNothingCannotClaimMillionsOfElements) {
  constexpr uint64_t kElements = (1u << 29) - 1;
  const uint64_t tag = kElements << 2;  // struct elements of no words at all
  const std::string message = with_appended(kLanesPointer, {tag}, 7, 0);
  EXPECT_FALSE(decode_sealed(message).ok());
  decode_anything(bytes_of(message));
  const std::string voids = with_appended(kLanesPointer, {}, 0, kElements);
  EXPECT_FALSE(decode_sealed(voids).ok());
  decode_anything(bytes_of(voids));
}

TEST(CodecFuzz, PointersThatShareATargetCannotMultiplyIt) {
  constexpr uint64_t kUpdates = 1000, kBlocks = 20000;
  std::vector<uint64_t> words = {kUpdates << 2 | uint64_t{1} << 32 | uint64_t{1} << 48};
  for (uint64_t i = 0; i < kUpdates; ++i) {
    const uint64_t to_end = (kUpdates - 1 - i) * 2;
    words.push_back(0);                                                    // slot 0, first 0
    words.push_back(1 | to_end << 2 | uint64_t{4} << 32 | kBlocks << 35);  // int32 list, behind the last element
  }
  words.resize(words.size() + kBlocks / 2);
  const std::string message = with_appended(kBlockUpdatesPointer, words, 7, kUpdates * 2);
  const auto result = decode_sealed(message);  // would be 80 MB of blocks from 96 KB
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kTruncatedFrame) << result.error().message;
}

TEST(CodecFuzz, OneHonestTargetOfTheSameShapeIsAccepted) {  // the hand-made layout above is what Cap'n Proto reads
  const std::vector<uint64_t> words = {uint64_t{1} << 2 | uint64_t{1} << 32 | uint64_t{1} << 48, 0,
                                       1 | uint64_t{4} << 32 | uint64_t{2} << 35, 0x0000000900000008};
  const auto result = decode_sealed(with_appended(kBlockUpdatesPointer, words, 7, 2));
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->block_updates.size(), 1u);
  EXPECT_EQ(result->block_updates[0].blocks, (std::vector<int32_t>{8, 9}));
}

TEST(CodecFuzz, OversizeMessagesAreRefusedUnread) {
  const std::string huge(kMaxMessageBytes + 8, '\0');
  EXPECT_EQ(decode_anything(bytes_of(huge)), 0);
}

}  // namespace
}  // namespace helios
