// Prompt scoring through submissions: the values of generation at every position, whatever the chunks and the degree;
// its graphs, frames and storage, and that nothing else changes when it is there.
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/vocab_range.h"
#include "tests/support/count_allocations.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {
namespace {

#if defined(HELIOS_EMULATED_DEVICE)
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

namespace w = prompt_score_word;

class PromptScoringTest : public ::testing::Test {
 protected:
  PromptScoringTest() { write_tiny_checkpoint(directory_.path()); }

  /// Scored capacities 128 and 150.
  CoreConfig config() const {
    return {.model_dir = directory_.path(),
            .slot_capacity = 4,
            .prefill_chunk = 150,
            .kv_cache_tokens = 4 * kTinyContext,
            .prompt_logprobs = true};
  }

  const TemporaryDirectory directory_;
};

std::vector<TokenId> prompt_of(size_t length, uint32_t seed) {
  std::vector<TokenId> out;
  for (size_t i = 0; i < length; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<TokenId>((seed >> 8) % 120));  // few enough to be selected ids, all at once
  }
  return out;
}

void expect_invalid(const std::vector<int32_t>& row) {
  EXPECT_EQ(row[w::kActualId], -1);
  EXPECT_TRUE(std::isnan(bits_float(row[w::kActualBits])));
  EXPECT_EQ(row[w::kActualRank], 0);
  for (int i = 0; i < kMaxNaturalAlternatives; ++i) EXPECT_EQ(row[w::kFirstAlternative + 2 * i], -1);
}

/// What generation reports at each position of a prompt: the natural alternatives, and the value of the next token.
struct Generated {
  std::vector<std::vector<int32_t>> natural;
  std::vector<int32_t> actual_bits;
};

Generated generate_at_each_position(TestCluster& cluster, const std::vector<TokenId>& prompt) {
  TestDriver driver(cluster);
  const auto positions = static_cast<int>(prompt.size());
  std::vector<TestSequence> two(
      2, TestSequence{.prompt = prompt, .sampling = greedy(positions), .logprobs = true, .sample_every_chunk = true});
  std::vector<TokenId>& ids = two[1].selected;
  ids = prompt;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  driver.run(two, 1);
  Generated out{.natural = two[0].packed};
  for (size_t p = 0; p + 1 < prompt.size(); ++p) {
    const auto at = std::lower_bound(ids.begin(), ids.end(), prompt[p + 1]) - ids.begin();
    out.actual_bits.push_back(two[1].packed[p][static_cast<size_t>(kFirstAlternative + 2 * at + 1)]);
  }
  return out;
}

void expect_scored(const std::vector<int32_t>& row, TokenId actual, int32_t bits, const std::vector<int32_t>& natural) {
  ASSERT_EQ(row.size(), static_cast<size_t>(kPromptScoreWords));
  EXPECT_EQ(row[w::kActualId], actual);
  EXPECT_EQ(row[w::kActualBits], bits) << "prompted and generated have the same bits (X1)";
  EXPECT_TRUE(std::equal(row.begin() + w::kFirstAlternative, row.end(), natural.begin() + kFirstAlternative));
  int greater = 0;
  for (int i = 0; i < kMaxNaturalAlternatives; ++i)
    greater += bits_float(row[static_cast<size_t>(w::kFirstAlternative + 2 * i + 1)]) > bits_float(bits);
  if (greater < kMaxNaturalAlternatives) {
    EXPECT_EQ(row[w::kActualRank], 1 + greater);
  } else {
    EXPECT_GT(row[w::kActualRank], kMaxNaturalAlternatives);
    EXPECT_LE(row[w::kActualRank], kTinyVocab);
  }
}

/// Every position, over degrees and chunks; then the tokens that follow, from the same cache.
void check_bits(const CoreConfig& config, const std::vector<int>& worlds, const std::vector<int>& chunks) {
  const std::vector<size_t> lengths = kEmulated ? std::vector<size_t>{35, 1} : std::vector<size_t>{97, 1, 33, 64};
  std::vector<TestSequence> sequences, ordinary;
  std::vector<Generated> expected;
  CoreConfig plain = config;
  plain.prompt_logprobs = false;
  TestCluster alone(plain, 1);
  for (size_t i = 0; i < lengths.size(); ++i) {
    TestSequence q{.prompt = prompt_of(lengths[i], static_cast<uint32_t>(i)), .sampling = greedy(3), .logprobs = true};
    expected.push_back(generate_at_each_position(alone, q.prompt));
    ordinary.push_back(q);
    q.scored = true;
    sequences.push_back(std::move(q));
  }
  TestDriver(alone).run(ordinary, 0);
  for (const int world : worlds) {
    TestCluster cluster(config, world);
    TestDriver driver(cluster);
    for (const int chunk : chunks) {
      SCOPED_TRACE("TP " + std::to_string(world) + " chunk " + std::to_string(chunk));
      std::vector<TestSequence> run = sequences;
      driver.run(run, chunk);
      for (size_t i = 0; i < run.size(); ++i) {
        SCOPED_TRACE("sequence " + std::to_string(i));
        const TestSequence& q = run[i];
        ASSERT_EQ(q.prompt_rows.size(), q.prompt.size());
        for (size_t p = 0; p + 1 < q.prompt.size(); ++p) {
          expect_scored(q.prompt_rows[p], q.prompt[p + 1], expected[i].actual_bits[p], expected[i].natural[p]);
          if (::testing::Test::HasFailure()) FAIL() << "position " << p;
        }
        expect_invalid(q.prompt_rows.back());
        EXPECT_EQ(q.tokens, ordinary[i].tokens);
        EXPECT_EQ(q.packed, ordinary[i].packed);
        EXPECT_EQ(q.kv_length, ordinary[i].kv_length);
      }
    }
    const double live =  // a prompt's last row travels too
        cluster.counter(0, "helios_prompt_rows_total") + static_cast<double>(sequences.size() * chunks.size());
    EXPECT_EQ(cluster.counter(0, "helios_prompt_exchange_words_total"), world > 1 ? 2 * 64 * live : 0) << "R41";
  }
}

TEST_F(PromptScoringTest, R38_R40_R41_X1_EveryPositionHasTheBitsOfGenerationAtAnyDegreeAndChunk) {
  if (kEmulated) return check_bits(config(), {2}, {0});
  check_bits(config(), {1, 2, 4, 8}, {0, 1, 7, 64});
  CoreConfig rounded = config();
  rounded.dtype = ComputeDtype::kBFloat16;
  check_bits(rounded, {1, 4}, {0, 7});
}

// R38: nothing is generated without a budget, sampled or not; the scores come all the same.
TEST_F(PromptScoringTest, R38_AZeroBudgetPrefillsOnly) {
  TestCluster cluster(config(), 2);
  std::vector<TestSequence> run(2,
                                {.prompt = prompt_of(20, 5), .sampling = greedy(0), .logprobs = true, .scored = true});
  run[1].scored = false;
  TestDriver(cluster).run(run, 8);
  for (const TestSequence& q : run) {
    EXPECT_TRUE(q.tokens.empty());
    EXPECT_EQ(q.finish, FinishCode::kTokenLimit);
    EXPECT_EQ(q.kv_length, 20);
  }
  EXPECT_EQ(run[0].prompt_rows.size(), 20u);
  EXPECT_EQ(cluster.counter(0, "helios_logprob_positions_total"), 0);
}

Submission scored(const std::vector<int32_t>& zeros, uint64_t sequence) {
  return {.sequence = Sequence(sequence),
          .frame = FrameIndex(static_cast<int32_t>(sequence % 2)),
          .operation = Operation::kScoredPrefill,
          .logprob_requested = zeros,
          .logprob_token_id_counts = zeros};
}

void add_lane(Submission& s, int slot, uint32_t epoch, const std::vector<TokenId>& tokens, bool admit = true) {
  if (admit) {
    s.admissions.push_back({SlotIndex(slot), Epoch(epoch), greedy(8)});
    s.block_updates.push_back({SlotIndex(slot), 0, {4 * slot, 4 * slot + 1, 4 * slot + 2, 4 * slot + 3}});
  }
  s.lanes.push_back({SlotIndex(slot), Epoch(epoch), LaneRole::kPrefill, 0, false, tokens});
  s.prompt_target_tokens.insert(s.prompt_target_tokens.end(), tokens.begin() + 1, tokens.end());
  s.prompt_target_tokens.push_back(kNoTarget);
}

// R28, R40: rows lie where their prompt tokens are, of both frames in flight; a lane without rows has invalid ones, and
// rank 0 alone copies, as many as the submission has.
TEST_F(PromptScoringTest, R28_R40_RowsComeInTheOrderOfTheSubmissionFromItsOwnFrame) {
  const std::vector<int32_t> zeros(4, 0);
  TestCluster cluster(config(), 2);
  const std::vector<TokenId> a = prompt_of(40, 1), b = prompt_of(30, 2), c = prompt_of(25, 3);
  const auto alone = [&](const std::vector<TokenId>& prompt, uint64_t sequence) {
    Submission s = scored(zeros, sequence);
    add_lane(s, 3, static_cast<uint32_t>(sequence), prompt);
    EXPECT_TRUE(cluster.submit(s).ok());
    return cluster.collect();
  };
  const Completion only_a = alone(a, 1), only_b = alone(b, 2), only_c = alone(c, 3);
  EXPECT_EQ(only_a.bytes_copied - only_b.bytes_copied, 10 * 43 * 4);

  Submission first = scored(zeros, 4), second = scored(zeros, 5);
  add_lane(first, 0, 1, a);
  add_lane(first, 2, 99, prompt_of(5, 9), false);  // nobody's epoch
  add_lane(first, 1, 1, b);
  add_lane(second, 2, 1, c);
  ASSERT_TRUE(cluster.submit(first).ok());
  ASSERT_TRUE(cluster.submit(second).ok());
  const Completion both = cluster.collect(), last = cluster.collect();
  ASSERT_EQ(both.prompt_rows.size(), 75u * kPromptScoreWords);
  const auto part = [&](size_t from, size_t count) {
    return std::vector<int32_t>(both.prompt_rows.begin() + static_cast<long>(from * kPromptScoreWords),
                                both.prompt_rows.begin() + static_cast<long>((from + count) * kPromptScoreWords));
  };
  EXPECT_EQ(part(0, 40), only_a.prompt_rows);
  for (size_t row = 40; row < 45; ++row) expect_invalid(part(row, 1));
  EXPECT_EQ(part(45, 30), only_b.prompt_rows);
  EXPECT_EQ(last.prompt_rows, only_c.prompt_rows);
  EXPECT_TRUE(both.payloads.empty());
  EXPECT_EQ(cluster.counter(0, "helios_prompt_rows_total"), 2 * (39 + 29 + 24));
}

// R39, R45, R47: without the flag there are no graphs, no storage and no counters of scoring, and with it the others
// are as they were.
TEST_F(PromptScoringTest, R39_R45_R47_TheFlagAddsGraphsAndStorageBehindAnUnchangedCatalog) {
  const std::vector<int32_t> zeros(4, 0);
  CoreConfig without = config();
  without.prompt_logprobs = false;
  TestCluster plain(without, 1), scoring(config(), 1);
  const CoreManifest &p = plain.manifest(), &s = scoring.manifest();
  EXPECT_EQ(derive_capabilities(s)->scored_capacities, (std::vector<int32_t>{128, 150}));
  EXPECT_FALSE(derive_capabilities(p)->prompt_scoring);
  ASSERT_EQ(s.buffers.size(), p.buffers.size() + 2);
  ASSERT_EQ(s.graphs.size(), p.graphs.size() + 2);
  EXPECT_TRUE(std::equal(p.buffers.begin(), p.buffers.end(), s.buffers.begin()));
  EXPECT_TRUE(std::equal(p.graphs.begin(), p.graphs.end(), s.graphs.begin()));
  EXPECT_EQ(s.memory.bundle_bytes - p.memory.bundle_bytes, 150 * 4 + 2 * 150 * 43 * 4);
  const int64_t matrix = 64 * VocabLayout(kTinyVocab).shard_stride(1) * 4;
  EXPECT_EQ(s.memory.workspace_bytes, p.memory.workspace_bytes);
  EXPECT_EQ(p.memory.scoring_bytes, 0);
  EXPECT_GE(s.memory.scoring_bytes, matrix);
  EXPECT_LE(s.memory.scoring_bytes, matrix + (4 << 20));
  EXPECT_GE(s.memory.pinned_bytes - p.memory.pinned_bytes, 2 * 150 * 43 * 4);

  Submission submission = scored(zeros, 1);
  add_lane(submission, 0, 1, prompt_of(9, 1));
  const Status refused = plain.submit(submission);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("scored_prefill"), std::string::npos);
  submission.operation = Operation::kPrefill;
  submission.prompt_target_tokens.clear();
  ASSERT_TRUE(plain.submit(submission).ok());
  ASSERT_TRUE(scoring.submit(submission).ok());
  EXPECT_EQ(plain.collect(), scoring.collect()) << "an ordinary prefill copies and reports the same";
  EXPECT_EQ(scoring.counter(0, "helios_prompt_rows_total"), 0);

  CoreConfig five = config();
  five.max_logprobs = 5;
  EXPECT_THROW(TestCluster(five, 1), LoadError);
}

// R23, R40: preallocated storage; a scored step allocates nothing on any rank's thread.
TEST_F(PromptScoringTest, R23_R40_AScoredStepAllocatesNothing) {
  if (kEmulated) GTEST_SKIP() << "the emulator allocates where a GPU would not";
  const std::vector<int32_t> zeros(4, 0);
  TestCluster cluster(config(), 2);
  for (uint64_t i = 1; i <= 6; ++i) {
    Submission s = scored(zeros, i);
    add_lane(s, 0, static_cast<uint32_t>(i), prompt_of(70, 4));
    add_lane(s, 1, static_cast<uint32_t>(i), prompt_of(i % 3 == 0 ? 10 : 70, 5));  // one graph or the other
    const int64_t start = count_allocations();
    for (int r = 0; r < 2; ++r) ASSERT_TRUE(cluster.rank(r).submit(s).ok());
    for (int r = 0; r < 2; ++r) {
      while (!cluster.rank(r).collectable()) std::this_thread::yield();
    }
    if (i > 3) {  // the in-process exchange of the test grows its vectors the first times
      EXPECT_EQ(count_allocations() - start, 0) << "step " << i;
    }
    cluster.collect();
  }
}

}  // namespace
}  // namespace helios::testing
