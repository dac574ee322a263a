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
#include <numeric>

#include "common/contract/completion_layout.h"
#include "kernels/logprobs/reference.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/count_allocations.h"
#include "tests/support/float_values.h"
#include "tests/support/in_process_ranks.h"
#include "tests/support/logit_rows.h"
#include "tests/support/test_device.h"

namespace helios {
namespace {

using testing::kInf;
using testing::kNan;
constexpr int kCapacity = 33;
constexpr int kTokens = 3;  // T
constexpr int kMaxRows = kCapacity + 7;
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
  std::vector<int32_t> tokens;  // index within the record of each row; empty: 0 for all
  std::vector<int32_t> halves;  // empty: all rows write the active frame
  int32_t frame = 0;
  std::vector<int64_t> records = std::vector<int64_t>(kCapacity * record_words(kTokens));
  std::vector<int64_t> other_records = records;  // of the half that is not active
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
  std::vector<int32_t> packed;  // [capacity, T, words] of the active frame, and a guard position
  std::vector<int32_t> other;   // and of the other half
  StepCounters counters;
  int64_t allocated = 0;  // by a second replay of the same step

  const int32_t* at(const Step& step, int slot, int token = 0) const {
    return packed.data() + (slot * kTokens + token) * step.position_words;
  }
};

/// Zeroed device memory when there is nothing to copy: a pointer that is never null.
template <class T>
Memory on_device(Backend& backend, const std::vector<T>& values) {
  return values.empty() ? backend.device_memory(sizeof(T))
                        : device_copy(backend, values.data(), values.size() * sizeof(T));
}

/// Device memory brought home.
template <class T>
std::vector<T> to_host(Backend& backend, Stream& stream, const Memory& memory) {
  const Memory pinned = backend.pinned_memory(memory.bytes());
  stream.copy(pinned.data(), memory.data(), memory.bytes());
  stream.synchronize();
  return {pinned.as<T>(), pinned.as<T>() + memory.bytes() / sizeof(T)};
}

struct TestDevice {
  TestDevice(Communicator& group, int threads)
      : device(testing::test_device(group.world_size(), threads)),
        captured(testing::captured_exchanges(group, device)),
        communicator(captured ? *captured : group) {}
  Device device;
  std::unique_ptr<Communicator> captured;
  Communicator& communicator;
};

template <class T>
std::vector<T> halves_of(const std::vector<T>& active, const std::vector<T>& other, int half) {
  std::vector<T> both = half == 0 ? active : other;
  const std::vector<T>& second = half == 0 ? other : active;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

Outcome run_rank(const Step& step, Communicator& group, int threads) {
  const VocabLayout layout(static_cast<int64_t>(step.rows.empty() ? 1 : step.rows[0].size()));
  const int world = group.world_size();
  TestDevice device(group, threads);
  Backend& backend = *device.device.backend;
  Stream& stream = *device.device.compute;
  const auto shard = testing::shard_rows(step.rows, layout, group.rank(), world);
  const int64_t half_words = kCapacity * kTokens * step.position_words;
  const Memory logits = on_device(backend, shard), slots = on_device(backend, step.slots),
               epochs = on_device(backend, step.epochs), tokens = on_device(backend, step.tokens),
               halves = on_device(
                   backend, step.halves.empty() ? std::vector<int32_t>(step.slots.size(), step.frame) : step.halves),
               records = on_device(backend, halves_of(step.records, step.other_records, step.frame)),
               requested = on_device(backend, step.requested), ids = on_device(backend, step.ids),
               counts = on_device(backend, step.counts),
               num_rows = on_device<int32_t>(backend, {static_cast<int32_t>(step.slots.size())}),
               packed = on_device(backend, std::vector<int32_t>(2 * half_words + step.position_words, kUntouched)),
               counters = backend.device_memory(sizeof(StepCounters));
  GenerationLogprobs logprobs(layout,
                              {.slot_capacity = kCapacity,
                               .token_capacity = kTokens,
                               .alternatives = step.alternatives,
                               .position_words = step.position_words,
                               .max_rows = kMaxRows},
                              counters.as<StepCounters>(), device.communicator, backend);
  stream.begin_capture();
  logprobs.record({.logits = logits.as<float>(),
                   .logits_stride = layout.shard_stride(world),
                   .num_rows = num_rows.as<int32_t>(),
                   .row_slots = slots.as<int32_t>(),
                   .row_epochs = epochs.as<uint32_t>(),
                   .row_tokens = step.tokens.empty() ? nullptr : tokens.as<int32_t>(),
                   .row_halves = halves.as<int32_t>(),
                   .records = records.as<int64_t>(),
                   .packed = packed.as<int32_t>(),
                   .requested = requested.as<int32_t>(),
                   .token_ids = step.id_inputs ? ids.as<int32_t>() : nullptr,
                   .token_id_counts = step.id_inputs ? counts.as<int32_t>() : nullptr},
                  stream);
  const std::unique_ptr<Graph> graph = stream.end_capture();
  if (layout.shard(group.rank(), world).size() > 0) {  // the position list, the reduction, the exchanges
    EXPECT_EQ(graph->num_launches(), 1 + (world > 1 ? 6 + 2 : 4));
  }
  stream.replay(*graph);
  Outcome outcome;
  outcome.counters = to_host<StepCounters>(backend, stream, counters)[0];
  if (world == 1) {  // the in-process communicator of tests allocates; the launches do not
    const int64_t start = testing::count_allocations();
    stream.replay(*graph);
    stream.synchronize();
    outcome.allocated = testing::count_allocations() - start;
  }
  const std::vector<int32_t> words = to_host<int32_t>(backend, stream, packed);
  const auto half = [&](int h) {
    std::vector<int32_t> out(words.begin() + h * half_words, words.begin() + (h + 1) * half_words);
    out.insert(out.end(), words.begin() + 2 * half_words, words.end());
    return out;
  };
  outcome.packed = half(step.frame);
  outcome.other = half(1 - step.frame);
  // R9, R18: the reduction only reads the logits.
  const std::vector<float> after = to_host<float>(backend, stream, logits);
  EXPECT_EQ(std::memcmp(shard.data(), after.data(), shard.size() * sizeof(float)), 0);
  return outcome;
}

void expect_untouched(const int32_t* begin, int64_t words) {
  for (int64_t i = 0; i < words; ++i) ASSERT_EQ(begin[i], kUntouched) << "word " << i;
}

/// Rank 0's outcome; every rank's packed output has the same bits.
Outcome run_step(const Step& step, int world = 1, int threads = 1) {
  std::vector<Outcome> outcomes(world);
  testing::run_ranks(world, [&](Communicator& communicator) {
    outcomes[communicator.rank().value] = run_rank(step, communicator, threads);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.packed, outcomes[0].packed);
    EXPECT_EQ(outcome.other, outcomes[0].other);
    if (step.halves.empty()) expect_untouched(outcome.other.data(), outcome.other.size());  // R20: may be in transfer
  }
  return outcomes[0];
}

float value_of(const int32_t* position, int pair) { return bits_float(position[kPairWords * pair + 1]); }
TokenId id_of(const int32_t* position, int pair) { return position[kPairWords * pair]; }

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
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 1, 20, 4099, 2, 19, 21, 300, 32000, 151936}, 4)) {
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
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 20, 32000}, 1)) {
    // Each lane alone on one rank is the yardstick.
    const Step all = mixed_step(vocab, testing::kEmulatedDevice ? 7 : 32);
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
    for (const int world : testing::cases_for_device<int>({4, 1, 2, 8}, 2)) {
      for (const int lanes : testing::cases_for_device<int>({7, 32, 1}, 1)) {
        for (const int threads : testing::cases_for_device<int>({1, 3}, 1)) {
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
    EXPECT_EQ(outcome.counters.logprob_logits_read, 0);
    EXPECT_EQ(outcome.counters.logprob_words, 0);
    EXPECT_EQ(outcome.counters.logprob_positions, 0);
    EXPECT_EQ(outcome.counters.logprob_launches, 0);
  }
  step.requested[2] = 1;  // one of four
  const Outcome outcome = run_step(step);
  EXPECT_EQ(outcome.counters.logprob_positions, 1);
  EXPECT_GE(outcome.counters.logprob_logits_read, 3000);
  EXPECT_LE(outcome.counters.logprob_logits_read, 2 * 3000 + 1);
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
    for (const int world : testing::cases_for_device<int>({2, 1}, 1)) {
      const Outcome outcome = run_step(step, world);
      expect_untouched(outcome.packed.data(), static_cast<int64_t>(outcome.packed.size()));
      EXPECT_EQ(outcome.counters.logprob_logits_read, 0);
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
  EXPECT_EQ(outcome.counters.logprob_positions, 1);
}

// Three rows of slot 6 and one of slot 9, as a verification of width three packs them: tokens 0..2 of slot 6 are
// offered, `emitted` of them were committed.
Step verification_step(int emitted) {
  Step step;
  step.add(testing::model_like_row(600, 70), 6, 20);
  for (int token = 1; token < 3; ++token) {
    step.rows.push_back(testing::model_like_row(600, 70 + token));
    step.slots.push_back(6);
    step.epochs.push_back(106);
    step.record(6)[record_word::kTokens + token] = 20 + token;
  }
  step.record(6)[record_word::kEmitted] = emitted;
  step.add(testing::model_like_row(600, 80), 9, 33);
  step.tokens = {0, 1, 2, 0};
  return step;
}

TEST(GenerationLogprobs, EveryCommittedTokenOfASlotIsReportedAndNoColumnPastThem) {  // R3, R16
  for (const int emitted : testing::cases_for_device<int>({2, 0, 1, 3}, 2)) {
    const Step step = verification_step(emitted);
    for (const int world : {1, 2}) {
      const Outcome outcome = run_step(step, world);
      EXPECT_EQ(outcome.counters.logprob_positions, emitted + 1);
      for (int token = 0; token < 3; ++token) {
        if (token >= emitted) {
          expect_untouched(outcome.at(step, 6, token), step.position_words);
          continue;
        }
        Step alone;  // the same row, emitted by ordinary sampling
        alone.add(step.rows[token], 6, 20 + token);
        const Outcome single = run_step(alone, world);
        EXPECT_TRUE(
            std::equal(single.at(alone, 6), single.at(alone, 6) + step.position_words, outcome.at(step, 6, token)))
            << token;
      }
      expect_natural(step, outcome, 3);
    }
  }
}

TEST(GenerationLogprobs, TokensOfAVerificationAreForcedDuplicatedAndRangeCheckedOneByOne) {  // R4, R16
  Step forced = verification_step(3);
  forced.record(6)[record_word::kForcedMask] = 2;
  const Outcome without_second = run_step(forced);
  EXPECT_EQ(without_second.counters.logprob_positions, 3);
  expect_untouched(without_second.at(forced, 6, 1), forced.position_words);
  EXPECT_EQ(id_of(without_second.at(forced, 6, 2), 0), 22);

  Step twice = verification_step(3);
  twice.tokens[2] = 1;  // the second row of token 1
  const Outcome first_wins = run_step(twice);
  EXPECT_EQ(first_wins.counters.logprob_positions, 3);
  const TokenId chosen = 21;
  EXPECT_NEAR(value_of(first_wins.at(twice, 6, 1), 0), reference::logprobs(twice.rows[1], {&chosen, 1})[0], 1e-5);
  expect_untouched(first_wins.at(twice, 6, 2), twice.position_words);

  for (const int outside : {-1, kTokens, 1 << 30}) {
    Step strange = verification_step(3);
    strange.tokens[2] = outside;
    strange.record(6)[record_word::kEmitted] = 1 << 30;  // no bound of its own: T is one
    EXPECT_EQ(run_step(strange).counters.logprob_positions, 3);
  }
}

TEST(GenerationLogprobs, EachRowReadsAndWritesItsOwnHalfOfTheOutputs) {  // R15, R20
  Step step = mixed_step(515, 3);
  const Outcome first = run_step(step);
  step.frame = 1;
  EXPECT_EQ(run_step(step).packed, first.packed);  // run_step() watches the other frame
  // A mixed graph: the third row's role has the other half, where its record lies.
  step.frame = 0;
  step.halves = {0, 0, 1};
  step.other_records = step.records;
  step.record(step.slots[2])[record_word::kEmitted] = 0;
  const int64_t third = step.slots[2] * kTokens * step.position_words, words = step.position_words;
  const Outcome roles = run_step(step);
  expect_untouched(roles.packed.data() + third, words);
  EXPECT_TRUE(
      std::equal(roles.other.begin() + third, roles.other.begin() + third + words, first.packed.begin() + third));
  expect_untouched(roles.other.data(), third);
  expect_untouched(roles.other.data() + third + words, static_cast<int64_t>(roles.other.size()) - third - words);
  EXPECT_TRUE(std::equal(roles.packed.begin(), roles.packed.begin() + third, first.packed.begin()));
}

TEST(GenerationLogprobs, ShardedExchangeIs512WordsAPosition) {  // R22
  const Step step = mixed_step(4099, 7);                        // five of seven ask
  for (const int world : {2, 4, 8}) {
    const Outcome outcome = run_step(step, world);
    ASSERT_EQ(outcome.counters.logprob_positions, 5);
    EXPECT_EQ(outcome.counters.logprob_words, 5 * 512);
    EXPECT_EQ(outcome.counters.logprob_launches, 6);
  }
  const Outcome alone = run_step(step);
  EXPECT_EQ(alone.counters.logprob_words, 0);
  EXPECT_EQ(alone.counters.logprob_launches, 4);
}

TEST(GenerationLogprobs, AStepAllocatesNothing) {  // R23
  if (testing::kEmulatedDevice) GTEST_SKIP() << "the emulator itself allocates";
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
