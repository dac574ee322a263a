// The demo model, whole: scores and greedy tokens against float64 over its BF16 weights, and the same bits for a token
// that was generated alone, in company, or scored as part of a prompt in any chunks (X1).
//
// What it has over tests/worker/replay: BF16 weights on tensor cores, and shapes that a library's products care about.
// The golden values are deploy/demo/training/golden.py's, six prompts of them.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/test_cluster.h"

namespace helios::testing {
namespace {

namespace w = prompt_score_word;

// Largest difference seen on the CPU over every golden position: 1.8e-5. Tensor cores cut what they add, where the CPU
// rounds.
constexpr double kTolerance = 6e-5;

struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<double> values;  // of ids[1..]
  std::vector<TokenId> greedy;
  std::vector<double> greedy_values;
};

std::vector<GoldenPrompt> golden_prompts() {
  const char* const path = HELIOS_SOURCE_DIR "/tests/golden/demo_logprobs.txt";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::vector<GoldenPrompt> out;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, name;
    size_t count = 0;
    words >> kind;
    if (kind == "prompt") {
      words >> name;
      out.push_back({.name = name});
    }
    words >> count;
    GoldenPrompt& p = out.back();
    for (size_t i = 0; i < count; ++i) {
      TokenId id = 0;
      double value = 0;
      if (kind != "values") words >> id;
      if (kind != "prompt") words >> value;
      if (kind == "prompt") p.ids.push_back(id);
      if (kind == "values") p.values.push_back(value);
      if (kind == "greedy") p.greedy.push_back(id), p.greedy_values.push_back(value);
    }
    EXPECT_TRUE(static_cast<bool>(words)) << path << ": " << line.substr(0, 40);
  }
  return out;
}

/// Core of the demo model with room for all prompts at once.
CoreConfig demo_core(ComputeDtype dtype) {
  return {.model_dir = HELIOS_SOURCE_DIR "/deploy/demo",
          .dtype = dtype,
          .slot_capacity = 6,
          .max_model_len = 256,
          .prefill_chunk = 160,
          .kv_cache_tokens = 6 * 256,
          .prompt_logprobs = true};
}

class WholeCore : public ::testing::Test {
 protected:
  const std::vector<GoldenPrompt> prompts_ = golden_prompts();
};

TEST_F(WholeCore, ScoresAndGreedyTokensMeetFloat64) {
  TestCluster cluster(demo_core(ComputeDtype::kAuto), 1);
  std::vector<TestSequence> run;
  for (const GoldenPrompt& p : prompts_) {
    const int tokens = static_cast<int>(std::min<size_t>(p.greedy.size(), 32));
    run.push_back(
        {.prompt = p.ids, .sampling = greedy(std::max(tokens, 1)), .logprobs = true, .scored = true});
  }
  TestDriver(cluster).run(run, 0);
  if (HasFatalFailure()) return;
  double worst = 0.0;
  for (size_t i = 0; i < run.size(); ++i) {
    SCOPED_TRACE(prompts_[i].name);
    const GoldenPrompt& p = prompts_[i];
    ASSERT_EQ(run[i].prompt_rows.size(), p.ids.size());
    for (size_t at = 0; at + 1 < p.ids.size(); ++at) {
      const float value = bits_float(run[i].prompt_rows[at][w::kActualBits]);
      ASSERT_EQ(run[i].prompt_rows[at][w::kActualId], p.ids[at + 1]);
      ASSERT_NEAR(value, p.values[at], kTolerance) << "position " << at + 1;
      worst = std::max(worst, std::fabs(value - p.values[at]));
    }
    for (size_t t = 0; t < std::min(run[i].tokens.size(), p.greedy.size()); ++t) {
      ASSERT_EQ(run[i].tokens[t], p.greedy[t]) << "token " << t;
      const float value = bits_float(run[i].packed[t][kChosenBits]);
      ASSERT_NEAR(value, p.greedy_values[t], kTolerance) << "token " << t;
      worst = std::max(worst, std::fabs(value - p.greedy_values[t]));
    }
  }
  std::printf("figure | largest difference to float64, nats | %.2g\n", worst);
}

/// Tokens generated behind each prompt; then all of it as one prompt, scored.
TEST_F(WholeCore, X1_GeneratedInAnyCompanyAndScoredInAnyChunksHaveTheSameBits) {
  for (const ComputeDtype dtype : {ComputeDtype::kAuto, ComputeDtype::kBFloat16}) {
    SCOPED_TRACE(dtype == ComputeDtype::kAuto ? "exact inputs" : "bfloat16");
    TestCluster cluster(demo_core(dtype), 1);
    std::vector<TestSequence> together, texts;
    for (const GoldenPrompt& p : prompts_) {
      together.push_back({.prompt = p.ids, .sampling = greedy(40), .logprobs = true});
    }
    std::vector<TestSequence> alone = together;
    TestDriver(cluster).run(together, 0);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < alone.size(); ++i) {
      std::vector<TestSequence> one = {alone[i]};
      TestDriver(cluster).run(one, 7);
      ASSERT_EQ(one[0].tokens, together[i].tokens) << prompts_[i].name;
      ASSERT_EQ(one[0].packed, together[i].packed) << prompts_[i].name << ": alone and in company";
      TestSequence text{.prompt = prompts_[i].ids, .sampling = greedy(1), .scored = true};
      text.prompt.insert(text.prompt.end(), together[i].tokens.begin(), together[i].tokens.end());
      texts.push_back(std::move(text));
    }
    for (const int chunk : {0, 1, 64, 5}) {
      std::vector<TestSequence> scored = texts;
      TestDriver(cluster).run(scored, chunk);
      for (size_t i = 0; i < scored.size(); ++i) {
        const size_t prompt = prompts_[i].ids.size();
        for (size_t t = 0; t < together[i].tokens.size(); ++t) {
          const std::vector<int32_t>& row = scored[i].prompt_rows.at(prompt + t - 1);
          const std::vector<int32_t>& packed = together[i].packed[t];
          ASSERT_EQ(row[w::kActualBits], packed[kChosenBits]) << prompts_[i].name << " token " << t << " chunk " << chunk;
          ASSERT_TRUE(std::equal(row.begin() + w::kFirstAlternative, row.end(), packed.begin() + kFirstAlternative))
              << prompts_[i].name << " token " << t << " chunk " << chunk << ": alternatives";
        }
      }
    }
  }
}

// The products of a rank's shard and of the whole matrix (X1): every degree on one device.
TEST_F(WholeCore, X1_EveryDegreeHasTheSameBits) {
  std::vector<TestSequence> expected;
  for (const int world : {1, 2, 4, 8}) {
    TestCluster cluster(demo_core(ComputeDtype::kAuto), world);
    std::vector<TestSequence> run;
    for (const GoldenPrompt& p : prompts_) {
      run.push_back(
          {.prompt = p.ids, .sampling = greedy(24), .logprobs = true, .scored = true});
    }
    TestDriver(cluster).run(run, 0);
    if (HasFatalFailure()) return;
    if (world == 1) expected = run;
    for (size_t i = 0; i < run.size(); ++i) {
      ASSERT_EQ(run[i].tokens, expected[i].tokens) << "TP " << world << " " << prompts_[i].name;
      ASSERT_EQ(run[i].packed, expected[i].packed) << "TP " << world << " " << prompts_[i].name;
      ASSERT_EQ(run[i].prompt_rows, expected[i].prompt_rows) << "TP " << world << " " << prompts_[i].name;
    }
  }
}

}  // namespace
}  // namespace helios::testing
