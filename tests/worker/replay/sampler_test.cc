// Sampling through the real path: shards, exchanges and every filter, against the FP64 definition's distribution,
// against brute-force Gumbel-max token for token, and for the same tokens at every degree, batch and thread count.
#include "worker/replay/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/sampling/reference.h"
#include "tests/kernels/transformer/kernel_test_data.h"
#include "tests/support/count_allocations.h"
#include "tests/support/float_values.h"
#include "tests/support/in_process_ranks.h"
#include "tests/support/logit_rows.h"
#include "tests/support/sampling_tables.h"
#include "tests/support/test_device.h"

namespace helios {
namespace {

using testing::kInf;
using testing::kNan;
struct SamplerStep {
  std::vector<std::vector<float>> rows;  // whole vocabulary
  std::vector<int32_t> slots;
  std::vector<int32_t> positions;
  std::vector<SlotSampling> sampling;                      // of each slot
  std::vector<reference::TransformDefinition> transforms;  // of each slot

  void add(std::vector<float> row, const SlotSampling& parameters, int32_t position,
           const reference::TransformDefinition& transform = {}) {
    slots.push_back(static_cast<int32_t>(rows.size()));
    rows.push_back(std::move(row));
    positions.push_back(position);
    sampling.push_back(parameters);
    transforms.push_back(transform);
  }
};

struct SamplerOutcome {
  std::vector<int32_t> tokens;
  StepCounters counters;
  int64_t allocated = 0;
};

// The device that this test is linked for, and its exchanges: the CPU, or a GPU's ways without a GPU.
struct SamplerDevice {
  SamplerDevice(int threads, Communicator& group) {
    device = testing::test_device(group.world_size(), threads);
    captured = testing::captured_exchanges(group, device);
    communicator = captured ? captured.get() : &group;
  }
  template <class T>
  void write(const Memory& to, const std::vector<T>& from) {
    if (from.empty()) return;
    Memory staging = device.backend->pinned_memory(from.size() * sizeof(T));
    std::copy(from.begin(), from.end(), staging.as<T>());
    device.compute->copy(to.data(), staging.data(), staging.bytes());
    device.compute->synchronize();
  }
  template <class T>
  std::vector<T> read(const T* from, size_t count) {
    Memory staging = device.backend->pinned_memory(count * sizeof(T));
    device.compute->copy(staging.data(), from, staging.bytes());
    device.compute->synchronize();
    return {staging.as<T>(), staging.as<T>() + count};
  }
  template <class T>
  Memory room(size_t count) {
    return device.backend->device_memory(count * sizeof(T));
  }

  Device device;
  std::unique_ptr<Communicator> captured;
  Communicator* communicator = nullptr;
};

/// A rank's tables where its kernels can read them.
class DeviceTables {
 public:
  DeviceTables(const testing::SamplingTables& tables, SamplerDevice& device)
      : sampling_(device.room<SlotSampling>(tables.sampling.size())),
        slots_(device.room<SlotState>(tables.slots.size())),
        biases_(device.room<LogitBias>(tables.biases.size())),
        allowed_(device.room<uint32_t>(tables.allowed.size())),
        prompt_ids_(device.room<uint32_t>(tables.prompt_ids.size())),
        counts_(device.room<int32_t>(tables.counts.size())) {}

  TransformTables view(const testing::SamplingTables& tables) const {
    TransformTables view = tables.view();
    view.sampling = sampling_.as<SlotSampling>();
    view.slots = slots_.as<SlotState>();
    view.biases = biases_.as<LogitBias>();
    view.allowed = allowed_.as<uint32_t>();
    view.prompt_ids = prompt_ids_.as<uint32_t>();
    view.token_counts = counts_.as<int32_t>();
    return view;
  }
  void upload(const testing::SamplingTables& tables, SamplerDevice& device) const {
    device.write(sampling_, tables.sampling);
    device.write(slots_, tables.slots);
    device.write(biases_, tables.biases);
    device.write(allowed_, tables.allowed);
    device.write(prompt_ids_, tables.prompt_ids);
    device.write(counts_, tables.counts);
  }

 private:
  Memory sampling_, slots_, biases_, allowed_, prompt_ids_, counts_;
};

// One rank's sampler for steps of as many rows as the first: captured once, then replayed.
class RankSampler {
 public:
  RankSampler(const SamplerStep& step, int threads, Communicator& group)
      : device_(threads, group),
        world_(group.world_size()),
        rank_(group.rank()),
        layout_(static_cast<int64_t>(step.rows[0].size())),
        capacity_(static_cast<int32_t>(step.rows.size()) + 1),
        logits_(device_.room<float>(capacity_ * layout_.shard_stride(world_))),
        slots_(device_.room<int32_t>(capacity_)),
        positions_(device_.room<int32_t>(capacity_)),
        num_rows_(device_.room<int32_t>(1)),
        counters_(device_.room<StepCounters>(1)),
        tables_(static_cast<int>(step.sampling.size()), layout_.vocab_size(), layout_.shard(rank_, world_)),
        device_tables_(tables_, device_),
        sampler_({.logits = logits_.as<float>(),
                  .logits_stride = layout_.shard_stride(world_),
                  .num_rows = num_rows_.as<int32_t>(),
                  .max_rows = capacity_,
                  .row_slots = slots_.as<int32_t>(),
                  .row_positions = positions_.as<int32_t>(),
                  .tables = device_tables_.view(tables_)},
                 layout_, counters_.as<StepCounters>(), *device_.communicator, *device_.device.backend) {
    stream().begin_capture();
    sampler_.record(stream(), capacity_);
    graph_ = stream().end_capture();
  }

  SamplerOutcome run(const SamplerStep& step) {
    const size_t rows = step.rows.size();
    const auto logits = testing::shard_rows(step.rows, layout_, rank_, world_);
    device_.write(logits_, logits);
    device_.write(slots_, step.slots);
    device_.write(positions_, step.positions);
    device_.write(num_rows_, std::vector<int32_t>{static_cast<int32_t>(rows)});
    for (size_t slot = 0; slot < step.sampling.size(); ++slot) {
      tables_.set(static_cast<int>(slot), step.sampling[slot], step.transforms[slot]);
    }
    device_tables_.upload(tables_, device_);
    const StepCounters before = device_.read(counters_.as<StepCounters>(), 1)[0];
    stream().replay(*graph_);
    SamplerOutcome outcome{.tokens = device_.read(sampler_.tokens(), rows + 1),
                           .counters = device_.read(counters_.as<StepCounters>(), 1)[0]};
    outcome.counters.sampler_words -= before.sampler_words;
    outcome.counters.sampler_rows_filtered -= before.sampler_rows_filtered;
    EXPECT_EQ(outcome.tokens.back(), 0);  // not this step's
    outcome.tokens.pop_back();
    if (world_ == 1 && !testing::kEmulatedDevice) {
      const int64_t start = testing::count_allocations();
      stream().replay(*graph_);
      stream().synchronize();
      outcome.allocated = testing::count_allocations() - start;
    }
    const auto after = device_.read(logits_.as<float>(), logits.size());
    EXPECT_EQ(std::memcmp(logits.data(), after.data(), logits.size() * sizeof(float)), 0);  // R2, R18
    return outcome;
  }

 private:
  Stream& stream() { return *device_.device.compute; }

  SamplerDevice device_;
  const int world_;
  const Rank rank_;
  const VocabLayout layout_;
  const int32_t capacity_;
  Memory logits_, slots_, positions_, num_rows_, counters_;
  testing::SamplingTables tables_;
  DeviceTables device_tables_;
  Sampler sampler_;
  std::unique_ptr<Graph> graph_;
};

SamplerOutcome sample_step(const SamplerStep& step, int world = 1, int threads = 1) {
  std::vector<SamplerOutcome> outcomes(world);
  testing::run_ranks(world, [&](Communicator& communicator) {
    RankSampler sampler(step, threads, communicator);
    outcomes[communicator.rank().value] = sampler.run(step);
  });
  for (const SamplerOutcome& outcome : outcomes) EXPECT_EQ(outcome.tokens, outcomes[0].tokens);
  return outcomes[0];
}

reference::SamplingDefinition definition_of(const SlotSampling& sampling) {
  return {
      .temperature = sampling.temperature, .min_p = sampling.min_p, .top_k = sampling.top_k, .top_p = sampling.top_p};
}

// What the definition says of one row of a step.
TokenId defined_token(const SamplerStep& step, size_t row) {
  const int slot = step.slots[row];
  return reference::sampled_token(reference::transformed_logits(step.rows[row], step.transforms[slot]),
                                  definition_of(step.sampling[slot]), step.sampling[slot].seed, step.positions[row]);
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
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 4099, 1, 2, 17, 300, 32000}, 2)) {
    SamplerStep step;
    for (const SlotSampling& parameters : kParameters) {
      SlotSampling sampling = parameters;
      sampling.seed = 0x123456789abcdefull * static_cast<uint64_t>(++trial);
      step.add(testing::model_like_row(vocab, 500 + trial), sampling, 1000 + trial);
    }
    for (const int world : testing::cases_for_device<int>({1, 4, 2, 8}, vocab == 515 ? 3 : 1)) {
      const SamplerOutcome outcome = sample_step(step, world, 2);
      for (size_t r = 0; r < step.rows.size(); ++r) {
        EXPECT_EQ(outcome.tokens[r], defined_token(step, r))
            << "V " << vocab << ", world " << world << ", parameters " << r;
      }
      EXPECT_EQ(outcome.counters.sampler_rows_filtered, 0);  // nothing was copied
    }
  }
}

TEST(Sampler, ManyRowsSearchSideBySide) {  // more than a warp's lanes; searches end in different rounds
  SamplerStep step;
  for (int r = 0; r < 75; ++r) {
    SlotSampling sampling{.temperature = 0.5f + 0.1f * static_cast<float>(r % 20), .seed = static_cast<uint64_t>(r)};
    if (r % 3 != 0) sampling.top_k = 1 + r % 13;
    if (r % 4 != 0) sampling.top_p = 0.3f + 0.6f * static_cast<float>(r % 11) / 10.0f;
    if (r % 5 == 0) sampling.min_p = 0.01f;
    const auto row = testing::model_like_row(150, r);
    step.add(row, sampling, r, r % 6 == 5 ? testing::transform_kinds(row, r)[r % 8] : reference::TransformDefinition{});
  }
  for (const int world : testing::cases_for_device<int>({2, 1, 8}, 1)) {
    const SamplerOutcome outcome = sample_step(step, world);
    for (size_t r = 0; r < step.rows.size(); ++r) EXPECT_EQ(outcome.tokens[r], defined_token(step, r)) << r;
  }
}

TEST(Sampler, TransformsBeforeItFilters) {
  const std::vector<SlotSampling> parameters = {
      {.temperature = 0.0f}, {.temperature = 1.3f}, {.temperature = 1.0f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 30}};
  int trial = 0;
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 20, 4099, 32000}, 1)) {
    SamplerStep step;
    for (const SlotSampling& base : parameters) {
      const auto row = testing::model_like_row(vocab, 70 + trial);
      for (const auto& transform : testing::transform_kinds(row, 90 + trial)) {
        SlotSampling sampling = base;
        sampling.seed = 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(++trial);
        step.add(row, sampling, 40 + trial, transform);
      }
      step.add(row, base, trial);  // no transformation, in the same step
    }
    for (const int world : testing::cases_for_device<int>({1, 4, 2, 8}, 3)) {
      const SamplerOutcome outcome = sample_step(step, world);
      for (size_t r = 0; r < step.rows.size(); ++r) {
        EXPECT_EQ(outcome.tokens[r], defined_token(step, r)) << "V " << vocab << ", world " << world << ", row " << r;
      }
      EXPECT_EQ(outcome.counters.sampler_rows_filtered, static_cast<int64_t>(8 * parameters.size()));
    }
  }
}

TEST(Sampler, SameTokensAtEveryDegreeBatchPlaceAndThreadCount) {  // X1
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 20, 20011}, 1)) {
    SamplerStep all;
    for (int r = 0; r < 32; ++r) {
      SlotSampling sampling = kParameters[r % kParameters.size()];
      sampling.seed = static_cast<uint64_t>(r) * 77 + 5;
      const auto row = testing::model_like_row(vocab, 900 + r);
      all.add(row, sampling, 10 * r,
              r % 3 == 1 ? testing::transform_kinds(row, r)[r % 8] : reference::TransformDefinition{});
    }
    std::vector<int32_t> alone;
    for (int r = 0; r < 32; ++r) {
      SamplerStep one;
      one.add(all.rows[r], all.sampling[r], all.positions[r], all.transforms[r]);
      alone.push_back(sample_step(one).tokens[0]);
    }
    for (const int world : testing::cases_for_device<int>({1, 4, 2, 8}, 2)) {
      for (const int threads : testing::cases_for_device<int>({1, 3}, 1)) {
        if (threads == 3 && world == 8) continue;  // 24 spinning threads on a small machine
        for (const bool reversed : {false, true}) {
          SamplerStep batch = all;
          std::vector<int32_t> expected = alone;
          if (reversed) {
            std::reverse(batch.rows.begin(), batch.rows.end());
            std::reverse(batch.slots.begin(), batch.slots.end());
            std::reverse(batch.positions.begin(), batch.positions.end());
            std::reverse(expected.begin(), expected.end());
            batch.rows.resize(7), batch.slots.resize(7), batch.positions.resize(7), expected.resize(7);
          }
          EXPECT_EQ(sample_step(batch, world, threads).tokens, expected) << "V " << vocab << ", world " << world;
        }
      }
    }
  }
}

// Chi-square of `draws` tokens against the definition. Ids with an expectation below 5 are one cell; a token of
// probability zero fails at once.
void expect_distribution(const std::vector<float>& row, SlotSampling sampling, int draws,
                         const reference::TransformDefinition& transform = {}) {
  const auto probabilities =
      reference::sampling_probabilities(reference::transformed_logits(row, transform), definition_of(sampling));
  std::vector<int64_t> observed(row.size());
  SamplerStep step;
  const int rows = testing::kEmulatedDevice ? 20 : 50;
  for (int r = 0; r < rows; ++r) step.add(row, sampling, 0, transform);
  SingleRankCommunicator alone;
  RankSampler sampler(step, 1, alone);
  for (int done = 0; done < draws;) {
    for (int r = 0; r < rows; ++r, ++done) {
      step.sampling[r].seed = 99 + static_cast<uint64_t>(done % 3);
      step.positions[r] = done / 3;
    }
    for (const int32_t token : sampler.run(step).tokens) {
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

std::vector<float> small_row() {
  testing::Random random(17);
  std::vector<float> row(60);
  for (float& logit : row) logit = static_cast<float>(1.5 * random.normal());
  return row;
}

TEST(Sampler, DistributionIsTheDefinitions) {
  const std::vector<float> row = small_row();
  for (const SlotSampling& parameters : testing::cases_for_device(kParameters, 2)) {
    if (parameters.temperature == 0.0f) continue;
    SCOPED_TRACE(::testing::Message() << "temperature " << parameters.temperature << ", top-k " << parameters.top_k
                                      << ", top-p " << parameters.top_p << ", min-p " << parameters.min_p);
    expect_distribution(row, parameters, testing::kEmulatedDevice ? 400 : 6000);
  }
}

TEST(Sampler, DistributionOfTransformedRowsIsTheDefinitions) {
  const std::vector<float> row = small_row();
  const std::vector<SlotSampling> parameters = {{.temperature = 1.2f, .top_p = 0.9f, .min_p = 0.02f, .top_k = 25},
                                                {.temperature = 1.0f}};
  for (const SlotSampling& sampling : testing::cases_for_device(parameters, 1)) {
    auto kinds = testing::transform_kinds(row, 3);
    std::reverse(kinds.begin(), kinds.end());  // all together first
    for (const auto& transform : testing::cases_for_device(kinds, 1)) {
      expect_distribution(row, sampling, testing::kEmulatedDevice ? 400 : 6000, transform);
    }
  }
}

TEST(Sampler, GreedyTakesTheSmallerIdOnTies) {
  for (const int64_t vocab : testing::cases_for_device<int64_t>({515, 40, 20000}, 1)) {
    std::vector<float> row(vocab, -1.0f);
    for (const int64_t id : {vocab - 1, vocab / 2, vocab / 3}) row[id] = 3.0f;
    std::vector<float> zeros(vocab, -1.0f);
    zeros[vocab / 4] = -0.0f;
    zeros[vocab - 2] = 0.0f;
    SamplerStep step;
    step.add(row, {.temperature = 0.0f}, 1);
    step.add(zeros, {.temperature = 0.0f}, 1);
    step.add(std::vector<float>(vocab, 7.0f), {.temperature = 9e-6f}, 1);
    step.add(row, {.temperature = 0.0f, .top_p = 0.1f, .top_k = 1}, 1);
    for (const int world : testing::cases_for_device<int>({1, 4, 2, 8}, 2)) {
      const auto tokens = sample_step(step, world).tokens;
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
    for (const int world : testing::cases_for_device<int>({1, 4}, 1)) {
      for (int block = 0; block < 4; ++block) {
        SamplerStep step;
        for (int r = 0; r < 40; ++r) {
          SlotSampling drawn = sampling;
          drawn.seed = 5;
          step.add(row, drawn, block * 40 + r);
        }
        for (const int32_t token : sample_step(step, world).tokens) ++seen[token];
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
  for (const SlotSampling& base : testing::cases_for_device(kParameters, 2)) {
    SlotSampling sampling = base;
    sampling.seed = 9;
    SamplerStep step;
    step.add(good, sampling, 3);
    step.add(with_nan, sampling, 3);
    step.add(std::vector<float>(4096, -kInf), sampling, 3);
    step.add(with_inf, sampling, 3);
    step.add(some_zero, sampling, 3);
    step.add(good, sampling, 3);
    step.slots[5] = -1;
    for (const int world : testing::cases_for_device<int>({2, 1, 8}, 1)) {
      const auto tokens = sample_step(step, world).tokens;
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
  const int64_t vocab = testing::kEmulatedDevice ? 2000 : 32000;
  SamplerStep plain, filtered;
  for (int r = 0; r < 5; ++r) {
    plain.add(testing::model_like_row(vocab, r), {.temperature = r % 2 ? 1.0f : 0.0f}, r);
    filtered.add(testing::model_like_row(vocab, r), {.temperature = 1.0f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 40},
                 r);
  }
  for (const int world : testing::cases_for_device<int>({2, 4, 8}, 1)) {
    EXPECT_EQ(sample_step(plain, world).counters.sampler_words, 5 * 4);
    const int64_t words = sample_step(filtered, world).counters.sampler_words;
    EXPECT_LE(words, 5 * (4 + 4 + 2 * 6 * 512));  // at most six rounds a search, whatever the vocabulary
    EXPECT_GT(words, 5 * 4);
  }
  EXPECT_EQ(sample_step(filtered).counters.sampler_words, 0);
}

TEST(Sampler, AStepAllocatesNothing) {
  if (testing::kEmulatedDevice) GTEST_SKIP() << "the emulator itself allocates";
  SamplerStep step;
  for (size_t p = 0; p < kParameters.size(); ++p) step.add(testing::model_like_row(5000, p), kParameters[p], 1);
  for (const int threads : {1, 3}) EXPECT_EQ(sample_step(step, 1, threads).allocated, 0);
}

TEST(Sampler, ARowThatMayHoldNothingFailsAlone) {
  SamplerStep step;
  const auto row = testing::model_like_row(515, 4);
  step.add(row, {.temperature = 1.0f}, 1, {.allowed_ids = {7}, .forbidden_ids = {7}});
  step.add(row, {.temperature = 1.0f}, 1, {.allowed_ids = {7, 400}, .forbidden_ids = {7}});
  step.add(row, {.temperature = 0.0f}, 1, {.logit_bias = {{44, kInf}}});
  for (const int world : {1, 2}) EXPECT_EQ(sample_step(step, world).tokens, (std::vector<int32_t>{-1, 400, -1}));
}

TEST(Sampler, SeedAndPositionMatter) {
  const std::vector<float> row(1000, 0.0f);
  SamplerStep step;
  for (int i = 0; i < 12; ++i)
    step.add(row, {.temperature = 1.0f, .seed = i < 6 ? 1u : static_cast<uint32_t>(i)}, i < 6 ? i : 0);
  auto tokens = sample_step(step).tokens;
  std::sort(tokens.begin(), tokens.end());
  EXPECT_GE(std::unique(tokens.begin(), tokens.end()) - tokens.begin(), 11);  // position 0 with seed 1 and 11 others
}

}  // namespace
}  // namespace helios
