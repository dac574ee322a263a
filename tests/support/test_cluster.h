// A whole tensor-parallel group in one process, and a driver that plays the coordinator: real executors over in-process
// communicators, fed the same submissions.
//
// submit() only enqueues, so one thread can drive every rank. Every completion's record digests are compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/completion_layout.h"
#include "tests/support/in_process_ranks.h"
#include "tests/support/test_device.h"
#include "worker/replay/executor.h"

namespace helios::testing {

class TestCluster {
 public:
  TestCluster(const CoreConfig& config, int world)
      : group_(world), captured_(static_cast<size_t>(world)), ranks_(static_cast<size_t>(world)) {
    for (int r = 0; r < world; ++r) communicators_.push_back(std::make_unique<InProcessCommunicator>(group_, r));
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          ranks_[r] = prepare(config, r);
        } catch (...) {
          errors[r] = std::current_exception();
          group_.abort("a rank failed to prepare");
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  /// On the device that this program is linked for.
  std::unique_ptr<Executor> prepare(const CoreConfig& config, size_t r) {
    Device device = kGpuKernels ? test_device(world()) : cpu_device(config);
    captured_[r] = captured_exchanges(*communicators_[r], device);
    return Executor::prepare(config, std::move(device), captured_[r] ? *captured_[r] : *communicators_[r], nullptr);
  }

  const CoreManifest& manifest() const { return ranks_[0]->manifest(); }
  Executor& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  int world() const { return static_cast<int>(ranks_.size()); }

  /// The same answer from every rank; nothing is in flight then if it is an error.
  Status submit(const Submission& submission) {
    Status first = ranks_[0]->submit(submission);
    for (size_t r = 1; r < ranks_.size(); ++r) {
      const Status other = ranks_[r]->submit(submission);
      EXPECT_EQ(other.ok(), first.ok()) << "rank " << r;
    }
    return first;
  }
  /// Rank 0's, after checking that the others agree on the records.
  Completion collect() {
    Completion first = ranks_[0]->collect();
    for (size_t r = 1; r < ranks_.size(); ++r) {
      const Completion other = ranks_[r]->collect();
      EXPECT_EQ(other.record_digest, first.record_digest) << "rank " << r << " at submission " << first.sequence.value;
      EXPECT_TRUE(other.records.empty() && other.payloads.empty() && other.prompt_rows.empty())
          << "only rank 0 copies values (R28)";
    }
    return first;
  }
  void abort(const std::string& reason) { group_.abort(reason); }
  double counter(int r, const std::string& name) const {
    for (const auto& c : ranks_[static_cast<size_t>(r)]->counters()) {
      if (c.name == name) return c.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return -1;
  }

 private:
  InProcessGroup group_;
  std::vector<std::unique_ptr<InProcessCommunicator>> communicators_;
  std::vector<std::unique_ptr<Communicator>> captured_;  // what a GPU's graphs capture
  std::vector<std::unique_ptr<Executor>> ranks_;
};

/// One sequence to run, and what came of it.
struct TestSequence {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  bool logprobs = false;
  std::vector<TokenId> selected;  // with logprobs: these instead of the natural alternatives
  /// The ids that may follow these tokens; with sampling.masks. Its lanes wait for the token before.
  std::function<std::vector<uint32_t>(const std::vector<TokenId>&)> mask;
  bool sample_every_chunk = false;  // every prefill chunk samples, so each emits a token; prompt scoring by hand
  bool scored = false;              // its prompt goes through scored prefills (R38)

  std::vector<TokenId> tokens;
  std::vector<std::vector<int32_t>> packed;       // one a token, when logprobs
  std::vector<std::vector<int32_t>> prompt_rows;  // one a prompt token, when scored
  FinishCode finish = FinishCode::kNone;
  bool silent_eos = false;
  int64_t kv_length = 0;
};

inline SamplingParams greedy(int max_tokens) { return {.temperature = 0.0f, .max_tokens = max_tokens}; }

/// Plays the coordinator: one slot a sequence, chunked prefill beside decoding lanes, `depth` frames in flight.
class TestDriver {
 public:
  explicit TestDriver(TestCluster& cluster, int depth = 2) : cluster_(cluster), depth_(depth) {
    const CoreManifest& m = cluster.manifest();
    for (int32_t b = m.kv_num_blocks - 1; b >= 0; --b) free_blocks_.push_back(b);
    const bool flags = std::any_of(m.buffers.begin(), m.buffers.end(),
                                   [](const auto& b) { return b.name == buffer_name::kRequested; });
    const bool ids =
        std::any_of(m.buffers.begin(), m.buffers.end(), [](const auto& b) { return b.name == buffer_name::kTokenIds; });
    if (flags) requested_zero_.assign(static_cast<size_t>(m.slot_capacity), 0);
    if (ids) counts_zero_.assign(static_cast<size_t>(m.slot_capacity), 0);
  }

  /// Runs all to their end, at most slot_capacity at once; `chunk` prompt tokens a lane (0: as many as fit).
  void run(std::vector<TestSequence>& sequences, int chunk) {
    const auto capacity = static_cast<size_t>(cluster_.manifest().slot_capacity);
    for (size_t begin = 0; begin < sequences.size(); begin += capacity) {
      const size_t end = std::min(sequences.size(), begin + capacity);
      run_batch(sequences.data() + begin, end - begin, chunk);
    }
  }

  Sequence next_sequence() { return Sequence(++sequence_); }
  FrameIndex next_frame() { return FrameIndex(static_cast<int32_t>(frame_++ % kNumFrames)); }

 private:
  struct Running {
    TestSequence* sequence;
    Epoch epoch;
    std::vector<int32_t> blocks;
    int32_t prefilled = 0;
    int32_t in_flight = 0;
    bool admitted = false;
    bool done = false;
  };

  void run_batch(TestSequence* sequences, size_t count, int chunk) {
    std::vector<Running> running(count);
    const int32_t block = cluster_.manifest().kv_block_size;
    for (size_t i = 0; i < count; ++i) {
      running[i] = {.sequence = &sequences[i], .epoch = Epoch(++epoch_)};
      const int64_t positions =
          std::min<int64_t>(cluster_.manifest().max_model_len, static_cast<int64_t>(sequences[i].prompt.size()) +
                                                                   sequences[i].sampling.max_tokens + depth_);
      for (int64_t p = 0; p < positions; p += block) {
        ASSERT_FALSE(free_blocks_.empty()) << "the test's cache is too small";
        running[i].blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
      }
    }
    while (std::any_of(running.begin(), running.end(), [](const Running& r) { return !r.done || r.in_flight > 0; })) {
      Submission s = plan(running, chunk);
      if (!s.lanes.empty()) {
        const Status status = cluster_.submit(s);
        ASSERT_TRUE(status.ok()) << status.error().message;
        flying_.push_back(std::move(s));
      }
      if (!flying_.empty() && (stalled_ || static_cast<int>(flying_.size()) >= depth_)) absorb(running);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (Running& r : running) free_blocks_.insert(free_blocks_.end(), r.blocks.begin(), r.blocks.end());
  }

  Submission plan(std::vector<Running>& running, int chunk) {
    Submission s{.logprob_requested = requested_zero_, .logprob_token_id_counts = counts_zero_};
    int32_t budget = cluster_.manifest().prefill_chunk;
    bool prefills = false, decodes = false;
    const auto scores = [](const Running& r) {
      return r.sequence->scored && !r.done && r.prefilled < static_cast<int32_t>(r.sequence->prompt.size());
    };
    const bool scored = std::any_of(running.begin(), running.end(), scores);  // a graph of its own (R43)
    for (size_t i = 0; i < running.size(); ++i) {
      Running& r = running[i];
      if (r.done || (scored && !scores(r))) continue;
      const auto prompt = static_cast<int32_t>(r.sequence->prompt.size());
      const int32_t rest = prompt - r.prefilled;
      Lane lane{.slot = SlotIndex(static_cast<int32_t>(i)), .epoch = r.epoch};
      if (rest > 0) {
        int32_t take = std::min(rest, budget);
        if (chunk > 0) take = std::min(take, chunk);
        if (take == 0) continue;
        budget -= take;
        lane.role = LaneRole::kPrefill;
        lane.start = r.prefilled;
        lane.samples = take == rest || r.sequence->sample_every_chunk;
        lane.tokens.assign(r.sequence->prompt.begin() + r.prefilled, r.sequence->prompt.begin() + r.prefilled + take);
        r.prefilled += take;
        prefills = true;
        for (int32_t p = r.prefilled - take + 1; scored && p <= r.prefilled; ++p)
          s.prompt_target_tokens.push_back(p < prompt ? r.sequence->prompt[static_cast<size_t>(p)] : kNoTarget);
      } else {
        if (static_cast<int>(r.sequence->tokens.size()) + r.in_flight >= r.sequence->sampling.max_tokens) continue;
        if (r.sequence->mask && r.in_flight > 0) continue;
        decodes = true;
      }
      if (r.sequence->mask && lane.samples) lane.mask = r.sequence->mask(r.sequence->tokens);
      admit(s, r, lane.slot);
      if (r.sequence->logprobs) request(s, r, lane.slot);
      ++r.in_flight;
      s.lanes.push_back(std::move(lane));
    }
    stalled_ = s.lanes.empty();
    if (stalled_) return s;
    s.operation = scored     ? Operation::kScoredPrefill
                  : prefills ? (decodes ? Operation::kMixed : Operation::kPrefill)
                             : Operation::kDecode;
    s.sequence = next_sequence();
    s.frame = next_frame();
    return s;
  }

  void admit(Submission& s, Running& r, SlotIndex slot) {
    if (r.admitted) return;
    r.admitted = true;
    s.admissions.push_back({.slot = slot, .epoch = r.epoch, .sampling = r.sequence->sampling});
    s.block_updates.push_back({.slot = slot, .first = 0, .blocks = r.blocks});
  }

  void request(Submission& s, Running& r, SlotIndex slot) {
    s.logprob_requested[static_cast<size_t>(slot.value)] = 1;
    if (r.sequence->selected.empty()) return;
    s.logprob_token_id_counts[static_cast<size_t>(slot.value)] = static_cast<int32_t>(r.sequence->selected.size());
    s.logprob_token_ids.push_back({.slot = slot, .ids = r.sequence->selected});
  }

  void absorb(std::vector<Running>& running) {
    const Submission s = std::move(flying_.front());
    flying_.pop_front();
    const Completion c = cluster_.collect();
    ASSERT_EQ(c.sequence.value, s.sequence.value);
    const int words = record_words(c.token_capacity);
    ASSERT_EQ(c.records.size(), s.lanes.size() * static_cast<size_t>(words));
    ASSERT_EQ(c.prompt_rows.size(), s.prompt_target_tokens.size() * kPromptScoreWords);
    auto rows = c.prompt_rows.begin();
    for (size_t l = 0; l < s.lanes.size(); ++l) {
      TestSequence& q = *running[static_cast<size_t>(s.lanes[l].slot.value)].sequence;
      for (size_t t = 0; t < s.lanes[l].tokens.size() && rows != c.prompt_rows.end(); ++t, rows += kPromptScoreWords)
        q.prompt_rows.emplace_back(rows, rows + kPromptScoreWords);
      absorb_lane(running[static_cast<size_t>(s.lanes[l].slot.value)], s.lanes[l], c.records.data() + l * words, c);
    }
  }

  void absorb_lane(Running& r, const Lane& lane, const int64_t* record, const Completion& c) {
    --r.in_flight;
    EXPECT_EQ(record[record_word::kAbi], kRecordAbi);
    EXPECT_EQ(record[record_word::kSlot], lane.slot.value);
    EXPECT_EQ(record[record_word::kEpoch], lane.epoch.value);
    EXPECT_EQ(record[record_word::kSequence], static_cast<int64_t>(c.sequence.value));
    if (r.done) {
      EXPECT_EQ(record[record_word::kEmitted], 0) << "a finished slot emits nothing";
      return;
    }
    TestSequence& q = *r.sequence;
    q.kv_length = record[record_word::kKvLength];
    q.finish = static_cast<FinishCode>(record[record_word::kFinish]);
    q.silent_eos |= (record[record_word::kFlags] & kRecordFlagSilentEos) != 0;
    if (record[record_word::kEmitted] == 1) {
      q.tokens.push_back(static_cast<TokenId>(record[record_word::kTokens]));
      if (q.logprobs) take_payload(q, lane.slot, c);
    }
    if (q.finish != FinishCode::kNone) r.done = true;
    if (!q.tokens.empty() && static_cast<int>(q.tokens.size()) >= q.sampling.max_tokens) r.done = true;
  }

  void take_payload(TestSequence& q, SlotIndex slot, const Completion& c) {
    for (const CompletionPayload& p : c.payloads) {
      if (p.slot != slot) continue;
      EXPECT_EQ(p.words.size(), static_cast<size_t>(packed_words(c.width)));
      EXPECT_EQ(p.words[kChosenId], q.tokens.back()) << "chosen equals emitted (R27)";
      // Only the slot's own pairs are meaningful: its ids, or K.
      const int own =
          q.selected.empty() ? std::min(c.width, kMaxNaturalAlternatives) : static_cast<int>(q.selected.size());
      q.packed.emplace_back(p.words.begin(), p.words.begin() + packed_words(own));
      return;
    }
    ADD_FAILURE() << "no payload for slot " << slot.value;
  }

  TestCluster& cluster_;
  const int depth_;
  std::vector<int32_t> free_blocks_, requested_zero_, counts_zero_;
  std::deque<Submission> flying_;
  uint64_t sequence_ = 0;
  uint32_t epoch_ = 0;
  int frame_ = 0;
  bool stalled_ = false;
};

}  // namespace helios::testing
