// The demo model, whole: scores against float64 over its BF16 weights, and the same bits for a token that was generated
// alone, in company, or scored as part of a prompt in any chunks (X1).
//
// What it has over tests/worker/replay: BF16 weights on tensor cores, and shapes that a library's products care about.
// The golden values are those that come with the model, but for one long prompt.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

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
  std::vector<int32_t> ranks;
};

/// The number behind each `key` of a line.
std::vector<double> numbers_behind(const std::string& line, const std::string& key) {
  std::vector<double> out;
  for (size_t at = line.find(key); at != std::string::npos; at = line.find(key, at + 1))
    out.push_back(std::strtod(line.c_str() + at + key.size(), nullptr));
  return out;
}

/// A prompt a line. Read without a JSON library, because a machine that only checks its GPU has none.
std::vector<GoldenPrompt> golden_prompts() {
  const char* const path = HELIOS_SOURCE_DIR "/deploy/demo/training/golden.json";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  const std::string name_key = "{\"name\":\"", ids_key = "\"token_ids\":[";
  std::vector<GoldenPrompt> out;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name_key)) continue;
    GoldenPrompt p{.name = line.substr(name_key.size(), line.find('"', name_key.size()) - name_key.size())};
    const char* at = line.c_str() + line.find(ids_key) + ids_key.size() - 1;
    for (char* end = nullptr; *at != ']'; at = end)
      p.ids.push_back(static_cast<TokenId>(std::strtol(at + 1, &end, 10)));
    if (p.ids.size() > 160) continue;
    p.values = numbers_behind(line, "\"logprob\":");
    for (const double rank : numbers_behind(line, "\"rank\":")) p.ranks.push_back(static_cast<int32_t>(rank));
    EXPECT_EQ(p.values.size() + 1, p.ids.size()) << p.name;
    EXPECT_EQ(p.ranks.size() + 1, p.ids.size()) << p.name;
    out.push_back(std::move(p));
  }
  EXPECT_GT(out.size(), 10u) << path;
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

TEST_F(WholeCore, ScoresMeetFloat64) {
  TestCluster cluster(demo_core(ComputeDtype::kAuto), 1);
  std::vector<TestSequence> run;
  for (const GoldenPrompt& p : prompts_) run.push_back({.prompt = p.ids, .sampling = greedy(1), .scored = true});
  TestDriver(cluster).run(run, 0);
  if (HasFatalFailure()) return;
  double worst = 0.0;
  for (size_t i = 0; i < run.size(); ++i) {
    SCOPED_TRACE(prompts_[i].name);
    const GoldenPrompt& p = prompts_[i];
    ASSERT_EQ(run[i].prompt_rows.size(), p.ids.size());
    for (size_t at = 0; at + 1 < p.ids.size(); ++at) {
      const std::vector<int32_t>& row = run[i].prompt_rows[at];
      const float value = bits_float(row[w::kActualBits]);
      ASSERT_EQ(row[w::kActualId], p.ids[at + 1]);
      ASSERT_NEAR(value, p.values[at], kTolerance) << "position " << at + 1;
      // Two values that nearly tie may change places.
      ASSERT_NEAR(row[w::kActualRank], p.ranks[at], p.ranks[at] <= 20 ? 1 : 2) << "position " << at + 1;
      worst = std::max(worst, std::fabs(value - p.values[at]));
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
          ASSERT_EQ(row[w::kActualBits], packed[kChosenBits])
              << prompts_[i].name << " token " << t << " chunk " << chunk;
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
      run.push_back({.prompt = p.ids, .sampling = greedy(24), .logprobs = true, .scored = true});
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
