#include "worker/bench/rank_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>

#include "common/contract/completion_layout.h"

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLongestPrompt = 512, kLongestScored = 2048;
constexpr int kSlotPositions = 96;  // context and steps, in whole blocks

int blocks_for(int positions, int block_size) { return (positions + block_size - 1) / block_size; }

}  // namespace

CoreConfig bench_core(const BenchOptions& options, const ModelConfig& config) {
  const bool scored = options.contents == BenchContents::kScored;
  const int length = std::min(config.max_positions, (scored ? kLongestScored : kLongestPrompt) + 1);
  CoreConfig core;
  core.model_dir = options.model_dir;
  core.dtype = options.dtype;
  core.kv_cache_dtype = options.kv_cache_dtype;
  core.num_threads = options.threads;
  core.slot_capacity = kBenchSlots;
  core.max_model_len = length;
  core.prefill_chunk = kBenchChunk;
  core.kv_cache_tokens = std::max(kBenchSlots * kSlotPositions, length);
  core.prompt_logprobs = scored;
  return core;
}

RankSession::RankSession(Executor& executor, Rank rank, const std::vector<BenchWork>& plan)
    : executor_(executor),
      rank_(rank),
      blocks_a_slot_(blocks_for(kSlotPositions, executor.manifest().kv_block_size)),
      epochs_(kBenchSlots, 0) {
  int slots = 0;
  for (const BenchWork& work : plan) slots = std::max(slots, work.prefill ? 0 : work.batch);
  const int slots_a_step = kBenchChunk / kBenchContext;
  for (int first = 0; first < slots; first += slots_a_step) {
    Submission submission = blank(Operation::kPrefill);
    for (int slot = first; slot < std::min(first + slots_a_step, slots); ++slot) {
      add_lane(submission, slot, 0, kBenchContext);
    }
    submit(submission);
    collect(static_cast<int>(submission.lanes.size()));
  }
}

RankSession::Round RankSession::run(const BenchWork& work) { return work.prefill ? prefill(work) : decode(work); }

/// All words so far, as of the last step collected.
RankSession::Round RankSession::sent() const {
  Round round;
  for (const Executor::Counter& counter : executor_.counters()) {
    if (counter.name == "helios_exchange_words_total") round.words = counter.value;
    if (counter.name == "helios_sampler_exchange_words_total") round.sampler_words = counter.value;
  }
  return round;
}

RankSession::Round RankSession::round_since(Clock::time_point start, const Round& sent_before) const {
  Round round = sent();
  round.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  round.words -= sent_before.words;
  round.sampler_words -= sent_before.sampler_words;
  return round;
}

Submission RankSession::blank(Operation operation) {
  Submission submission;
  submission.sequence = Sequence(++sequence_);
  submission.frame = FrameIndex(static_cast<int32_t>(sequence_ % 2));
  submission.operation = operation;
  submission.logprob_requested.assign(kBenchSlots, 0);
  submission.logprob_token_id_counts.assign(kBenchSlots, 0);
  return submission;
}

/// A new tenant whose next `count` prompt tokens begin at `start`; what lies before is in the slot's blocks.
void RankSession::add_lane(Submission& submission, int slot, int start, int count, bool sampled) {
  const Epoch epoch(++epochs_[static_cast<size_t>(slot)]);
  SamplingParams sampling;
  sampling.temperature = sampled ? 1.0f : 0.0f;
  if (sampled) {
    sampling.top_k = 50;
    sampling.top_p = 0.9f;
    sampling.min_p = 0.01f;
    sampling.seed = epoch.value * uint64_t{kBenchSlots} + static_cast<uint64_t>(slot);
  }
  sampling.max_tokens = 1 << 30;
  submission.admissions.push_back({SlotIndex(slot), epoch, sampling});
  const int block_size = executor_.manifest().kv_block_size;
  // A prompt longer than a slot's own blocks runs on into its neighbours': nobody else is at work then.
  std::vector<int32_t> blocks(static_cast<size_t>(std::max(blocks_for(start + count, block_size), blocks_a_slot_)));
  std::iota(blocks.begin(), blocks.end(), slot * blocks_a_slot_);
  submission.block_updates.push_back({SlotIndex(slot), 0, std::move(blocks)});
  Lane lane{.slot = SlotIndex(slot), .epoch = epoch, .role = LaneRole::kPrefill, .start = start};
  for (int i = 0; i < count; ++i) {
    lane.tokens.push_back(
        static_cast<TokenId>((int64_t{start + i} * 7919 + slot * 104729 + 13) % executor_.manifest().vocab_size));
  }
  submission.lanes.push_back(std::move(lane));
}

void RankSession::submit(const Submission& submission) {
  const Status status = executor_.submit(submission);
  if (!status.ok()) throw std::runtime_error("the core refused a submission: " + status.error().message);
}

/// The lanes that sample must have emitted: a step that computes nothing would look fast.
Completion RankSession::collect(int emitting_lanes) {
  Completion completion = executor_.collect();
  if (rank_ != Rank(0)) return completion;
  const auto words = static_cast<size_t>(record_words(completion.token_capacity));
  for (size_t lane = 0; lane < static_cast<size_t>(emitting_lanes); ++lane) {
    if (completion.records.at(lane * words + record_word::kEmitted) != 1) {
      throw std::runtime_error(fmt::format("lane {} of submission {} emitted no token: are the model's logits finite?",
                                           lane, completion.sequence.value));
    }
  }
  return completion;
}

/// Chunks follow each other as in service, two in flight; every chunk of a scored prompt brings its rows home.
RankSession::Round RankSession::prefill(const BenchWork& work) {
  std::vector<Submission> chunks;
  Submission whole;  // cut into what is sent
  add_lane(whole, 0, 0, work.tokens);
  const Lane& prompt = whole.lanes[0];
  for (int first = 0; first < work.tokens; first += kBenchChunk) {
    const int count = std::min(kBenchChunk, work.tokens - first);
    Submission s = blank(work.scored ? Operation::kScoredPrefill : Operation::kPrefill);
    if (first == 0) s.admissions = whole.admissions, s.block_updates = whole.block_updates;
    Lane lane{.slot = prompt.slot, .epoch = prompt.epoch, .role = LaneRole::kPrefill, .start = first};
    lane.samples = first + count == work.tokens;
    lane.tokens.assign(prompt.tokens.begin() + first, prompt.tokens.begin() + first + count);
    for (int at = first + 1; work.scored && at <= first + count; ++at)
      s.prompt_target_tokens.push_back(at < work.tokens ? prompt.tokens[static_cast<size_t>(at)] : kNoTarget);
    s.lanes.push_back(std::move(lane));
    chunks.push_back(std::move(s));
  }
  const Round before = sent();
  const auto start = Clock::now();
  const auto finish = [&](const Submission& chunk) {
    const Completion done = collect(chunk.lanes[0].samples ? 1 : 0);
    if (work.scored && rank_ == Rank(0) &&
        done.prompt_rows.at(prompt_score_word::kActualId) != chunk.lanes[0].tokens[1])
      throw std::runtime_error("a scored prefill brought no scores");
  };
  for (size_t i = 0; i < chunks.size(); ++i) {
    submit(chunks[i]);
    if (i > 0) finish(chunks[i - 1]);
  }
  finish(chunks.back());
  return round_since(start, before);
}

RankSession::Round RankSession::decode(const BenchWork& work) {
  const int batch = work.batch;
  Submission reset = blank(Operation::kPrefill);
  for (int slot = 0; slot < batch; ++slot) add_lane(reset, slot, kBenchContext - 1, 1, work.sampled);
  submit(reset);
  collect(batch);

  std::vector<Submission> steps;
  for (int step = 0; step < kBenchSteps; ++step) {
    steps.push_back(blank(Operation::kDecode));
    for (int slot = 0; slot < batch; ++slot) {
      steps.back().lanes.push_back({.slot = SlotIndex(slot), .epoch = Epoch(epochs_[static_cast<size_t>(slot)])});
      steps.back().logprob_requested[static_cast<size_t>(slot)] = work.logprobs > 0 ? 1 : 0;
    }
  }
  const Round before = sent();
  const auto start = Clock::now();
  for (int step = 0; step < kBenchSteps; ++step) {
    submit(steps[static_cast<size_t>(step)]);
    if (step > 0) collect(batch);
  }
  collect(batch);
  return round_since(start, before);
}

}  // namespace helios
