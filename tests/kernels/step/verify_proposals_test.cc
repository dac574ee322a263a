// Proposals on the device, against their definition: rows of a lane that brings some, and how far they stand.
#include "tests/kernels/step/random_step.h"

namespace helios {
namespace {

using testing::device;
using testing::Expansion;
using testing::Guarded;
using testing::kSizes;
using testing::RandomStep;

// R3: rows of proposals beside lanes of every other kind and fate.
TEST(ProposedRows, R3_MeetTheDefinitionForLanesOfEveryFate) {
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      for (const bool private_roles : {false, true}) {
        RandomStep step(capacity, lanes, seed);
        step.propose();
        Expansion(step, private_roles).expect_definition();
      }
    }
  }
}

/// One decode lane: its slot's last token 5 stands at position 7, and two blocks of four hold the positions to 7.
struct ProposingLane {
  ProposingLane() {
    step.slots[0] = {.epoch = 2, .position = 7, .last_token = 5};
    std::fill(step.tables.begin(), step.tables.end(), 3);
    step.prompt_tokens = {1, 8, 9};
    step.lanes[0] = {.slot = 0, .epoch = 2, .decodes = 1, .samples = 1, .first_token = 1, .num_tokens = 2};
  }
  RandomStep step{1, 1, 3};
};

TEST(ProposedRows, R3_EachRowSamplesTheTokenBehindItsOwn) {
  ProposingLane lane;
  Expansion e(lane.step, false);
  expand_rows(e.args, device());
  ASSERT_EQ(e.num_rows, 3);
  ASSERT_EQ(e.num_sampling, 3);
  using Words = std::vector<int32_t>;
  EXPECT_EQ(e.tokens.first(3), (Words{5, 8, 9}));
  EXPECT_EQ(e.positions.first(3), (Words{7, 8, 9}));
  EXPECT_EQ(e.sampling_rows.first(3), (Words{0, 1, 2}));
  EXPECT_EQ(e.sampling_positions.first(3), (Words{8, 9, 10}));
  EXPECT_EQ(e.sampling_tokens.first(3), (Words{0, 1, 2}));
  EXPECT_EQ(e.sampling_slots.first(3), (Words{0, 0, 0}));
  EXPECT_EQ(e.fates[0], LaneFate::kRuns);
}

// A proposal past the context or past the slot's blocks has no row: neither has its lane.
TEST(ProposedRows, EveryLimitCounts) {
  const auto fate = [](int32_t max_model_len, int32_t blocks) {
    ProposingLane lane;
    for (int32_t b = blocks; b < RandomStep::kMaxBlocks; ++b) lane.step.tables[static_cast<size_t>(b)] = -1;
    Expansion e(lane.step, false);
    e.args.max_model_len = max_model_len;
    expand_rows(e.args, device());
    EXPECT_EQ(e.num_rows, e.fates[0] == LaneFate::kRuns ? 3 : 0);
    return e.fates[0];
  };
  EXPECT_EQ(fate(10, 3), LaneFate::kRuns);
  EXPECT_EQ(fate(9, 3), LaneFate::kBroken);
  EXPECT_EQ(fate(10, 2), LaneFate::kBroken);
}

// A core without speculation has no list of token numbers to write.
TEST(ProposedRows, TheListOfTokenNumbersMayBeAbsent) {
  RandomStep step(40, 40, 1);
  Expansion e(step, false);
  e.args.sampling_tokens = nullptr;
  e.expect_definition();
}

struct Verification {
  explicit Verification(RandomStep& random_step) : step(random_step), expansion(step, false) {
    expand_rows(expansion.args, device());
    for (int32_t i = 0; i < expansion.num_sampling; ++i) chosen.push_back(step.below(50));
    args = {.inputs = step.inputs(),
            .max_lanes = step.capacity,
            .lanes = expansion.args.lanes,
            .chosen = chosen.data(),
            .lane_chosen = lane_chosen.data(),
            .lane_offered = lane_offered.data()};
  }
  /// Most of the proposals are what was sampled.
  void agree() {
    for (int32_t i = 0; i < step.header.num_lanes; ++i) {
      const LaneInput& lane = step.lanes[static_cast<size_t>(i)];
      if (!lane.decodes || args.lanes.sampling[i] < 0) continue;
      for (int32_t t = 0; t < lane.num_tokens; ++t) {
        if (step.below(5) == 0) continue;
        chosen[static_cast<size_t>(args.lanes.sampling[i] + t)] =
            step.prompt_tokens[static_cast<size_t>(lane.first_token + t)];
      }
    }
  }

  RandomStep& step;
  Expansion expansion;
  std::vector<TokenId> chosen;
  Guarded<int32_t> lane_chosen{step.capacity}, lane_offered{step.capacity};
  VerifyProposalsArgs args;
};

TEST(VerifyProposals, R3_MeetsTheDefinitionForLanesOfEveryFate) {
  int64_t offered = 0, chosen = 0;
  for (const auto& [capacity, lanes] : kSizes) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      RandomStep step(capacity, lanes, seed);
      step.propose();
      Verification verification(step);
      verification.agree();
      const reference::Verified expected = reference::verify_proposals(verification.args);
      verify_proposals(verification.args, device());
      EXPECT_EQ(verification.lane_chosen.first(static_cast<size_t>(lanes)), expected.chosen);
      EXPECT_EQ(verification.lane_offered.first(static_cast<size_t>(lanes)), expected.offered);
      for (int32_t i = lanes; i < capacity; ++i) EXPECT_EQ(verification.lane_chosen[i], -77);
      verification.lane_chosen.expect_guards();
      verification.lane_offered.expect_guards();
      for (const int32_t count : expected.offered) offered += count;
      for (const int32_t count : expected.chosen) chosen += count;
    }
  }
  EXPECT_GT(offered, 300);
  EXPECT_GT(chosen, offered);
}

// The row behind the last proposal that stands is the target's own: correction or bonus.
TEST(VerifyProposals, R3_ProposalsStandUpToTheFirstThatIsNotWhatWasSampled) {
  const auto verify = [](std::vector<TokenId> sampled) {
    ProposingLane lane;  // proposes 8, 9
    Verification verification(lane.step);
    verification.chosen = std::move(sampled);
    verification.args.chosen = verification.chosen.data();
    verify_proposals(verification.args, device());
    EXPECT_EQ(verification.lane_offered[0], 2);
    return verification.lane_chosen[0];
  };
  EXPECT_EQ(verify({8, 9, 4}), 3);
  EXPECT_EQ(verify({8, 9, 9}), 3);
  EXPECT_EQ(verify({8, 7, 9}), 2);
  EXPECT_EQ(verify({7, 9, 4}), 1) << "a right proposal behind a wrong one continues another text";
  EXPECT_EQ(verify({9, 8, 4}), 1);
  EXPECT_EQ(verify({8, -1, 4}), 2) << "a row that is no distribution is the last: the commit ends the request with it";
}

}  // namespace
}  // namespace helios
