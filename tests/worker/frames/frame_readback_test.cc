// What leaves a frame for host memory: when, of whom, how wide, and what is never handed on.
#include "worker/frames/frame_readback.h"

#include <gtest/gtest.h>

#include <future>

namespace helios {
namespace {

constexpr int32_t kCapacity = 5, kT = 3;

CoreShape shape() {
  return {.slot_capacity = kCapacity, .token_capacity = kT, .alternatives = kMaxNaturalAlternatives, .token_ids = true};
}

/// A core's outputs in which every payload word says where it lies, and a step that a test opens.
class Frames {
 public:
  explicit Frames(Rank rank = Rank(0))
      : outputs_(shape(), *backend_),
        summaries_(backend_->device_memory(2 * sizeof(StepSummary))),
        readback(outputs_, summaries_.as<StepSummary>(), rank, *backend_) {
    for (int32_t frame = 0; frame < 2; ++frame) {
      for (int32_t slot = 0; slot < kCapacity; ++slot) {
        for (int32_t w = 0; w < kT * kPackedWords; ++w) {
          outputs_.packed(FrameIndex(frame))[slot * kT * kPackedWords + w] = word_at(frame, slot, 0, w);
        }
        record(frame, slot)[record_word::kSlot] = slot;
      }
      summaries_.as<StepSummary>()[frame] = {.digest = 100u + static_cast<uint64_t>(frame),
                                             .counters = {.steps = 7 + frame}};
    }
  }
  static int32_t word_at(int32_t frame, int32_t slot, int32_t position, int32_t word) {
    return frame * 1000000 + slot * 10000 + position * kPackedWords + word;
  }
  int64_t* record(int32_t frame, int32_t slot) { return outputs_.records(FrameIndex(frame)) + slot * record_words(kT); }
  void emits(int32_t frame, int32_t slot, int64_t count) { record(frame, slot)[record_word::kEmitted] = count; }

  void step(const Submission& s) {
    stream_->record(*produced_);
    readback.enqueue(s, *produced_);
  }
  CollectedFrame run(const Submission& s) {
    step(s);
    return readback.collect(s.frame);
  }
  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Backend> backend_ = make_cpu_backend();
  CompletionOutputs outputs_;
  Memory summaries_;
  std::unique_ptr<Event> produced_ = backend_->make_event();
  std::unique_ptr<Stream> stream_ = backend_->make_stream("compute");

 public:
  FrameReadback readback;
};

Submission submission(Operation operation, std::vector<int32_t> slots, int32_t frame = 0) {
  Submission s{.incarnation = 3,
               .sequence = Sequence(9),
               .frame = FrameIndex(frame),
               .operation = operation,
               .logprob_requested = std::vector<int32_t>(kCapacity, 0),
               .logprob_token_id_counts = std::vector<int32_t>(kCapacity, 0)};
  for (const int32_t slot : slots) s.lanes.push_back({.slot = SlotIndex(slot), .epoch = Epoch(1)});
  return s;
}

// R26: the chosen pair and the first W pairs of the emitted position, of slots that asked and of no other.
TEST(FrameReadback, R26_CopiesTheRequestedPartOfTheFrame) {
  for (const int32_t frame : {0, 1}) {
    Frames frames;
    Submission s = submission(Operation::kDecode, {4, 1, 2}, frame);
    for (const int32_t slot : {0, 1, 2, 4}) frames.emits(frame, slot, 1);
    s.logprob_requested = {0, 1, 0, 0, 1};
    const CollectedFrame out = frames.run(s);
    const Completion& c = out.completion;
    EXPECT_EQ(c.sequence, Sequence(9));
    EXPECT_EQ(c.incarnation, 3u);
    EXPECT_EQ(c.record_digest, 100u + static_cast<uint64_t>(frame));
    EXPECT_EQ(out.counters.steps, 7 + frame);
    EXPECT_EQ(c.width, kMaxNaturalAlternatives);
    ASSERT_EQ(c.records.size(), 3u * record_words(kT));
    EXPECT_EQ(c.records[record_word::kSlot], 4) << "lane order";
    ASSERT_EQ(c.payloads.size(), 2u) << "slot 2 did not ask";
    for (size_t i = 0; i < 2; ++i) {
      const int32_t slot = i == 0 ? 4 : 1;
      EXPECT_EQ(c.payloads[i].slot, SlotIndex(slot));
      ASSERT_EQ(c.payloads[i].words.size(), 42u);
      for (int32_t w = 0; w < 42; ++w) EXPECT_EQ(c.payloads[i].words[w], Frames::word_at(frame, slot, 0, w));
    }
    EXPECT_EQ(frames.readback.payload_copies(), 2) << "slots that are not neighbours";
    EXPECT_EQ(c.bytes_copied,
              static_cast<int64_t>(sizeof(StepSummary)) + kCapacity * record_words(kT) * 8 + 2 * 42 * 4);
  }
}

// R16, R26: a verification can emit T positions; of each slot those that its record emits are handed on.
TEST(FrameReadback, R26_AVerificationHandsOnEveryEmittedPosition) {
  Frames frames;
  Submission s = submission(Operation::kVerify, {0, 1, 3});
  frames.emits(0, 0, 3);
  frames.emits(0, 1, 2);
  frames.emits(0, 3, 1);
  s.logprob_requested = {1, 1, 0, 1, 0};
  s.logprob_token_id_counts[1] = 100;
  const Completion c = frames.run(s).completion;
  EXPECT_EQ(c.width, 100) << "the larger of K and the largest selected count";
  ASSERT_EQ(c.payloads.size(), 3u);
  const int64_t emitted[] = {3, 2, 1};
  for (size_t i = 0; i < 3; ++i) {
    const int32_t slot = c.payloads[i].slot.value;
    ASSERT_EQ(c.payloads[i].words.size(), static_cast<size_t>(emitted[i] * 202));
    for (int32_t p = 0; p < emitted[i]; ++p) {
      for (int32_t w = 0; w < 202; ++w) {
        ASSERT_EQ(c.payloads[i].words[static_cast<size_t>(p * 202 + w)], Frames::word_at(0, slot, p, w)) << slot;
      }
    }
  }
  EXPECT_EQ(frames.readback.payload_copies(), 2) << "slots 0 and 1 are one copy, whole records as they are";
}

// R26: a frame with no requesting lane copies no payload; a chunk that does not sample asks for nothing.
TEST(FrameReadback, R26_NobodyAskedSoNothingIsCopied) {
  Frames frames;
  Submission s = submission(Operation::kPrefill, {0, 1});
  frames.emits(0, 0, 1);
  s.lanes[1].samples = false;
  s.logprob_requested[1] = 1;
  const Completion c = frames.run(s).completion;
  EXPECT_EQ(c.width, 0);
  EXPECT_TRUE(c.payloads.empty());
  EXPECT_EQ(frames.readback.payload_copies(), 0);
  EXPECT_EQ(c.bytes_copied, static_cast<int64_t>(sizeof(StepSummary)) + kCapacity * record_words(kT) * 8);
}

// R19: what a slot holds from an earlier step is not handed on when its record emits nothing.
TEST(FrameReadback, R19_StalePayloadIsNeverHandedOn) {
  Frames frames;
  Submission s = submission(Operation::kDecode, {0, 1});
  s.logprob_requested = {1, 1, 0, 0, 0};
  frames.emits(0, 1, 1);
  const Completion c = frames.run(s).completion;
  ASSERT_EQ(c.payloads.size(), 1u);
  EXPECT_EQ(c.payloads[0].slot, SlotIndex(1));
  // Nor do flags outlive their submission.
  s.logprob_requested = {0, 0, 0, 0, 0};
  EXPECT_TRUE(frames.run(s).completion.payloads.empty());
}

// R28: a peer copies what the ranks compare and its own counters.
TEST(FrameReadback, R28_APeerCopiesItsSummaryAlone) {
  Frames frames(Rank(1));
  Submission s = submission(Operation::kDecode, {0, 1}, 1);
  frames.emits(1, 0, 1);
  s.logprob_requested[0] = 1;
  const CollectedFrame out = frames.run(s);
  EXPECT_EQ(out.completion.record_digest, 101u);
  EXPECT_EQ(out.counters.steps, 8);
  EXPECT_TRUE(out.completion.records.empty());
  EXPECT_TRUE(out.completion.payloads.empty());
  EXPECT_EQ(frames.readback.payload_copies(), 0);
  EXPECT_EQ(out.completion.bytes_copied, static_cast<int64_t>(sizeof(StepSummary)));
}

// R26: the copy waits for the producing event, and a frame is in transfer until then; the other frame is not held up.
TEST(FrameReadback, R26_TheCopyWaitsForTheProducingEvent) {
  Frames frames;
  std::promise<void> opened;
  frames.stream().begin_capture();
  frames.stream().launch([&](const Launcher&) {
    opened.get_future().wait();
    frames.emits(0, 2, 1);
    frames.record(0, 2)[record_word::kTokens] = 55;
  });
  const std::unique_ptr<Graph> graph = frames.stream().end_capture();
  frames.stream().replay(*graph);
  const Submission s = submission(Operation::kDecode, {2});
  frames.step(s);
  EXPECT_FALSE(frames.readback.arrived(FrameIndex(0)));
  EXPECT_TRUE(frames.readback.arrived(FrameIndex(1)));
  opened.set_value();
  const Completion c = frames.readback.collect(FrameIndex(0)).completion;
  EXPECT_TRUE(frames.readback.arrived(FrameIndex(0)));
  EXPECT_EQ(c.records[record_word::kTokens], 55);
}

}  // namespace
}  // namespace helios
