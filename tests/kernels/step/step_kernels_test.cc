// The control part of a step against its definition: updates, row expansion, commit, role merge, summary.
#include <cstring>

#include "tests/kernels/step/random_step.h"

namespace helios {
namespace {

using testing::device;
using testing::Expansion;
using testing::Guarded;
using testing::kSizes;
using testing::RandomStep;

bool same(const SlotState& a, const SlotState& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// ---- updates

TEST(Updates, MeetsTheDefinition) {
  for (const auto& [capacity, lanes] : kSizes) {
    RandomStep step(capacity, lanes, 7);
    RandomStep other(capacity, lanes, 8);
    for (int32_t s = 0; s < capacity; s += 3) {
      step.admissions.push_back({.slot = s, .state = other.slots[s], .sampling = {.temperature = 0.5f, .seed = 9}});
    }
    for (int32_t s = 0; s < capacity; ++s) {
      for (int32_t b = s % 3; b < RandomStep::kMaxBlocks; b += 2) step.block_updates.push_back({s, b, 100 + b});
    }
    step.header.num_admissions = static_cast<int32_t>(step.admissions.size());
    step.header.num_block_updates = static_cast<int32_t>(step.block_updates.size());
    Guarded<int32_t> tables(capacity * RandomStep::kMaxBlocks);
    std::copy(step.tables.begin(), step.tables.end(), tables.data());
    const UpdatesArgs args{.inputs = step.inputs(),
                           .slots = step.slots.data(),
                           .sampling = step.sampling.data(),
                           .block_tables = tables.data(),
                           .max_blocks = RandomStep::kMaxBlocks};
    const reference::Slots expected = reference::apply_updates(args, capacity);
    apply_updates(args, device());
    for (int32_t s = 0; s < capacity; ++s) {
      EXPECT_TRUE(same(step.slots[s], expected.states[s])) << s;
      EXPECT_EQ(step.sampling[s].temperature, expected.sampling[s].temperature) << s;
      EXPECT_EQ(step.sampling[s].seed, expected.sampling[s].seed) << s;
    }
    EXPECT_EQ(tables.all(), expected.block_tables);
    tables.expect_guards();
  }
}

// ---- rows

// R38: each row's target is its own prompt token's, whatever lanes before it had no rows.
TEST(PromptTargets, R38_FollowTheRowsOfLanesThatRun) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (uint32_t seed = 30; seed < 34; ++seed) {
      RandomStep step(capacity, lanes, seed);
      Expansion expansion(step, false);
      expand_rows(expansion.args, device());
      Guarded<int32_t> targets(static_cast<int64_t>(step.prompt_tokens.size()) + 1), row_targets(capacity + 4000),
          row_tokens(capacity + 4000);
      for (int64_t t = 0; t < targets.size(); ++t) targets[t] = t % 5 == 0 ? -1 : static_cast<int32_t>(1000 + t);
      const PromptTargetsArgs args{.inputs = step.inputs(),
                                   .max_lanes = capacity,
                                   .lanes = expansion.args.lanes,
                                   .targets = targets.data(),
                                   .row_targets = row_targets.data(),
                                   .row_tokens = row_tokens.data()};
      const reference::PromptTargets expected = reference::prompt_targets(args);
      prompt_targets(args, device());
      const auto rows = static_cast<size_t>(expansion.num_rows);
      EXPECT_EQ(row_targets.first(rows), expected.targets);
      EXPECT_EQ(row_tokens.first(rows), expected.tokens);
      for (int64_t r = expansion.num_rows; r < row_targets.size(); ++r) ASSERT_EQ(row_targets[r], -77);
      row_targets.expect_guards();
      row_tokens.expect_guards();
    }
  }
}

TEST(RowExpansion, MeetsTheDefinitionForLanesOfEveryFate) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {1u, 2u}) {
      for (const bool private_roles : {false, true}) {
        RandomStep step(capacity, lanes, seed);
        Expansion(step, private_roles).expect_definition();
      }
    }
  }
}

TEST(RowExpansion, TheRandomStepsHoldEveryFate) {
  RandomStep step(300, 290, 1);
  Expansion expansion(step, false);
  const std::vector<LaneFate> fates = reference::expand_rows(expansion.args).fates;
  for (const LaneFate fate : {LaneFate::kDead, LaneFate::kRuns, LaneFate::kBroken}) {
    EXPECT_GT(std::count(fates.begin(), fates.end(), fate), 20);
  }
}

// Zeroed memory is a core without tenants: a lane of epoch 0 does not run.
TEST(RowExpansion, ASlotThatWasNeverOwnedIsDead) {
  RandomStep step(1, 1, 3);
  step.slots[0] = SlotState{};
  step.lanes[0] = {.slot = 0, .epoch = 0, .decodes = 1, .samples = 1};
  Expansion expansion(step, false);
  expand_rows(expansion.args, device());
  EXPECT_EQ(expansion.fates[0], LaneFate::kDead);
  EXPECT_EQ(expansion.num_rows, 0);
}

// Each limit alone decides: the context's length, the block size, the last block.
TEST(RowExpansion, EveryLimitCounts) {
  const auto fate = [](auto change) {
    RandomStep step(1, 1, 3);
    step.slots[0] = {.epoch = 2, .position = 7, .last_token = 5};
    std::fill(step.tables.begin(), step.tables.end(), -1);
    step.tables[0] = step.tables[1] = 3;
    step.lanes[0] = {.slot = 0, .epoch = 2, .decodes = 1, .samples = 1};
    Expansion expansion(step, false);
    expansion.args.max_model_len = 8;
    change(expansion);
    expand_rows(expansion.args, device());
    return expansion.fates[0];
  };
  EXPECT_EQ(fate([](Expansion&) {}), LaneFate::kRuns);
  EXPECT_EQ(fate([](Expansion& e) { e.args.max_model_len = 7; }), LaneFate::kBroken);
  EXPECT_EQ(fate([](Expansion& e) { e.args.block_size = 3; }), LaneFate::kBroken) << "a third block is missing";
  EXPECT_EQ(fate([](Expansion& e) { e.step.tables[1] = -1; }), LaneFate::kBroken);
  EXPECT_EQ(fate([](Expansion& e) { e.step.slots[0].last_token = -1; }), LaneFate::kBroken);
  EXPECT_EQ(fate([](Expansion& e) { e.step.slots[0].finished = 1; }), LaneFate::kDead);
  EXPECT_EQ(fate([](Expansion& e) { e.step.lanes[0].epoch = 3; }), LaneFate::kDead);
}

// ---- commit

struct Commit {
  explicit Commit(RandomStep& random_step, bool private_roles = false)
      : step(random_step),
        expansion(step, private_roles),
        records(int64_t{2} * step.capacity * record_words(RandomStep::kT)) {
    expand_rows(expansion.args, device());
    for (int32_t i = 0; i < step.capacity; ++i) {
      lane_chosen.push_back(1);
      lane_offered.push_back(step.below(9));
      lane_forced.push_back(step.below(16));
    }
    chosen.assign(static_cast<size_t>(step.capacity) * 5, 0);
    for (TokenId& token : chosen) token = step.below(14) == 0 ? -1 : step.below(12);
    args = {.inputs = step.inputs(),
            .max_lanes = step.capacity,
            .slots = step.slots.data(),
            .lanes = expansion.args.lanes,
            .chosen = chosen.data(),
            .records = records.data(),
            .capacity = step.capacity,
            .token_capacity = RandomStep::kT,
            .max_model_len = RandomStep::kMaxModelLen,
            .counters = &step.counters};
  }
  /// Lanes emit up to five tokens each, which lie one behind the other, as after a verification.
  void verify() {
    int32_t next = 0;
    for (int32_t i = 0; i < step.header.num_lanes; ++i) {
      if (args.lanes.sampling[i] < 0) continue;
      args.lanes.sampling[i] = next;
      next += lane_chosen[static_cast<size_t>(i)] = 1 + step.below(5);
    }
    args.lane_chosen = lane_chosen.data();
    args.lane_offered = lane_offered.data();
    args.lane_forced = lane_forced.data();
  }
  int64_t* record(int32_t half, int32_t slot) {
    return records.data() + (int64_t{half} * step.capacity + slot) * record_words(RandomStep::kT);
  }
  void expect_definition() {
    std::vector<int64_t> expected = records.all();
    std::vector<SlotState> slots = step.slots;
    int64_t emitted = 0;
    for (int32_t i = 0; i < step.header.num_lanes; ++i) {
      const reference::Committed lane = reference::commit_lane(args, i);
      const int32_t slot = step.lanes[static_cast<size_t>(i)].slot;
      std::copy(lane.record.begin(), lane.record.end(),
                expected.begin() + (record(args.lanes.halves[i], slot) - records.data()));
      slots[static_cast<size_t>(slot)] = lane.slot;
      emitted += lane.record[record_word::kEmitted];
    }
    commit_records(args, device());
    EXPECT_EQ(records.all(), expected);
    records.expect_guards();
    for (int32_t s = 0; s < step.capacity; ++s) EXPECT_TRUE(same(step.slots[s], slots[s])) << s;
    EXPECT_EQ(step.counters.emitted, emitted);
  }

  RandomStep& step;
  Expansion expansion;
  Guarded<int64_t> records;
  std::vector<TokenId> chosen;
  std::vector<int32_t> lane_chosen, lane_offered;
  std::vector<int64_t> lane_forced;
  CommitArgs args;
};

// R17: limits, EOS and stop ids end a lane here. Records of other slots and of the other half stay as they are.
TEST(CommitRecords, R17_MeetsTheDefinitionForLanesOfEveryFate) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      RandomStep step(capacity, lanes, seed);
      Commit(step).expect_definition();
    }
  }
}

// R16, R17: a lane emits what its rows chose, in order, clipped at the first token that finishes it.
TEST(CommitRecords, R16_R17_SeveralTokensOfALaneAreClippedAtTheFirstThatFinishes) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {4u, 5u, 6u}) {
      RandomStep step(capacity, lanes, seed);
      Commit commit(step);
      commit.verify();
      commit.expect_definition();
    }
  }
}

/// One decode lane of slot 1, whose rows chose tokens 70, 71, 72.
struct OneLane {
  OneLane() : step(3, 1, 9), commit(prepare()) {
    commit.args.lane_chosen = commit.lane_chosen.data();
    commit.lane_chosen[0] = 3;
    std::copy_n(std::vector<TokenId>{70, 71, 72}.begin(), 3, commit.chosen.begin());
  }
  RandomStep& prepare() {
    step.slots[1] = {.epoch = 5, .position = 10, .last_token = 3, .generated = 1, .max_tokens = 9, .eos_id = -1};
    std::fill_n(&step.tables[RandomStep::kMaxBlocks], RandomStep::kMaxBlocks, 1);
    step.lanes[0] = {.slot = 1, .epoch = 5, .decodes = 1, .samples = 1};
    step.header.frame = 1;
    return step;
  }
  const int64_t* run() {
    commit_records(commit.args, device());
    return commit.record(1, 1);
  }
  std::vector<TokenId> emitted() {
    const int64_t* r = run();
    return {r + record_word::kTokens, r + record_word::kTokens + r[record_word::kEmitted]};
  }
  FinishCode finish() { return static_cast<FinishCode>(commit.record(1, 1)[record_word::kFinish]); }

  RandomStep step;
  Commit commit;
};

TEST(CommitRecords, R16_ARunOfThreeIsOneRecord) {
  OneLane lane;
  const int64_t* r = lane.run();
  const std::vector<int64_t> expected{
      6, 1, 5, static_cast<int64_t>(Operation::kMixed), 1009, 3, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 70, 71, 72};
  EXPECT_EQ(std::vector<int64_t>(r, r + expected.size()), expected);
  EXPECT_EQ(lane.step.slots[1].position, 13) << "the last token and the two proposals before the last one are cached";
  EXPECT_EQ(lane.step.slots[1].last_token, 72);
  EXPECT_EQ(lane.step.slots[1].generated, 4);
}

TEST(CommitRecords, R17_EachReasonClips) {
  using Tokens = std::vector<TokenId>;
  const auto ends = [](auto change, const Tokens& tokens, FinishCode finish) {
    OneLane lane;
    change(lane);
    EXPECT_EQ(lane.emitted(), tokens);
    EXPECT_EQ(lane.finish(), finish);
    EXPECT_EQ(lane.step.slots[1].finished, finish != FinishCode::kNone);
    EXPECT_EQ(lane.step.slots[1].position, 10 + std::max<int32_t>(1, static_cast<int32_t>(tokens.size())));
  };
  ends([](OneLane& l) { l.step.slots[1].eos_id = 71; }, {70, 71}, FinishCode::kEos);
  ends([](OneLane& l) { l.step.slots[1].eos_id = 71, l.step.slots[1].ignore_eos = 1; }, {70, 71, 72},
       FinishCode::kNone);
  ends([](OneLane& l) { l.step.slots[1].num_stop_ids = 2, l.step.slots[1].stop_ids[1] = 70; }, {70},
       FinishCode::kStopId);
  ends([](OneLane& l) { l.step.slots[1].max_tokens = 3; }, {70, 71}, FinishCode::kTokenLimit);
  ends([](OneLane& l) { l.step.slots[1].max_tokens = 1; }, {}, FinishCode::kTokenLimit);  // R38: nothing is left of it
  ends([](OneLane& l) { l.commit.args.max_model_len = 13; }, {70, 71}, FinishCode::kContextLimit);
  ends([](OneLane& l) { l.commit.chosen[1] = -1; }, {70}, FinishCode::kError);
  ends([](OneLane& l) { l.commit.chosen[0] = -1; }, {}, FinishCode::kError);
  // What several would end at the same token has an order: EOS, stop id, token limit, context limit.
  ends(
      [](OneLane& l) {
        l.step.slots[1].eos_id = 70, l.step.slots[1].num_stop_ids = 1, l.step.slots[1].stop_ids[0] = 70;
        l.step.slots[1].max_tokens = 2, l.commit.args.max_model_len = 12;
      },
      {70}, FinishCode::kEos);
}

TEST(CommitRecords, R4_ForcedTokensAreMarkedAsFarAsTheyAreEmitted) {
  OneLane lane;
  lane.commit.lane_forced[0] = 0b110;
  lane.commit.args.lane_forced = lane.commit.lane_forced.data();
  lane.step.slots[1].max_tokens = 3;
  EXPECT_EQ(lane.run()[record_word::kForcedMask], 0b010);
}

TEST(CommitRecords, R16_OfferedAndAcceptedProposalsAreCounted) {
  for (const auto& [eos, accepted] : {std::pair<TokenId, int64_t>{-1, 2}, {71, 2}, {70, 1}}) {
    OneLane lane;
    lane.commit.lane_offered[0] = 4;
    lane.commit.args.lane_offered = lane.commit.lane_offered.data();
    lane.step.slots[1].eos_id = eos;
    const int64_t* r = lane.run();
    EXPECT_EQ(r[record_word::kProposalsOffered], 4);
    EXPECT_EQ(r[record_word::kProposalsAccepted], accepted) << "proposals among what was emitted";
  }
}

// R19: an admission's record emits nothing.
TEST(CommitRecords, R19_AnAdmissionAloneWritesEmptyRecords) {
  RandomStep step(40, 0, 5);
  for (const int32_t slot : {7, 3, 39}) {
    step.admissions.push_back({.slot = slot, .state = {.epoch = 80u + static_cast<uint32_t>(slot)}});
  }
  step.header.num_admissions = 3;
  Commit commit(step);
  const std::vector<int64_t> before = commit.records.all();
  commit_records(commit.args, device());
  for (int32_t slot = 0; slot < 40; ++slot) {
    const bool admitted = slot == 7 || slot == 3 || slot == 39;
    const int64_t* r = commit.record(1, slot);
    EXPECT_EQ(r[record_word::kEpoch], admitted ? 80 + slot : -77);
    EXPECT_EQ(r[record_word::kEmitted], admitted ? 0 : -77);
    EXPECT_EQ(commit.record(0, slot)[0], -77) << "the other frame";
  }
}

// ---- role merge

struct Merge {
  explicit Merge(RandomStep& random_step)
      : step(random_step),
        records(int64_t{2} * step.capacity * record_words(RandomStep::kT)),
        packed(int64_t{2} * step.capacity * RandomStep::kT * RandomStep::kPackedWords) {
    role_records.resize(static_cast<size_t>(records.size()));
    role_packed.resize(static_cast<size_t>(packed.size()));
    for (int64_t& word : role_records) word = step.below(1 << 30);
    for (int32_t& word : role_packed) word = step.below(1 << 30);
    const int words = record_words(RandomStep::kT);
    for (size_t i = 0; i < role_records.size(); i += words) {
      role_records[i + record_word::kEmitted] = step.below(RandomStep::kT + 1);
    }
    for (int32_t s = 0; s < step.capacity; ++s) requested.push_back(step.below(3) != 0);
    args = {.inputs = step.inputs(),
            .max_lanes = step.capacity,
            .role_records = role_records.data(),
            .role_packed = role_packed.data(),
            .requested = requested.data(),
            .records = records.data(),
            .packed = packed.data(),
            .capacity = step.capacity,
            .token_capacity = RandomStep::kT,
            .packed_words = RandomStep::kPackedWords,
            .counters = &step.counters};
  }
  RandomStep& step;
  Guarded<int64_t> records;
  Guarded<int32_t> packed;
  std::vector<int64_t> role_records;
  std::vector<int32_t> role_packed, requested;
  RoleMergeArgs args;
};

// R20: of every slot of the submission record and payload of its role, in the active frame alone. The definition names
// every word of both frames, so a slot left out, a payload of the other role, a word of the other frame each differ.
TEST(RoleMerge, R20_TakesRecordAndPayloadOfTheSlotsRoleIntoTheActiveFrame) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {1u, 2u}) {
      RandomStep step(capacity, lanes, seed);
      Merge merge(step);
      const reference::Frames expected = reference::merge_roles(merge.args);
      merge_roles(merge.args, device());
      EXPECT_EQ(merge.records.all(), expected.records);
      EXPECT_EQ(merge.packed.all(), expected.packed);
      merge.records.expect_guards();
      merge.packed.expect_guards();
      EXPECT_EQ(step.counters.merged_records, lanes);
    }
  }
}

TEST(RoleMerge, R20_TheOtherFrameIsNotRewritten) {
  for (const int32_t frame : {0, 1}) {
    RandomStep step(5, 5, 1);
    step.header.frame = frame;
    Merge merge(step);
    merge_roles(merge.args, device());
    const int64_t words = 5 * record_words(RandomStep::kT), payload = 5 * RandomStep::kT * RandomStep::kPackedWords;
    for (int64_t i = 0; i < words; ++i) {
      ASSERT_EQ(merge.records[(1 - frame) * words + i], -77);
      ASSERT_NE(merge.records[frame * words + i], -77);
    }
    for (int64_t i = 0; i < payload; ++i) ASSERT_EQ(merge.packed[(1 - frame) * payload + i], -77);
  }
}

// R24: whoever did not ask has no payload to copy; a core without logprobs has none at all.
TEST(RoleMerge, R24_CopiesNoPayloadThatNobodyAskedFor) {
  RandomStep step(5, 5, 1);
  Merge merge(step);
  std::fill(merge.requested.begin(), merge.requested.end(), 0);
  merge_roles(merge.args, device());
  for (int64_t i = 0; i < merge.packed.size(); ++i) ASSERT_EQ(merge.packed[i], -77);
  EXPECT_EQ(step.counters.merged_positions, 0);
  merge.args.packed = nullptr;
  merge.args.role_packed = nullptr;
  merge.args.requested = nullptr;
  merge_roles(merge.args, device());
  EXPECT_EQ(step.counters.merged_records, 10);
}

// ---- summary

struct Summary {
  explicit Summary(RandomStep& random_step)
      : step(random_step),
        records(static_cast<size_t>(2 * step.capacity) * record_words(RandomStep::kT)),
        lane_digests(static_cast<size_t>(step.capacity)) {
    for (int64_t& word : records) word = step.below(1 << 30);
    args = {.inputs = step.inputs(),
            .records = records.data(),
            .capacity = step.capacity,
            .token_capacity = RandomStep::kT,
            .lane_digests = lane_digests.data(),
            .counters = &step.counters,
            .summaries = summaries};
  }
  uint64_t digest() {
    summarize_step(args, device());
    return summaries[step.header.frame].digest;
  }
  RandomStep& step;
  std::vector<int64_t> records;
  std::vector<uint64_t> lane_digests;
  StepSummary summaries[2];
  StepSummaryArgs args;
};

TEST(StepSummary, R28_TheDigestIsTheDocumentedOne) {
  for (const auto& [capacity, lanes] : kSizes) {
    RandomStep step(capacity, lanes, 2);
    step.admissions.push_back({.slot = 0});
    step.header.num_admissions = 1;
    Summary summary(step);
    EXPECT_EQ(summary.digest(), reference::step_digest(summary.args));
  }
}

TEST(StepSummary, R28_TheDigestSeesEveryWordOfTheLanesRecordsAndTheirOrder) {
  RandomStep step(5, 3, 2);
  Summary summary(step);
  const uint64_t digest = summary.digest();
  const int words = record_words(RandomStep::kT);
  for (int32_t frame = 0; frame < 2; ++frame) {
    for (int32_t slot = 0; slot < 5; ++slot) {
      const bool lane =
          std::any_of(step.lanes.begin(), step.lanes.begin() + 3, [&](auto& l) { return l.slot == slot; });
      for (int w = 0; w < words; ++w) {
        int64_t& word = summary.records[static_cast<size_t>((frame * 5 + slot) * words + w)];
        ++word;
        EXPECT_EQ(summary.digest() != digest, lane && frame == step.header.frame) << frame << " " << slot << " " << w;
        --word;
      }
    }
  }
  std::swap(step.lanes[0], step.lanes[1]);
  EXPECT_NE(summary.digest(), digest);
}

TEST(StepSummary, CountersGoIntoTheActiveFramesSummaryAlone) {
  RandomStep step(2, 1, 3);
  Summary summary(step);
  step.counters = {.steps = 3, .rows = 5, .logprob_launches = 6};
  summarize_step(summary.args, device());
  EXPECT_EQ(summary.summaries[step.header.frame].counters.steps, 3);
  EXPECT_EQ(summary.summaries[step.header.frame].counters.rows, 5);
  EXPECT_EQ(summary.summaries[step.header.frame].counters.logprob_launches, 6);
  EXPECT_EQ(summary.summaries[1 - step.header.frame].counters.steps, 0);
  EXPECT_EQ(summary.summaries[1 - step.header.frame].digest, 0u);
}

}  // namespace
}  // namespace helios
