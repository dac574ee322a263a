// What the executor's tests share: the tiny checkpoint, submissions by hand, and what a completion says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/test_cluster.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {

/// The tiny checkpoint on disk, for a test's life.
class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() { write_tiny_checkpoint(directory_.path()); }

  CoreConfig config() const {
    return {
        .model_dir = directory_.path(), .slot_capacity = 4, .prefill_chunk = 32, .kv_cache_tokens = 4 * kTinyContext};
  }

  const TemporaryDirectory directory_;
};

/// Submissions by hand: slot s owns blocks [4 s, 4 s + 4).
class Hand {
 public:
  explicit Hand(TestCluster& cluster) : cluster_(cluster) {
    const auto has = [&](std::string_view name) {
      return std::any_of(cluster.manifest().buffers.begin(), cluster.manifest().buffers.end(),
                         [&](const BufferDeclaration& b) { return b.name == name; });
    };
    const auto capacity = static_cast<size_t>(cluster.manifest().slot_capacity);
    if (has(buffer_name::kRequested)) flags_.assign(capacity, 0);
    if (has(buffer_name::kTokenIdCounts)) counts_.assign(capacity, 0);
  }

  Submission blank(Operation operation) {
    return {.sequence = Sequence(++sequence_),
            .frame = FrameIndex(static_cast<int32_t>(sequence_ % 2)),
            .operation = operation,
            .logprob_requested = flags_,
            .logprob_token_id_counts = counts_};
  }
  static void admit(Submission& s, int slot, uint32_t epoch, SamplingParams sampling = greedy(8)) {
    s.admissions.push_back({SlotIndex(slot), Epoch(epoch), std::move(sampling)});
    s.block_updates.push_back({SlotIndex(slot), 0, {4 * slot, 4 * slot + 1, 4 * slot + 2, 4 * slot + 3}});
  }
  static void prefill(Submission& s, int slot, uint32_t epoch, std::vector<TokenId> tokens, int start = 0,
                      bool samples = true) {
    s.lanes.push_back({SlotIndex(slot), Epoch(epoch), LaneRole::kPrefill, start, samples, std::move(tokens)});
  }
  static void decode(Submission& s, int slot, uint32_t epoch) {
    s.lanes.push_back({.slot = SlotIndex(slot), .epoch = Epoch(epoch)});
  }
  static void ask(Submission& s, int slot, std::vector<TokenId> ids = {}) {
    s.logprob_requested[static_cast<size_t>(slot)] = 1;
    if (ids.empty()) return;
    s.logprob_token_id_counts[static_cast<size_t>(slot)] = static_cast<int32_t>(ids.size());
    s.logprob_token_ids.push_back({SlotIndex(slot), std::move(ids)});
  }

  Completion run(const Submission& s) {
    const Status status = cluster_.submit(s);
    if (!status.ok()) {
      ADD_FAILURE() << status.error().message;
      return {};
    }
    return cluster_.collect();
  }
  /// Admits and prefills in one submission.
  Completion start(int slot, uint32_t epoch, std::vector<TokenId> prompt, SamplingParams sampling = greedy(8)) {
    Submission s = blank(Operation::kPrefill);
    admit(s, slot, epoch, std::move(sampling));
    prefill(s, slot, epoch, std::move(prompt));
    return run(s);
  }
  Completion step(int slot, uint32_t epoch) {
    Submission s = blank(Operation::kDecode);
    decode(s, slot, epoch);
    return run(s);
  }

 private:
  TestCluster& cluster_;
  std::vector<int32_t> flags_, counts_;
  uint64_t sequence_ = 0;
};

inline int64_t word(const Completion& c, int number, size_t lane = 0) {
  return c.records.at(lane * static_cast<size_t>(record_words(c.token_capacity)) + static_cast<size_t>(number));
}
inline int64_t emitted(const Completion& c, size_t lane = 0) { return word(c, record_word::kEmitted, lane); }
inline TokenId token(const Completion& c, size_t lane = 0) {
  return static_cast<TokenId>(word(c, record_word::kTokens, lane));
}
inline FinishCode finish(const Completion& c, size_t lane = 0) {
  return static_cast<FinishCode>(word(c, record_word::kFinish, lane));
}

}  // namespace helios::testing
