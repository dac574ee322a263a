// A random step in memory: slots in every state, lanes of every fate, and outputs full of guard values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "common/contract/completion_layout.h"
#include "common/contract/operation.h"
#include "kernels/step/reference.h"

namespace helios::testing {

/// `count` values between guard values, which expect_guards() checks. Starts filled with the guard.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count, T fill = T(-77)) : data_(static_cast<size_t>(count) + 2 * kGuards, T(-77)) {
    std::fill(data_.begin() + kGuards, data_.end() - kGuards, fill);
  }
  T* data() { return data_.data() + kGuards; }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return static_cast<int64_t>(data_.size()) - 2 * kGuards; }
  std::vector<T> first(size_t count) { return {data(), data() + count}; }
  std::vector<T> all() { return first(static_cast<size_t>(size())); }
  void expect_guards() const {
    for (size_t i = 0; i < kGuards; ++i) {
      EXPECT_EQ(data_[i], T(-77)) << "written before the start";
      EXPECT_EQ(data_[data_.size() - 1 - i], T(-77)) << "written past the end";
    }
  }

 private:
  static constexpr size_t kGuards = 8;
  std::vector<T> data_;
};

struct RandomStep {
  static constexpr int32_t kBlockSize = 4, kMaxBlocks = 8, kMaxModelLen = 30, kT = 3, kPackedWords = 10;

  RandomStep(int32_t num_slots, int32_t num_lanes, uint32_t seed)
      : capacity(num_slots), engine(seed), slots(num_slots), sampling(num_slots), tables(num_slots * kMaxBlocks) {
    header = {.sequence = 1000 + seed,
              .operation = static_cast<int32_t>(Operation::kMixed),
              .frame = static_cast<int32_t>(seed % 2),
              .num_lanes = num_lanes};
    for (int32_t s = 0; s < num_slots; ++s) make_slot(s);
    std::vector<int32_t> order(static_cast<size_t>(num_slots));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine);
    for (int32_t i = 0; i < num_lanes; ++i) make_lane(order[static_cast<size_t>(i)]);
    lanes.resize(static_cast<size_t>(num_slots));  // memory for as many as could come
  }

  /// Gives decode lanes up to four proposals each. Before inputs() is asked for.
  void propose() {
    for (int32_t i = 0; i < header.num_lanes; ++i) {
      LaneInput& lane = lanes[static_cast<size_t>(i)];
      if (!lane.decodes) continue;
      lane.first_token = header.num_prompt_tokens;
      lane.num_tokens = below(5);
      header.num_prompt_tokens += lane.num_tokens;
      for (int32_t t = 0; t < lane.num_tokens; ++t) prompt_tokens.push_back(below(50));
    }
  }

  int32_t below(int32_t n) { return static_cast<int32_t>(engine() % static_cast<uint32_t>(n)); }

  StepInputs inputs() {
    return {.header = &header,
            .lanes = lanes.data(),
            .admissions = admissions.data(),
            .prompt_tokens = prompt_tokens.data(),
            .block_updates = block_updates.data()};
  }

  const int32_t capacity;
  std::mt19937 engine;
  StepHeader header;
  std::vector<SlotState> slots;
  std::vector<SlotSampling> sampling;
  std::vector<int32_t> tables;
  std::vector<LaneInput> lanes;
  std::vector<AdmissionInput> admissions;
  std::vector<int32_t> prompt_tokens;
  std::vector<BlockUpdateInput> block_updates;
  StepCounters counters;

 private:
  void make_slot(int32_t s) {
    SlotState& slot = slots[static_cast<size_t>(s)];
    slot.epoch = static_cast<uint32_t>(below(12) == 0 ? 0 : 1 + below(5));
    slot.position = below(4) == 0 ? 0 : below(kMaxModelLen);
    slot.last_token = below(8) == 0 ? -1 : below(50);
    slot.generated = below(4);
    slot.max_tokens = 1 + below(7);
    slot.eos_id = below(4) == 0 ? -1 : below(6);
    slot.ignore_eos = below(3) == 0;
    slot.finished = below(8) == 0;
    slot.num_stop_ids = below(3) == 0 ? kMaxStopIds : below(3);
    for (int32_t i = 0; i < slot.num_stop_ids; ++i) slot.stop_ids[i] = i + 1 < slot.num_stop_ids ? 1000 + i : below(8);
    const int32_t blocks = below(3) == 0 ? below(kMaxBlocks + 1) : kMaxBlocks;
    for (int32_t b = 0; b < kMaxBlocks; ++b) tables[s * kMaxBlocks + b] = b < blocks ? below(99) : -1;
    if (below(6) == 0) tables[s * kMaxBlocks] = -1;
  }
  void make_lane(int32_t s) {
    const SlotState& slot = slots[static_cast<size_t>(s)];
    LaneInput lane{.slot = s, .epoch = below(6) == 0 ? slot.epoch + 1 : slot.epoch, .decodes = below(2), .samples = 1};
    if (!lane.decodes) {
      lane.samples = below(2);
      lane.start = below(5) == 0 ? below(kMaxModelLen) : slot.position;
      lane.first_token = header.num_prompt_tokens;
      lane.num_tokens = 1 + below(below(8) == 0 ? 70 : 5);
      header.num_prompt_tokens += lane.num_tokens;
      for (int32_t t = 0; t < lane.num_tokens; ++t) prompt_tokens.push_back(below(50));
    }
    lanes.push_back(lane);
  }
};

inline const Launcher& device() {
  static ThreadPool pool(1);  // a CPU kernel's; an emulated one takes the absent stream and runs at once
  static const Launcher launcher(pool);
  return launcher;
}

// Lanes past a block's 256 threads, past a warp, and few.
inline constexpr std::pair<int32_t, int32_t> kSizes[] = {{1, 1}, {5, 3}, {40, 40}, {40, 0}, {300, 290}};

/// The rows of a random step, and their definition.
struct Expansion {
  Expansion(RandomStep& random_step, bool private_roles)
      : step(random_step),
        lane_columns{Guarded<int32_t>(step.capacity), Guarded<int32_t>(step.capacity), Guarded<int32_t>(step.capacity),
                     Guarded<int32_t>(step.capacity), Guarded<int32_t>(step.capacity)},
        fates(step.capacity, LaneFate::kBroken) {
    args = {.inputs = step.inputs(),
            .max_lanes = step.capacity,
            .private_roles = private_roles,
            .slots = step.slots.data(),
            .block_tables = step.tables.data(),
            .max_blocks = RandomStep::kMaxBlocks,
            .block_size = RandomStep::kBlockSize,
            .max_model_len = RandomStep::kMaxModelLen,
            .lanes = {.fates = fates.data(),
                      .first_rows = lane_columns[0].data(),
                      .first_positions = lane_columns[1].data(),
                      .num_rows = lane_columns[2].data(),
                      .sampling = lane_columns[3].data(),
                      .halves = lane_columns[4].data()},
            .num_rows = &num_rows,
            .tokens = tokens.data(),
            .positions = positions.data(),
            .row_slots = row_slots.data(),
            .num_sampling = &num_sampling,
            .sampling_rows = sampling_rows.data(),
            .sampling_slots = sampling_slots.data(),
            .sampling_epochs = sampling_epochs.data(),
            .sampling_positions = sampling_positions.data(),
            .sampling_halves = sampling_halves.data(),
            .sampling_tokens = sampling_tokens.data(),
            .counters = &step.counters};
  }

  void expect_definition() {
    const reference::Rows expected = reference::expand_rows(args);
    expand_rows(args, device());
    const auto lanes = static_cast<size_t>(step.header.num_lanes);
    EXPECT_EQ(fates.first(lanes), expected.fates);
    EXPECT_EQ(lane_columns[3].first(lanes), expected.sampling);
    EXPECT_EQ(lane_columns[4].first(lanes), expected.halves);
    ASSERT_EQ(num_rows, static_cast<int32_t>(expected.tokens.size()));
    const auto rows = static_cast<size_t>(num_rows);
    EXPECT_EQ(tokens.first(rows), expected.tokens);
    EXPECT_EQ(positions.first(rows), expected.positions);
    EXPECT_EQ(row_slots.first(rows), expected.slots);
    ASSERT_EQ(num_sampling, static_cast<int32_t>(expected.sampling_rows.size()));
    const auto sampling = static_cast<size_t>(num_sampling);
    EXPECT_EQ(sampling_rows.first(sampling), expected.sampling_rows);
    EXPECT_EQ(sampling_slots.first(sampling), expected.sampling_slots);
    EXPECT_EQ(sampling_epochs.first(sampling), expected.sampling_epochs);
    EXPECT_EQ(sampling_positions.first(sampling), expected.sampling_positions);
    EXPECT_EQ(sampling_halves.first(sampling), expected.sampling_halves);
    if (args.sampling_tokens) {
      EXPECT_EQ(sampling_tokens.first(sampling), expected.sampling_tokens);
    }
    for (auto* words : {&tokens, &positions, &row_slots, &sampling_rows, &sampling_slots, &sampling_tokens})
      words->expect_guards();
    for (auto& words : lane_columns) words.expect_guards();
    for (int64_t r = num_rows; r < tokens.size(); ++r) ASSERT_EQ(tokens[r], -77) << "a row that nobody asked for";
    EXPECT_EQ(step.counters.steps, 1);
    EXPECT_EQ(step.counters.rows, num_rows);
    EXPECT_EQ(step.counters.sampled, num_sampling);
  }

  RandomStep& step;
  Guarded<int32_t> lane_columns[5];
  Guarded<LaneFate> fates;
  int32_t num_rows = -1, num_sampling = -1;
  Guarded<int32_t> tokens{step.capacity + 4000}, positions{step.capacity + 4000}, row_slots{step.capacity + 4000};
  Guarded<int32_t> sampling_rows{step.capacity * 5}, sampling_slots{step.capacity * 5},
      sampling_positions{step.capacity * 5}, sampling_halves{step.capacity * 5}, sampling_tokens{step.capacity * 5};
  Guarded<uint32_t> sampling_epochs{step.capacity * 5};
  RowExpansionArgs args;
};

}  // namespace helios::testing
