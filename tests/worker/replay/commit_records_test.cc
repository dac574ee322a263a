// The shared commit on its own: what it writes, what it leaves alone, and the digest that ranks compare.
#include "worker/replay/commit_records.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/contract/completion_layout.h"

namespace helios {
namespace {

constexpr int kCapacity = 3, kT = 2;
constexpr int kWords = record_words(kT);

/// Two frames full of a guard value, one lane of slot 1.
struct Commit {
  StepHeader header{.sequence = 42, .operation = static_cast<int32_t>(Operation::kDecode), .frame = 1, .num_lanes = 1};
  std::vector<LaneInput> lanes{{.slot = 1, .epoch = 5, .decodes = 1, .samples = 1}};
  std::vector<SlotState> slots = std::vector<SlotState>(kCapacity);
  std::vector<LaneFate> fates{LaneFate::kRuns};
  std::vector<int32_t> sampling{0};
  std::vector<TokenId> sampled{77};
  std::vector<int64_t> frames = std::vector<int64_t>(2 * kCapacity * kWords, -9);
  uint64_t digests[2] = {1, 1};
  AdmissionInput admission{};

  Commit() { slots[1] = {.epoch = 5, .position = 10, .last_token = 3, .generated = 1, .max_tokens = 9, .finished = 0}; }
  int64_t* record(int frame, int slot) { return frames.data() + (frame * kCapacity + slot) * kWords; }
  int64_t* run() {
    commit_records({.inputs = {.header = &header, .lanes = lanes.data(), .admissions = &admission},
                    .slots = slots.data(),
                    .lane_fates = fates.data(),
                    .lane_sampling = sampling.data(),
                    .sampled = sampled.data(),
                    .records = {record(0, 0), record(1, 0)},
                    .token_capacity = kT,
                    .max_model_len = 100,
                    .digests = digests});
    return record(header.frame, 1);
  }
  int64_t finish() { return record(header.frame, 1)[record_word::kFinish]; }
};

TEST(CommitRecords, WritesOnlyTheLanesRecordOfTheActiveFrame) {
  Commit c;
  const int64_t* r = c.run();
  const std::vector<int64_t> expected{6, 1, 5, 3, 42, 1, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 77, 0};
  EXPECT_EQ(std::vector<int64_t>(r, r + kWords), expected);
  for (int frame = 0; frame < 2; ++frame) {
    for (int slot = 0; slot < kCapacity; ++slot) {
      if (frame == 1 && slot == 1) continue;
      for (int w = 0; w < kWords; ++w) ASSERT_EQ(c.record(frame, slot)[w], -9) << frame << " " << slot;
    }
  }
  EXPECT_EQ(c.digests[0], 1u);
  EXPECT_NE(c.digests[1], 1u);
  EXPECT_EQ(c.slots[1].last_token, 77);
  EXPECT_EQ(c.slots[1].position, 11);
  EXPECT_EQ(c.slots[1].generated, 2);
}

TEST(CommitRecords, ADeadLaneLeavesTheSlotAlone) {
  Commit c;
  c.fates[0] = LaneFate::kDead;
  c.lanes[0].epoch = 4;
  c.sampling[0] = -1;
  const int64_t* r = c.run();
  EXPECT_EQ(r[record_word::kEmitted], 0);
  EXPECT_EQ(r[record_word::kEpoch], 4);
  EXPECT_EQ(r[record_word::kFinish], 0);
  EXPECT_EQ(c.slots[1].position, 10);
  EXPECT_FALSE(c.slots[1].finished);
}

TEST(CommitRecords, ARowWithoutAFiniteLogitEndsItsRequestInError) {
  Commit c;
  c.sampled[0] = -1;
  EXPECT_EQ(c.run()[record_word::kEmitted], 0);
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kError));
  EXPECT_TRUE(c.slots[1].finished);
}

TEST(CommitRecords, ABrokenLaneEndsItsRequestInError) {
  Commit c;
  c.fates[0] = LaneFate::kBroken;
  c.sampling[0] = -1;
  EXPECT_EQ(c.run()[record_word::kEmitted], 0);
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kError));
  EXPECT_EQ(c.slots[1].position, 10);
}

TEST(CommitRecords, ReasonsHaveAnOrder) {
  Commit c;
  SlotState& slot = c.slots[1];
  slot.eos_id = 77;
  slot.num_stop_ids = 1;
  slot.stop_ids[0] = 77;
  slot.max_tokens = 2;
  slot.position = 98;
  const SlotState start = slot;
  c.run();
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kEos));
  slot = start, slot.eos_id = -1, c.run();
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kStopId));
  slot = start, slot.eos_id = -1, slot.num_stop_ids = 0, c.run();
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kTokenLimit));
  slot = start, slot.eos_id = -1, slot.num_stop_ids = 0, slot.max_tokens = 9, c.run();
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kContextLimit));
  slot = start, slot.eos_id = -1, slot.num_stop_ids = 0, slot.max_tokens = 9, slot.position = 97, c.run();
  EXPECT_EQ(c.finish(), static_cast<int64_t>(FinishCode::kNone));
}

TEST(CommitRecords, TheDigestSeesEveryWordAndTheLanesOrder) {
  const int64_t words[] = {6, 1, 5, 3};
  const uint64_t digest = extend_digest(7, words, 4);
  for (int i = 0; i < 4; ++i) {
    int64_t changed[] = {6, 1, 5, 3};
    ++changed[i];
    EXPECT_NE(extend_digest(7, changed, 4), digest);
  }
  const int64_t swapped[] = {1, 6, 5, 3};
  EXPECT_NE(extend_digest(7, swapped, 4), digest);
}

// R19: an admission's record emits nothing.
TEST(CommitRecords, AnAdmissionAloneWritesAnEmptyRecord) {
  Commit c;
  c.header.operation = static_cast<int32_t>(Operation::kAdmission);
  c.header.num_lanes = 0;
  c.header.num_admissions = 1;
  c.admission.slot = 1;
  c.admission.state.epoch = 8;
  const int64_t* r = c.run();
  EXPECT_EQ(r[record_word::kEpoch], 8);
  EXPECT_EQ(r[record_word::kOperation], 1);
  EXPECT_EQ(r[record_word::kEmitted], 0);
}

}  // namespace
}  // namespace helios
