// Generation logprobs through the real path: shards, exchanges, records and packed frame, against FP64 and against the
// bits of a single rank.
//
// Tolerance: a logprob is one FP32 subtraction of a normaliser within half an ulp plus 3e-6 of the exact one; rows here
// have normalisers below 32 and logprobs above -64, so 1e-5.
#include "worker/replay/generation_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/reference.h"
#include "tests/support/count_allocations.h"
#include "tests/support/in_process_ranks.h"
#include "tests/support/logit_rows.h"

namespace helios {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kCapacity = 33;
constexpr int kTokens = 3;  // T
constexpr int32_t kUntouched = 0x5a5a5a5a;

struct Request {
  bool requested = true;
  std::vector<int32_t> ids;  // selected
};

// A step's inputs, the same on every rank but for the logits.
struct Step {
  std::vector<std::vector<float>> rows;  // whole vocabulary
  std::vector<int32_t> slots;
  std::vector<uint32_t> epochs;
  std::vector<int64_t> records = std::vector<int64_t>(kCapacity * record_words(kTokens));
  std::vector<int32_t> requested = std::vector<int32_t>(kCapacity);
  std::vector<int32_t> ids = std::vector<int32_t>(kCapacity * kMaxSelectedIds);
  std::vector<int32_t> counts = std::vector<int32_t>(kCapacity);
  bool id_inputs = true;
  int alternatives = 20;
  int position_words = kPackedWords;

  int64_t* record(int slot) { return records.data() + slot * record_words(kTokens); }

  void add(std::vector<float> row, int slot, TokenId chosen, const Request& request = {}) {
    rows.push_back(std::move(row));
    slots.push_back(slot);
    epochs.push_back(100 + slot);
    record(slot)[record_word::kAbi] = kRecordAbi;
    record(slot)[record_word::kSlot] = slot;
    record(slot)[record_word::kEpoch] = 100 + slot;
    record(slot)[record_word::kEmitted] = 1;
    record(slot)[record_word::kTokens] = chosen;
    requested[slot] = request.requested;
    counts[slot] = static_cast<int32_t>(request.ids.size());
    std::copy(request.ids.begin(), request.ids.end(), ids.begin() + slot * kMaxSelectedIds);
  }
};

struct Outcome {
  std::vector<int32_t> packed;  // [capacity, T, words] and a guard position
  GenerationLogprobs::Counters counters;
  int64_t allocated = 0;  // by a second run of the same step

  const int32_t* at(const Step& step, int slot) const { return packed.data() + slot * kTokens * step.position_words; }
};

Outcome run_rank(const Step& step, Communicator& communicator, int threads) {
  const VocabLayout layout(static_cast<int64_t>(step.rows.empty() ? 1 : step.rows[0].size()));
  const int world = communicator.world_size();
  const auto logits = testing::shard_rows(step.rows, layout, communicator.rank(), world);
  const auto before = logits;
  ThreadPool pool(threads);
  GenerationLogprobs logprobs(layout, kCapacity, kTokens, step.alternatives, step.position_words, communicator);
  Outcome outcome;
  outcome.packed.assign((kCapacity * kTokens + 1) * step.position_words, kUntouched);
  const GenerationLogprobsArgs args{.logits = logits.data(),
                                    .logits_stride = layout.shard_stride(world),
                                    .rows = static_cast<int64_t>(step.rows.size()),
                                    .row_slots = step.slots.data(),
                                    .row_epochs = step.epochs.data(),
                                    .records = step.records.data(),
                                    .packed = outcome.packed.data(),
                                    .requested = step.requested.data(),
                                    .token_ids = step.id_inputs ? step.ids.data() : nullptr,
                                    .token_id_counts = step.id_inputs ? step.counts.data() : nullptr};
  logprobs.run(args, pool);
  outcome.counters = logprobs.counters();
  if (world == 1) {  // the in-process communicator of tests allocates; the launches do not
    const int64_t start = testing::count_allocations();
    logprobs.run(args, pool);
    outcome.allocated = testing::count_allocations() - start;
  }
  // R9, R18: the reduction only reads the logits.
  EXPECT_EQ(std::memcmp(before.data(), logits.data(), logits.size() * sizeof(float)), 0);
  return outcome;
}

/// Rank 0's outcome; every rank's packed output has the same bits.
Outcome run_step(const Step& step, int world = 1, int threads = 1) {
  std::vector<Outcome> outcomes(world);
  testing::run_ranks(world, [&](Communicator& communicator) {
    outcomes[communicator.rank().value] = run_rank(step, communicator, threads);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.packed, outcomes[0].packed);
  return outcomes[0];
}

float value_of(const int32_t* position, int pair) { return bits_float(position[kPairWords * pair + 1]); }
TokenId id_of(const int32_t* position, int pair) { return position[kPairWords * pair]; }

void expect_untouched(const int32_t* begin, int64_t words) {
  for (int64_t i = 0; i < words; ++i) ASSERT_EQ(begin[i], kUntouched) << "word " << i;
}

// One position against the definition.
void expect_natural(const Step& step, const Outcome& outcome, size_t row_index) {
  const int slot = step.slots[row_index];
  const std::vector<float>& row = step.rows[row_index];
  const int32_t* position = outcome.at(step, slot);
  const TokenId chosen = static_cast<TokenId>(step.records[slot * record_words(kTokens) + record_word::kTokens]);
  EXPECT_EQ(id_of(position, 0), chosen);
  EXPECT_NEAR(value_of(position, 0), reference::logprobs(row, {&chosen, 1})[0], 1e-5);
  // The order is that of the FP32 values reported: recover the normaliser that was used from the chosen token's value.
  std::vector<TokenId> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto exact = reference::logprobs(row, ids);
  const int present = std::min<int>(step.alternatives, static_cast<int>(row.size()));
  for (int i = 1; i <= present; ++i) {
    const TokenId id = id_of(position, i);
    ASSERT_TRUE(id >= 0 && id < static_cast<TokenId>(row.size())) << id;
    EXPECT_NEAR(value_of(position, i), exact[id], 1e-5);
    if (i == 1) continue;
    const bool ordered = value_of(position, i - 1) > value_of(position, i) ||
                         (value_of(position, i - 1) == value_of(position, i) && id_of(position, i - 1) < id);
    EXPECT_TRUE(ordered) << "alternative " << i;
  }
  // Nothing left out is better than the last one kept.
  std::vector<TokenId> kept;
  for (int i = 1; i <= present; ++i) kept.push_back(id_of(position, i));
  std::sort(kept.begin(), kept.end());
  ASSERT_EQ(std::unique(kept.begin(), kept.end()), kept.end());
  const double last = exact[id_of(position, present)];
  for (size_t id = 0; id < row.size(); ++id) {
    if (!std::binary_search(kept.begin(), kept.end(), static_cast<TokenId>(id))) {
      ASSERT_LE(exact[id], last + 1e-5) << id;
    }
  }
  for (int i = present + 1; i <= step.alternatives; ++i) {
    EXPECT_EQ(id_of(position, i), -1);
    EXPECT_TRUE(std::isnan(value_of(position, i)));
  }
  expect_untouched(position + packed_words(step.alternatives), step.position_words - packed_words(step.alternatives));
}

TEST(GenerationLogprobs, MatchFloat64FromOneIdToTheWholeVocabulary) {  // R1, R5, R6, R8, R11
  for (const int64_t vocab : {1, 2, 19, 20, 21, 300, 515, 4099, 32000, 151936}) {
    Step step;
    step.add(testing::model_like_row(vocab, vocab), 4, static_cast<TokenId>(vocab / 2));
    for (const int world : {1, 2, 8}) {
      SCOPED_TRACE(::testing::Message() << "V " << vocab << ", world " << world);
      const Outcome outcome = run_step(step, world);
      expect_natural(step, outcome, 0);
      expect_untouched(outcome.packed.data() + kCapacity * kTokens * step.position_words, step.position_words);
    }
  }
}

Step mixed_step(int64_t vocab, int lanes) {
  Step step;
  testing::Random random(lanes);
  for (int lane = 0; lane < lanes; ++lane) {
    Request request;
    if (lane % 5 == 1) request.requested = false;
    if (lane % 3 == 2) {
      for (int i = 0; i < 1 + lane * 4; ++i) {
        request.ids.push_back(static_cast<int32_t>((vocab - 1 - i * 37 % vocab + vocab) % vocab));
      }
      if (lane % 2 == 0) std::reverse(request.ids.begin(), request.ids.end());
    }
    step.add(testing::model_like_row(vocab, 1000 + lane), (lane * 5) % kCapacity,
             static_cast<TokenId>(random.below(vocab)), request);
  }
  return step;
}

TEST(GenerationLogprobs, SameBitsAtEveryDegreeBatchAndThreadCount) {  // X1, R21, R22
  for (const int64_t vocab : {20, 515, 32000}) {
    // Each lane alone on one rank is the yardstick.
    const Step all = mixed_step(vocab, 32);
    std::vector<std::vector<int32_t>> alone;
    for (size_t lane = 0; lane < all.rows.size(); ++lane) {
      Step one = all;
      one.rows = {all.rows[lane]};
      one.slots = {all.slots[lane]};
      one.epochs = {all.epochs[lane]};
      const Outcome outcome = run_step(one);
      const int32_t* position = outcome.at(one, all.slots[lane]);
      alone.emplace_back(position, position + all.position_words);
    }
    for (const int world : {1, 2, 4, 8}) {
      for (const int lanes : {1, 7, 32}) {
        for (const int threads : {1, 3}) {
          if (threads == 3 && world == 8) continue;  // 24 spinning threads on a small machine
          Step batch = all;
          batch.rows.resize(lanes);
          batch.slots.resize(lanes);
          batch.epochs.resize(lanes);
          const Outcome outcome = run_step(batch, world, threads);
          for (int lane = 0; lane < lanes; ++lane) {
            const int32_t* position = outcome.at(batch, batch.slots[lane]);
            ASSERT_TRUE(std::equal(alone[lane].begin(), alone[lane].end(), position))
                << "V " << vocab << ", world " << world << ", lanes " << lanes << ", lane " << lane;
          }
        }
      }
    }
  }
}

TEST(GenerationLogprobs, SelectedIdsInTheCallersOrderWithoutNaturalOnes) {  // R7
  std::vector<int32_t> ids;
  for (int i = 0; i < kMaxSelectedIds; ++i) ids.push_back((i * 7919 + 13) % 32000);
  Step step;
  step.add(testing::model_like_row(32000, 77), 2, 31999, {.ids = ids});
  step.add(testing::model_like_row(32000, 78), 3, 5, {.ids = {31999, 0, 4000}});
  for (const int world : {1, 4}) {
    const Outcome outcome = run_step(step, world);
    for (size_t row = 0; row < 2; ++row) {
      const int32_t* position = outcome.at(step, step.slots[row]);
      const std::vector<int32_t> asked = row == 0 ? ids : std::vector<int32_t>{31999, 0, 4000};
      const auto exact = reference::logprobs(step.rows[row], asked);
      for (size_t i = 0; i < asked.size(); ++i) {
        EXPECT_EQ(id_of(position, static_cast<int>(i) + 1), asked[i]);
        EXPECT_NEAR(value_of(position, static_cast<int>(i) + 1), exact[i], 1e-5);
      }
      expect_untouched(position + packed_words(static_cast<int>(asked.size())),
                       step.position_words - packed_words(static_cast<int>(asked.size())));
    }
  }
}

TEST(GenerationLogprobs, SelectedAndNaturalReportTheSameBits) {  // R7: the same normalisation
  const auto row = testing::model_like_row(5000, 91);
  Step natural, selected;
  natural.add(row, 0, 17);
  const Outcome first = run_step(natural);
  std::vector<int32_t> ids;
  for (int i = 1; i <= 20; ++i) ids.push_back(id_of(first.at(natural, 0), i));
  selected.add(row, 0, 17, {.ids = ids});
  for (const int world : {1, 8}) {
    const Outcome second = run_step(selected, world);
    EXPECT_TRUE(std::equal(first.at(natural, 0), first.at(natural, 0) + 42, second.at(selected, 0)));
  }
}

TEST(GenerationLogprobs, ACoreWithoutIdInputsWritesNaturalOnesOnly) {  // R35
  Step step;
  step.id_inputs = false;
  step.alternatives = 7;
  step.position_words = packed_words(7);
  step.add(testing::model_like_row(700, 5), 1, 3);
  step.add(testing::model_like_row(700, 6), 32, 699);
  for (const int world : {1, 2}) {
    const Outcome outcome = run_step(step, world);
    expect_natural(step, outcome, 0);
    expect_natural(step, outcome, 1);
    expect_untouched(outcome.packed.data() + kCapacity * kTokens * step.position_words, step.position_words);
  }
}

TEST(GenerationLogprobs, RowsThatDoNotAskAreNeitherReadNorWritten) {  // R24
  Step step;
  for (int lane = 0; lane < 4; ++lane) {
    step.add(testing::model_like_row(3000, lane), lane, 1, {.requested = false});
  }
  for (const int world : {1, 2}) {
    const Outcome outcome = run_step(step, world);
    expect_untouched(outcome.packed.data(), static_cast<int64_t>(outcome.packed.size()));
    EXPECT_EQ(outcome.counters.logits_read, 0);
    EXPECT_EQ(outcome.counters.words_exchanged, 0);
    EXPECT_EQ(outcome.counters.positions, 0);
    EXPECT_EQ(outcome.counters.launches, 0);
  }
  step.requested[2] = 1;  // one of four
  const Outcome outcome = run_step(step);
  EXPECT_EQ(outcome.counters.positions, 1);
  EXPECT_GE(outcome.counters.logits_read, 3000);
  EXPECT_LE(outcome.counters.logits_read, 2 * 3000 + 1);
  expect_untouched(outcome.at(step, 0), 2 * kTokens * step.position_words);
  expect_natural(step, outcome, 2);
  expect_untouched(outcome.at(step, 2) + step.position_words, step.position_words * (kTokens - 1));
  expect_untouched(outcome.at(step, 3), kTokens * step.position_words);
}

TEST(GenerationLogprobs, OnlyRecordsOfThisTenantThatEmitAreReduced) {  // R15, R16, R19, R4
  const auto fresh = [] {
    Step step;
    step.add(testing::model_like_row(600, 8), 6, 20);
    return step;
  };
  const auto expect_nothing = [](const Step& step) {
    for (const int world : {1, 2}) {
      const Outcome outcome = run_step(step, world);
      expect_untouched(outcome.packed.data(), static_cast<int64_t>(outcome.packed.size()));
      EXPECT_EQ(outcome.counters.logits_read, 0);
    }
  };
  expect_natural(fresh(), run_step(fresh()), 0);
  Step stale_epoch = fresh();
  stale_epoch.epochs[0] = 105;
  expect_nothing(stale_epoch);
  Step other_slot = fresh();
  other_slot.record(6)[record_word::kSlot] = 7;
  expect_nothing(other_slot);
  Step silent = fresh();
  silent.record(6)[record_word::kEmitted] = 0;
  expect_nothing(silent);
  Step no_row = fresh();
  no_row.slots[0] = -1;
  expect_nothing(no_row);
  Step other_abi = fresh();
  other_abi.record(6)[record_word::kAbi] = 0;
  expect_nothing(other_abi);
  Step forced = fresh();
  forced.record(6)[record_word::kForcedMask] = 1;
  expect_nothing(forced);
}

TEST(GenerationLogprobs, ADuplicateRowOfASlotIsNotReduced) {  // R16
  Step step;
  step.add(testing::model_like_row(600, 8), 6, 20);
  step.rows.push_back(testing::model_like_row(600, 9));
  step.slots.push_back(6);
  step.epochs.push_back(106);
  const Outcome outcome = run_step(step);
  expect_natural(step, outcome, 0);
  EXPECT_EQ(outcome.counters.positions, 1);
}

TEST(GenerationLogprobs, ShardedExchangeIs512WordsAPosition) {  // R22
  const Step step = mixed_step(4099, 7);                        // five of seven ask
  for (const int world : {2, 4, 8}) {
    const Outcome outcome = run_step(step, world);
    ASSERT_EQ(outcome.counters.positions, 5);
    EXPECT_EQ(outcome.counters.words_exchanged, 5 * 512);
    EXPECT_EQ(outcome.counters.launches, 6);
  }
  const Outcome alone = run_step(step);
  EXPECT_EQ(alone.counters.words_exchanged, 0);
  EXPECT_EQ(alone.counters.launches, 4);
}

TEST(GenerationLogprobs, AStepAllocatesNothing) {  // R23
  for (const int threads : {1, 3}) EXPECT_EQ(run_step(mixed_step(5000, 7), 1, threads).allocated, 0);
}

TEST(GenerationLogprobs, TiesAcrossShardsAndAtTheCutOffGoToSmallerIds) {  // R6, R21
  std::vector<float> row(515, -8.0f);
  for (int i = 0; i < 30; ++i) row[500 - 16 * i] = i % 2 ? 0.0f : -0.0f;  // in every shard, +0 and -0
  Step step;
  step.add(row, 0, 500);
  for (const int world : {1, 2, 4, 8}) {
    const Outcome outcome = run_step(step, world);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(id_of(outcome.at(step, 0), i + 1), 500 - 16 * (29 - i)) << world;
  }
  // Ties that only the subtraction makes: logits a ulp apart, the smaller id has the smaller logit.
  std::vector<float> close(515, -300.0f);
  float value = 1.0f;
  for (int i = 0; i < 30; ++i, value = std::nextafter(value, 2.0f)) close[16 * i + 3] = value;
  close[514] = 900.0f;
  Step subtraction;
  subtraction.add(close, 0, 514);
  for (const int world : {1, 2, 4, 8}) {
    const Outcome outcome = run_step(subtraction, world);
    EXPECT_EQ(id_of(outcome.at(subtraction, 0), 1), 514);
    for (int i = 0; i < 19; ++i) EXPECT_EQ(id_of(outcome.at(subtraction, 0), i + 2), 16 * i + 3) << world;
  }
}

TEST(GenerationLogprobs, MoreThanAShardsWorthOfWinnersFromOneShard) {
  std::vector<float> row(4096, 0.0f);
  for (int i = 0; i < 100; ++i) row[1600 + i] = 5.0f + 0.01f * static_cast<float>(i % 50);
  Step step;
  step.add(row, 0, 0);
  for (const int world : {1, 2, 4, 8}) {
    const Outcome outcome = run_step(step, world);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(id_of(outcome.at(step, 0), i + 1), 1600 + (i % 2 ? 50 : 0) + 49 - i / 2);
    }
  }
}

TEST(GenerationLogprobs, ABrokenRowReportsNanAndHurtsNoOther) {
  for (const float bad : {kNan, kInf}) {
    Step step;
    step.add(testing::model_like_row(3000, 1), 0, 10);
    auto broken = testing::model_like_row(3000, 2);
    broken[2900] = bad;
    step.add(broken, 1, 10);
    step.add(testing::model_like_row(3000, 3), 2, 10);
    step.add(broken, 3, 10, {.ids = {5, 2900}});
    for (const int world : {1, 2, 8}) {
      const Outcome outcome = run_step(step, world);
      expect_natural(step, outcome, 0);
      expect_natural(step, outcome, 2);
      EXPECT_EQ(id_of(outcome.at(step, 1), 0), 10);
      EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 1), 0)));
      for (int i = 1; i <= 20; ++i) EXPECT_EQ(id_of(outcome.at(step, 1), i), -1);
      EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 3), 1)));
      EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 3), 2)));
    }
  }
}

TEST(GenerationLogprobs, AllMinusInfinityInAShardCountsNothingAndInARowIsNan) {
  Step step;
  std::vector<float> row = testing::model_like_row(4096, 4);
  std::fill(row.begin() + 1024, row.begin() + 3072, -kInf);  // whole shards at 2, 4 and 8 ranks
  step.add(row, 0, 100);
  step.add(row, 1, 2000);  // a token of probability zero
  step.add(std::vector<float>(4096, -kInf), 2, 7);
  for (const int world : {1, 2, 4, 8}) {
    const Outcome outcome = run_step(step, world);
    const TokenId chosen = 100;
    EXPECT_NEAR(value_of(outcome.at(step, 0), 0), reference::logprobs(row, {&chosen, 1})[0], 1e-5);
    EXPECT_EQ(value_of(outcome.at(step, 1), 0), -kInf);
    EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 2), 0)));
    EXPECT_EQ(id_of(outcome.at(step, 2), 1), -1);
  }
}

TEST(GenerationLogprobs, AnIdOutsideTheVocabularyIsNanNotACrash) {
  Step step;
  step.add(testing::model_like_row(515, 4), 0, 515, {.ids = {514, 515, -1, 2147483647}});
  for (const int world : {1, 8}) {
    const Outcome outcome = run_step(step, world);
    EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 0), 0)));
    EXPECT_FALSE(std::isnan(value_of(outcome.at(step, 0), 1)));
    for (int i = 2; i <= 4; ++i) EXPECT_TRUE(std::isnan(value_of(outcome.at(step, 0), i)));
  }
}

}  // namespace
}  // namespace helios
