// Sampling through the real path: shards, exchanges and every filter, against the FP64 definition's distribution,
// against brute-force Gumbel-max token for token, and for the same tokens at every degree, batch and thread count.
#include "worker/replay/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/sampling/reference.h"
#include "tests/support/count_allocations.h"
#include "tests/support/in_process_ranks.h"
#include "tests/support/logit_rows.h"

namespace helios {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kCapacity = 40;

struct Step {
  std::vector<std::vector<float>> rows;  // whole vocabulary
  std::vector<int32_t> slots;
  std::vector<int32_t> positions;
  std::vector<SlotSampling> sampling = std::vector<SlotSampling>(kCapacity);

  void add(std::vector<float> row, const SlotSampling& parameters, int32_t position) {
    const int slot = static_cast<int>(rows.size());
    rows.push_back(std::move(row));
    slots.push_back(slot);
    positions.push_back(position);
    sampling[slot] = parameters;
  }
};

struct Outcome {
  std::vector<int32_t> tokens;
  Sampler::Counters counters;
  int64_t allocated = 0;
};

Outcome run_step(const Step& step, int world = 1, int threads = 1) {
  std::vector<Outcome> outcomes(world);
  testing::run_ranks(world, [&](Communicator& communicator) {
    const VocabLayout layout(static_cast<int64_t>(step.rows[0].size()));
    const auto logits = testing::shard_rows(step.rows, layout, communicator.rank(), world);
    const auto before = logits;
    ThreadPool pool(threads);
    Sampler sampler(layout, kCapacity, communicator, threads);
    Outcome& outcome = outcomes[communicator.rank().value];
    outcome.tokens.assign(step.rows.size() + 1, 424242);
    const SamplerArgs args{.logits = logits.data(),
                           .logits_stride = layout.shard_stride(world),
                           .rows = static_cast<int64_t>(step.rows.size()),
                           .row_slots = step.slots.data(),
                           .row_positions = step.positions.data(),
                           .slots = step.sampling.data(),
                           .tokens = outcome.tokens.data()};
    sampler.run(args, pool);
    outcome.counters = sampler.counters();
    if (world == 1) {
      const int64_t start = testing::count_allocations();
      sampler.run(args, pool);
      outcome.allocated = testing::count_allocations() - start;
    }
    EXPECT_EQ(std::memcmp(before.data(), logits.data(), logits.size() * sizeof(float)), 0);  // R2, R18
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.tokens, outcomes[0].tokens);
  EXPECT_EQ(outcomes[0].tokens.back(), 424242);  // guard
  outcomes[0].tokens.pop_back();
  return outcomes[0];
}

reference::SamplingDefinition definition_of(const SlotSampling& sampling) {
  return {
      .temperature = sampling.temperature, .min_p = sampling.min_p, .top_k = sampling.top_k, .top_p = sampling.top_p};
}

const std::vector<SlotSampling> kParameters = {
    {.temperature = 0.0f},
    {.temperature = 1.0f},
    {.temperature = 0.6f},
    {.temperature = 2.0f},
    {.temperature = 1.0f, .top_k = 1},
    {.temperature = 1.0f, .top_k = 7},
    {.temperature = 1.5f, .top_k = 400},
    {.temperature = 1.0f, .top_p = 0.9f},
    {.temperature = 3.0f, .top_p = 0.5f},
    {.temperature = 1.0f, .top_p = 0.999999f},
    {.temperature = 1.0f, .top_p = 0.01f},
    {.temperature = 1.0f, .min_p = 0.1f},
    {.temperature = 2.0f, .min_p = 0.02f},
    {.temperature = 1.0f, .min_p = 1.0f},
    {.temperature = 1.2f, .top_p = 0.8f, .min_p = 0.05f, .top_k = 12},
    {.temperature = 1.0f, .top_p = 0.95f, .top_k = 50},
    {.temperature = 0.8f, .top_p = 0.7f, .min_p = 0.001f},
};

TEST(Sampler, ChoosesWhatBruteForceGumbelMaxChooses) {
  int trial = 0;
  for (const int64_t vocab : {1, 2, 17, 300, 515, 4099, 32000}) {
    Step step;
    for (const SlotSampling& parameters : kParameters) {
      SlotSampling sampling = parameters;
      sampling.seed = 0x123456789abcdefull * static_cast<uint64_t>(++trial);
      step.add(testing::model_like_row(vocab, 500 + trial), sampling, 1000 + trial);
    }
    for (const int world : {1, 2, 8}) {
      const Outcome outcome = run_step(step, world, 2);
      for (size_t r = 0; r < step.rows.size(); ++r) {
        EXPECT_EQ(outcome.tokens[r], reference::sampled_token(step.rows[r], definition_of(step.sampling[r]),
                                                              step.sampling[r].seed, step.positions[r]))
            << "V " << vocab << ", world " << world << ", parameters " << r;
      }
    }
  }
}

TEST(Sampler, SameTokensAtEveryDegreeBatchPlaceAndThreadCount) {  // X1
  for (const int64_t vocab : {20, 515, 20011}) {
    Step all;
    for (int r = 0; r < 32; ++r) {
      SlotSampling sampling = kParameters[r % kParameters.size()];
      sampling.seed = static_cast<uint64_t>(r) * 77 + 5;
      all.add(testing::model_like_row(vocab, 900 + r), sampling, 10 * r);
    }
    std::vector<int32_t> alone;
    for (int r = 0; r < 32; ++r) {
      Step one;
      one.add(all.rows[r], all.sampling[r], all.positions[r]);
      alone.push_back(run_step(one).tokens[0]);
    }
    for (const int world : {1, 2, 4, 8}) {
      for (const int threads : {1, 3}) {
        if (threads == 3 && world == 8) continue;  // 24 spinning threads on a small machine
        for (const bool reversed : {false, true}) {
          Step batch = all;
          std::vector<int32_t> expected = alone;
          if (reversed) {
            std::reverse(batch.rows.begin(), batch.rows.end());
            std::reverse(batch.slots.begin(), batch.slots.end());
            std::reverse(batch.positions.begin(), batch.positions.end());
            std::reverse(expected.begin(), expected.end());
            batch.rows.resize(7), batch.slots.resize(7), batch.positions.resize(7), expected.resize(7);
          }
          EXPECT_EQ(run_step(batch, world, threads).tokens, expected) << "V " << vocab << ", world " << world;
        }
      }
    }
  }
}

// Chi-square of `draws` tokens against the definition. Ids with an expectation below 5 are one cell; a token of
// probability zero fails at once.
void expect_distribution(const std::vector<float>& row, SlotSampling sampling, int draws) {
  const auto probabilities = reference::sampling_probabilities(row, definition_of(sampling));
  std::vector<int64_t> observed(row.size());
  for (int done = 0; done < draws;) {
    Step step;
    for (; done < draws && step.rows.size() < kCapacity; ++done) {
      sampling.seed = 99 + static_cast<uint64_t>(done % 3);
      step.add(row, sampling, done / 3);
    }
    for (const int32_t token : run_step(step).tokens) {
      ASSERT_GE(token, 0);
      ASSERT_GT(probabilities[token], 0.0) << token;
      ++observed[token];
    }
  }
  double chi_square = 0.0, rest_expected = 0.0, rest_observed = 0.0;
  int cells = 0;
  for (size_t id = 0; id < row.size(); ++id) {
    const double expected = probabilities[id] * draws;
    if (expected < 5.0) {
      rest_expected += expected;
      rest_observed += static_cast<double>(observed[id]);
      continue;
    }
    const double difference = static_cast<double>(observed[id]) - expected;
    chi_square += difference * difference / expected;
    ++cells;
  }
  if (rest_expected >= 5.0) {
    chi_square += (rest_observed - rest_expected) * (rest_observed - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  // Wilson-Hilferty: the cube root is nearly normal; 3.7 standard deviations are one in ten thousand.
  const double z = (std::cbrt(chi_square / freedom) - (1.0 - 2.0 / (9.0 * freedom))) / std::sqrt(2.0 / (9.0 * freedom));
  EXPECT_LT(z, 3.7) << "chi-square " << chi_square << " over " << freedom << " degrees of freedom";
}

TEST(Sampler, DistributionIsTheDefinitions) {
  testing::Random random(17);
  std::vector<float> row(60);
  for (float& logit : row) logit = static_cast<float>(1.5 * random.normal());
  for (size_t p = 1; p < kParameters.size(); ++p) {
    SCOPED_TRACE(::testing::Message() << "parameters " << p);
    expect_distribution(row, kParameters[p], 6000);
  }
}

TEST(Sampler, GreedyTakesTheSmallerIdOnTies) {
  for (const int64_t vocab : {40, 515, 20000}) {
    std::vector<float> row(vocab, -1.0f);
    for (const int64_t id : {vocab - 1, vocab / 2, vocab / 3}) row[id] = 3.0f;
    std::vector<float> zeros(vocab, -1.0f);
    zeros[vocab / 4] = -0.0f;
    zeros[vocab - 2] = 0.0f;
    Step step;
    step.add(row, {.temperature = 0.0f}, 1);
    step.add(zeros, {.temperature = 0.0f}, 1);
    step.add(std::vector<float>(vocab, 7.0f), {.temperature = 9e-6f}, 1);
    step.add(row, {.temperature = 0.0f, .top_p = 0.1f, .top_k = 1}, 1);
    for (const int world : {1, 2, 4, 8}) {
      const auto tokens = run_step(step, world).tokens;
      EXPECT_EQ(tokens, (std::vector<int32_t>{static_cast<int32_t>(vocab / 3), static_cast<int32_t>(vocab / 4), 0,
                                              static_cast<int32_t>(vocab / 3)}));
    }
  }
}

TEST(Sampler, EqualLogitsAtACutStayTogether) {
  std::vector<float> row(515, -4.0f);
  for (const int id : {3, 100, 200, 300, 500}) row[id] = 2.0f;
  row[50] = 5.0f;
  // top-k 2 and top-p's crossing both fall into the tie of five.
  for (const SlotSampling& sampling :
       {SlotSampling{.temperature = 3.0f, .top_k = 2}, SlotSampling{.temperature = 3.0f, .top_p = 0.02f + 0.03f}}) {
    std::vector<int> seen(515);
    for (const int world : {1, 4}) {
      for (int block = 0; block < 4; ++block) {
        Step step;
        for (int r = 0; r < kCapacity; ++r) {
          SlotSampling drawn = sampling;
          drawn.seed = 5;
          step.add(row, drawn, block * kCapacity + r);
        }
        for (const int32_t token : run_step(step, world).tokens) ++seen[token];
      }
    }
    const auto probabilities = reference::sampling_probabilities(row, definition_of(sampling));
    for (int id = 0; id < 515; ++id) EXPECT_EQ(seen[id] > 0, probabilities[id] > 0.0) << id;
  }
}

TEST(Sampler, RowsThatAreNoDistributionFailAlone) {
  auto good = testing::model_like_row(4096, 6);
  auto with_nan = good, with_inf = good, some_zero = good;
  with_nan[4000] = kNan;
  with_inf[17] = kInf;
  std::fill(some_zero.begin() + 512, some_zero.begin() + 3584, -kInf);
  for (const SlotSampling& base : kParameters) {
    SlotSampling sampling = base;
    sampling.seed = 9;
    Step step;
    step.add(good, sampling, 3);
    step.add(with_nan, sampling, 3);
    step.add(std::vector<float>(4096, -kInf), sampling, 3);
    step.add(with_inf, sampling, 3);
    step.add(some_zero, sampling, 3);
    step.add(good, sampling, 3);
    step.slots[5] = -1;
    for (const int world : {1, 2, 8}) {
      const auto tokens = run_step(step, world).tokens;
      EXPECT_EQ(tokens[0], reference::sampled_token(good, definition_of(sampling), 9, 3));
      EXPECT_EQ(tokens[1], -1);
      EXPECT_EQ(tokens[2], -1);
      EXPECT_EQ(tokens[3], -1);
      EXPECT_EQ(tokens[4], reference::sampled_token(some_zero, definition_of(sampling), 9, 3));
      EXPECT_EQ(tokens[5], -1);
    }
  }
}

TEST(Sampler, OnlyFiltersExchangeMoreThanFourWordsARow) {  // X3
  Step plain, filtered;
  for (int r = 0; r < 5; ++r) {
    plain.add(testing::model_like_row(32000, r), {.temperature = r % 2 ? 1.0f : 0.0f}, r);
    filtered.add(testing::model_like_row(32000, r), {.temperature = 1.0f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 40},
                 r);
  }
  for (const int world : {2, 4, 8}) {
    EXPECT_EQ(run_step(plain, world).counters.words_exchanged, 5 * 4);
    const int64_t words = run_step(filtered, world).counters.words_exchanged;
    EXPECT_LE(words, 5 * (4 + 4 + 2 * 6 * 512));  // at most six rounds a search, whatever the vocabulary
    EXPECT_GT(words, 5 * 4);
  }
  EXPECT_EQ(run_step(filtered).counters.words_exchanged, 0);
}

TEST(Sampler, AStepAllocatesNothing) {
  Step step;
  for (size_t p = 0; p < kParameters.size(); ++p) step.add(testing::model_like_row(5000, p), kParameters[p], 1);
  for (const int threads : {1, 3}) EXPECT_EQ(run_step(step, 1, threads).allocated, 0);
}

TEST(Sampler, SeedAndPositionMatter) {
  const std::vector<float> row(1000, 0.0f);
  Step step;
  for (int i = 0; i < 12; ++i)
    step.add(row, {.temperature = 1.0f, .seed = i < 6 ? 1u : static_cast<uint32_t>(i)}, i < 6 ? i : 0);
  auto tokens = run_step(step).tokens;
  std::sort(tokens.begin(), tokens.end());
  EXPECT_GE(std::unique(tokens.begin(), tokens.end()) - tokens.begin(), 11);  // position 0 with seed 1 and 11 others
}

}  // namespace
}  // namespace helios
