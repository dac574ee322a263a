#include "coordinator/completion/record_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace helios {
namespace {

const ExpectedRecord kExpected{SlotIndex(3), Epoch(7), Sequence(42), 8, 100};

std::vector<int64_t> good_record() {
  std::vector<int64_t> words(record_words(8), 0);
  words[record_word::kAbi] = kRecordAbi;
  words[record_word::kSlot] = 3;
  words[record_word::kEpoch] = 7;
  words[record_word::kOperation] = 3;
  words[record_word::kSequence] = 42;
  words[record_word::kEmitted] = 2;
  words[record_word::kTokens] = 11;
  words[record_word::kTokens + 1] = 99;
  words[record_word::kTokens + 2] = 1 << 30;  // past the emitted prefix: never looked at
  return words;
}

TEST(RecordReader, ReadsTheEmittedPrefix) {
  auto words = good_record();
  words[record_word::kForcedMask] = 2;
  words[record_word::kFinish] = 3;
  const auto record = read_record(words, kExpected);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(std::vector<int64_t>(record->tokens.begin(), record->tokens.end()), (std::vector<int64_t>{11, 99}));
  EXPECT_EQ(record->finish, FinishCode::kTokenLimit);
  EXPECT_FALSE(record->forced(0));
  EXPECT_TRUE(record->forced(1));
}

TEST(RecordReader, AnotherTenancyOrSubmissionIsAMismatch) {
  for (const int word : {record_word::kAbi, record_word::kSlot, record_word::kEpoch, record_word::kSequence}) {
    auto words = good_record();
    words[word] += 1;
    const auto record = read_record(words, kExpected);
    ASSERT_FALSE(record.ok()) << word;
    EXPECT_EQ(record.error().code, Errc::kMismatch) << word;
  }
  auto words = good_record();
  words[record_word::kEpoch] += int64_t{1} << 32;  // equal in the low half only
  EXPECT_FALSE(read_record(words, kExpected).ok());
}

TEST(RecordReader, CountsCodesAndTokensOutOfRangeAreErrors) {
  const std::pair<int, int64_t> bad[] = {{record_word::kEmitted, 9},
                                         {record_word::kEmitted, -1},
                                         {record_word::kEmitted, std::numeric_limits<int64_t>::min()},
                                         {record_word::kFinish, 6},
                                         {record_word::kFinish, -1},
                                         {record_word::kProposalsOffered, -1},
                                         {record_word::kProposalsOffered, 8},
                                         {record_word::kProposalsAccepted, -1},
                                         {record_word::kProposalsAccepted, 1},  // none were offered
                                         {record_word::kTokens, 100},
                                         {record_word::kTokens + 1, -1}};
  for (const auto& [word, value] : bad) {
    auto words = good_record();
    words[word] = value;
    const auto record = read_record(words, kExpected);
    ASSERT_FALSE(record.ok()) << word << " " << value;
    EXPECT_EQ(record.error().code, Errc::kInternal);
  }
}

TEST(RecordReader, ARecordOfAnotherLengthIsTruncated) {
  auto words = good_record();
  words.pop_back();
  EXPECT_EQ(read_record(words, kExpected).error().code, Errc::kTruncatedFrame);
  EXPECT_EQ(read_record({}, kExpected).error().message, "record of slot 3 (submission 42): length is 0, expected 24");
}

}  // namespace
}  // namespace helios
