// The real executor against float64 goldens: every prompt position, the whole reported distribution, greedy runs.
//
// A prompt is fed one token at a time through prefill chunks that sample: one slot reports the natural alternatives,
// and as many more as the vocabulary needs report every id as selected ids. So each position gives the full
// distribution.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include <boost/json.hpp>

#include "tests/support/test_cluster.h"
#include "tests/support/test_data.h"

namespace helios::testing {
namespace {

namespace json = boost::json;

using Top = std::vector<std::pair<TokenId, double>>;

struct GoldenPosition {
  TokenId token = -1;
  double logprob = 0;
  int64_t rank = 0;
  Top top;
};

struct GoldenPrompt {
  std::string id;
  std::vector<TokenId> ids;
  std::vector<GoldenPosition> positions;  // [0] is empty
  Top next;
  std::vector<TokenId> greedy;
  std::vector<double> greedy_logprobs, greedy_leads;
};

std::vector<TokenId> to_ids(const json::value& v) { return json::value_to<std::vector<TokenId>>(v); }
std::vector<double> to_numbers(const json::value& v) { return json::value_to<std::vector<double>>(v); }
Top to_top(const json::value& v) {
  Top out;
  for (const json::value& pair : v.as_array()) {
    out.emplace_back(pair.as_array()[0].to_number<TokenId>(), pair.as_array()[1].to_number<double>());
  }
  return out;
}

GoldenPrompt to_prompt(const json::object& p) {
  const bool demo = p.contains("token_ids");
  GoldenPrompt out{.id = std::string(p.at(demo ? "name" : "id").as_string()),
                   .ids = to_ids(p.at(demo ? "token_ids" : "ids"))};
  for (const json::value& v : p.at(demo ? "positions" : "prompt_logprobs").as_array()) {
    GoldenPosition g;
    if (!v.is_null()) {
      g = {.token = v.at("token").to_number<TokenId>(),
           .logprob = v.at("logprob").to_number<double>(),
           .rank = v.at("rank").to_number<int64_t>(),
           .top = v.as_object().contains("top") ? to_top(v.at("top")) : Top{}};
    }
    out.positions.push_back(std::move(g));
  }
  out.next = to_top(demo ? p.at("next").at("top") : p.at("next"));
  if (!demo) {
    out.greedy = to_ids(p.at("greedy").at("ids"));
    out.greedy_logprobs = to_numbers(p.at("greedy").at("logprobs"));
    out.greedy_leads = to_numbers(p.at("greedy").at("leads"));
    return out;
  }
  for (const json::value& step : p.at("greedy").as_array()) {
    out.greedy.push_back(step.at("token").to_number<TokenId>());
    out.greedy_logprobs.push_back(step.at("logprob").to_number<double>());
    out.greedy_leads.push_back(step.at("margin").to_number<double>());
  }
  return out;
}

std::vector<GoldenPrompt> read_golden(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  json::value document = json::parse(text.str());
  std::vector<GoldenPrompt> out;
  for (const json::value& p : document.at("prompts").as_array()) {
    json::object prompt = p.as_object();
    out.push_back(to_prompt(prompt));
  }
  return out;
}

/// What the executor reported at each position of a prompt.
struct Reported {
  std::vector<std::vector<float>> distribution;  // [positions][vocab]
  std::vector<std::vector<int32_t>> natural;     // [positions][42]
};

class GoldenRun {
 public:
  GoldenRun(const std::string& model_dir, int64_t vocab, ComputeDtype dtype, int world,
            KvCacheDtype cache = KvCacheDtype::kAuto)
      : vocab_(vocab), cluster_(config(model_dir, vocab, dtype, cache), world), driver_(cluster_) {}

  static CoreConfig config(const std::string& model_dir, int64_t vocab, ComputeDtype dtype, KvCacheDtype cache) {
    return {.model_dir = model_dir,
            .dtype = dtype,
            .kv_cache_dtype = cache,
            .slot_capacity = static_cast<int>((vocab + 127) / 128) + 1,
            .prefill_chunk = 64};
  }

  Reported score(const std::vector<TokenId>& prompt) {
    std::vector<TestSequence> sequences;
    const int positions = static_cast<int>(prompt.size());
    for (int64_t begin = -128; begin < vocab_; begin += 128) {
      TestSequence q{.prompt = prompt, .sampling = greedy(positions), .logprobs = true, .sample_every_chunk = true};
      for (int64_t id = std::max<int64_t>(begin, 0); begin >= 0 && id < std::min(vocab_, begin + 128); ++id) {
        q.selected.push_back(static_cast<TokenId>(id));
      }
      sequences.push_back(std::move(q));
    }
    driver_.run(sequences, 1);
    Reported out{.distribution = std::vector<std::vector<float>>(prompt.size(),
                                                                 std::vector<float>(static_cast<size_t>(vocab_), NAN)),
                 .natural = sequences[0].packed};
    for (size_t i = 1; i < sequences.size(); ++i) {
      EXPECT_EQ(sequences[i].packed.size(), prompt.size());
      for (size_t p = 0; p < sequences[i].packed.size(); ++p) {
        const std::vector<int32_t>& words = sequences[i].packed[p];
        for (size_t a = 0; a < sequences[i].selected.size(); ++a) {
          EXPECT_EQ(words[kFirstAlternative + 2 * a], sequences[i].selected[a]) << "caller's order (R7)";
          out.distribution[p][static_cast<size_t>(sequences[i].selected[a])] =
              bits_float(words[kFirstAlternative + 2 * a + 1]);
        }
      }
    }
    return out;
  }

  TestSequence generate(const std::vector<TokenId>& prompt, int tokens, int chunk) {
    std::vector<TestSequence> one{{.prompt = prompt, .sampling = greedy(tokens), .logprobs = true}};
    driver_.run(one, chunk);
    return one[0];
  }

 private:
  const int64_t vocab_;
  TestCluster cluster_;
  TestDriver driver_;
};

/// R5, R6, R11: the natural alternatives are exactly the best twenty of the distribution, in order, to the bit.
void expect_natural_is_best_of(const std::vector<float>& distribution, const std::vector<int32_t>& packed) {
  std::vector<TokenId> order(distribution.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return distribution[a] != distribution[b] ? distribution[a] > distribution[b] : a < b;
  });
  ASSERT_EQ(packed.size(), static_cast<size_t>(packed_words(kMaxNaturalAlternatives)));
  for (int i = 0; i < kMaxNaturalAlternatives; ++i) {
    EXPECT_EQ(packed[kFirstAlternative + 2 * i], order[i]) << "alternative " << i;
    EXPECT_EQ(packed[kFirstAlternative + 2 * i + 1], float_bits(distribution[order[i]])) << "alternative " << i;
  }
  EXPECT_EQ(packed[kChosenId], order[0]) << "greedy takes the best, the smaller id on ties";
}

/// R1: sums to one, whatever the golden says.
void expect_normalised(const std::vector<float>& distribution) {
  double sum = 0;
  for (const float v : distribution) sum += std::exp(static_cast<double>(v));
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

void expect_top_matches(const Top& golden, const std::vector<float>& distribution, const std::vector<int32_t>& packed,
                        double tolerance) {
  for (size_t i = 0; i < golden.size(); ++i) {
    const TokenId id = packed[kFirstAlternative + 2 * i];
    const float value = bits_float(packed[kFirstAlternative + 2 * i + 1]);
    EXPECT_NEAR(value, golden[i].second, tolerance) << "alternative " << i;
    if (id != golden[i].first) {
      EXPECT_NEAR(value, distribution[static_cast<size_t>(golden[i].first)], 2 * tolerance)
          << "only near ties may swap";
    }
  }
}

void expect_position_matches(const GoldenPosition& g, const std::vector<float>& distribution,
                             const std::vector<int32_t>& packed, double tolerance) {
  const float value = distribution[static_cast<size_t>(g.token)];
  EXPECT_NEAR(value, g.logprob, tolerance);
  const auto greater = [&](double than) {
    return std::count_if(distribution.begin(), distribution.end(), [&](float v) { return v > than; });
  };
  EXPECT_GE(g.rank, 1 + greater(value + 2 * tolerance));
  EXPECT_LE(g.rank, std::max<int64_t>(1, greater(value - 2 * tolerance))) << "counts the token itself";
  expect_top_matches(g.top, distribution, packed, tolerance);
}

struct GoldenCase {
  const char* model;
  const char* golden;
  int64_t vocab;
  int world;
  size_t every;  // checks each n-th prompt's positions
};

void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.model << " TP " << c.world; }

class Float32Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Float32Golden, EveryPositionMatchesFloat64) {
  const GoldenCase& c = GetParam();
  HELIOS_NEED_TEST_DATA(model, std::string("models/") + c.model);
  HELIOS_NEED_TEST_DATA(golden, std::string("golden/") + c.golden);
  GoldenRun run(model, c.vocab, ComputeDtype::kFloat32, c.world);
  const std::vector<GoldenPrompt> prompts = read_golden(golden);
  ASSERT_FALSE(prompts.empty());
  for (size_t i = 0; i < prompts.size(); i += c.every) {
    const GoldenPrompt& p = prompts[i];
    const Reported reported = run.score(p.ids);
    ASSERT_EQ(reported.natural.size(), p.ids.size());
    for (size_t at = 0; at < p.ids.size(); ++at) {
      SCOPED_TRACE(p.id + " position " + std::to_string(at + 1));
      expect_normalised(reported.distribution[at]);
      expect_natural_is_best_of(reported.distribution[at], reported.natural[at]);
      if (at + 1 < p.ids.size()) {
        expect_position_matches(p.positions[at + 1], reported.distribution[at], reported.natural[at], 1e-4);
      } else {
        expect_top_matches(p.next, reported.distribution[at], reported.natural[at], 1e-4);
      }
      if (HasFailure()) return;  // one position says enough
    }
  }
}

TEST_P(Float32Golden, GreedyContinuationsMatchWhileTheLeadIsClear) {
  const GoldenCase& c = GetParam();
  HELIOS_NEED_TEST_DATA(model, std::string("models/") + c.model);
  HELIOS_NEED_TEST_DATA(golden, std::string("golden/") + c.golden);
  GoldenRun run(model, c.vocab, ComputeDtype::kFloat32, c.world);
  const int chunks[] = {0, 5, 1, 17};
  int index = 0;
  for (const GoldenPrompt& p : read_golden(golden)) {
    SCOPED_TRACE(p.id);
    const TestSequence q = run.generate(p.ids, static_cast<int>(p.greedy.size()), chunks[index++ % 4]);
    for (size_t i = 0; i < q.tokens.size() && p.greedy_leads[i] > 1e-3; ++i) {
      ASSERT_EQ(q.tokens[i], p.greedy[i]) << "step " << i;
      ASSERT_NEAR(bits_float(q.packed[i][kChosenBits]), p.greedy_logprobs[i], 1e-4) << "step " << i;
    }
    EXPECT_TRUE(q.tokens.size() == p.greedy.size() || q.finish == FinishCode::kContextLimit);
  }
}

/// A scored row against float64: the value, the best twenty in order but for near ties. Returns whether the rank is the
/// golden's too.
bool expect_row_matches(const GoldenPosition& g, const std::vector<int32_t>& row) {
  EXPECT_EQ(row[prompt_score_word::kActualId], g.token);
  EXPECT_NEAR(bits_float(row[prompt_score_word::kActualBits]), g.logprob, 1e-4);
  for (size_t i = 0; i < g.top.size(); ++i) {
    const auto* pair = &row[prompt_score_word::kFirstAlternative + 2 * i];
    EXPECT_NEAR(bits_float(pair[1]), g.top[i].second, 1e-4) << "alternative " << i;
    if (pair[0] == g.top[i].first) continue;
    const bool tie = (i > 0 && g.top[i - 1].second - g.top[i].second < 2e-4) || i + 1 == g.top.size() ||
                     g.top[i].second - g.top[i + 1].second < 2e-4;
    EXPECT_TRUE(tie) << "alternative " << i << ": only near ties may swap";
  }
  EXPECT_NEAR(row[prompt_score_word::kActualRank], g.rank, 1);
  return row[prompt_score_word::kActualRank] == g.rank;
}

// R1, R38, R40, R41, R42: the ranks and the best twenty of every prompt position, in chunks that differ.
TEST_P(Float32Golden, R40_R41_R42_ScoredPromptsMatchFloat64) {
  const GoldenCase& c = GetParam();
  HELIOS_NEED_TEST_DATA(model, std::string("models/") + c.model);
  HELIOS_NEED_TEST_DATA(golden, std::string("golden/") + c.golden);
  TestCluster cluster({.model_dir = model,
                       .dtype = ComputeDtype::kFloat32,
                       .slot_capacity = 2,
                       .prefill_chunk = 160,
                       .prompt_logprobs = true},
                      c.world);
  TestDriver driver(cluster);
  const int chunks[] = {0, 70, 17};
  int index = 0, positions = 0, other_ranks = 0;
  double largest = 0;
  for (const GoldenPrompt& p : read_golden(golden)) {
    std::vector<TestSequence> one(1, {.prompt = p.ids, .sampling = greedy(0), .scored = true});
    driver.run(one, chunks[index++ % 3]);
    ASSERT_EQ(one[0].prompt_rows.size(), p.ids.size());
    for (size_t at = 0; at + 1 < p.ids.size(); ++at, ++positions) {
      SCOPED_TRACE(p.id + " position " + std::to_string(at + 1));
      const std::vector<int32_t>& row = one[0].prompt_rows[at];
      other_ranks += !expect_row_matches(p.positions[at + 1], row);
      largest =
          std::max(largest, std::abs(bits_float(row[prompt_score_word::kActualBits]) - p.positions[at + 1].logprob));
      if (HasFailure()) return;  // one position says enough
    }
    EXPECT_EQ(one[0].prompt_rows.back()[prompt_score_word::kActualId], -1);
  }
  RecordProperty("positions", positions);
  RecordProperty("other_ranks", other_ranks);
  RecordProperty("largest", std::to_string(largest));
  EXPECT_LE(other_ranks, 1 + positions / 500) << "near ties, of " << positions;
}

INSTANTIATE_TEST_SUITE_P(
    Models, Float32Golden,
    ::testing::Values(
        GoldenCase{"stories260k/f32", "stories260k/f32.json", 512, 1, 1},
        GoldenCase{"stories260k/f32", "stories260k/f32.json", 512, 2, 7},
        GoldenCase{"stories260k/bf16", "stories260k/bf16.json", 512, 1, 1},
        GoldenCase{"stories260k/bf16-sharded", "stories260k/bf16.json", 512, 2, 5},
        GoldenCase{"aidreams260k/f32", "aidreams260k/f32.json", 512, 1, 1},
        GoldenCase{"tiny-random/llama-gqa-bf16", "tiny-random/llama-gqa-bf16.json", 515, 1, 1},
        GoldenCase{"tiny-random/qwen2-bias-f32", "tiny-random/qwen2-bias-f32.json", 515, 1, 1},
        GoldenCase{"tiny-random/qwen3-qknorm-bf16", "tiny-random/qwen3-qknorm-bf16.json", 517, 1, 1},
        GoldenCase{"tiny-random/mistral-window-f16", "tiny-random/mistral-window-f16.json", 515, 1, 1},
        GoldenCase{"tiny-random/llama3-rope-bias-f32", "tiny-random/llama3-rope-bias-f32.json", 515, 1, 1},
        GoldenCase{"tiny-random/llama3-rope-bias-f32", "tiny-random/llama3-rope-bias-f32.json", 515, 8, 2},
        GoldenCase{"helios-demo", "helios-demo/logprobs.json", 1536, 1, 3},
        GoldenCase{"helios-demo", "helios-demo/logprobs.json", 1536, 2, 9}));

struct RoundedCase {
  const char* model;
  const char* golden;
  int64_t vocab;
  size_t every;
  double mean, largest;
};

void PrintTo(const RoundedCase& c, std::ostream* out) { *out << c.model; }

/// How far a run's logprobs lie from the goldens'.
void expect_within(const RoundedCase& c, ComputeDtype dtype, KvCacheDtype cache, double at_least) {
  HELIOS_NEED_TEST_DATA(model, std::string("models/") + c.model);
  HELIOS_NEED_TEST_DATA(golden, std::string("golden/") + c.golden);
  GoldenRun run(model, c.vocab, dtype, 1, cache);
  double sum = 0, largest = 0;
  int64_t count = 0;
  const std::vector<GoldenPrompt> prompts = read_golden(golden);
  for (size_t i = 0; i < prompts.size(); i += c.every) {
    const Reported reported = run.score(prompts[i].ids);
    for (size_t at = 0; at + 1 < prompts[i].ids.size(); ++at) {
      const GoldenPosition& g = prompts[i].positions[at + 1];
      const double error = std::abs(reported.distribution[at][static_cast<size_t>(g.token)] - g.logprob);
      sum += error;
      largest = std::max(largest, error);
      ++count;
    }
  }
  ASSERT_GT(count, 50);
  ::testing::Test::RecordProperty("mean", std::to_string(sum / static_cast<double>(count)));
  ::testing::Test::RecordProperty("largest", std::to_string(largest));
  EXPECT_LE(sum / static_cast<double>(count), c.mean);
  EXPECT_LE(largest, c.largest);
  EXPECT_GT(largest, at_least) << "it rounds; float32 results would mean that the flag is ignored";
}

class BFloat16Golden : public ::testing::TestWithParam<RoundedCase> {};

// The tolerances that the goldens' own notes state for activations rounded to bfloat16.
TEST_P(BFloat16Golden, StaysWithinTheStatedTolerance) {
  expect_within(GetParam(), ComputeDtype::kBFloat16, KvCacheDtype::kAuto, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Models, BFloat16Golden,
    ::testing::Values(
        RoundedCase{"stories260k/bf16", "stories260k/bf16.json", 512, 1, 0.05, 0.5},
        RoundedCase{"tiny-random/qwen3-qknorm-bf16", "tiny-random/qwen3-qknorm-bf16.json", 517, 1, 0.05, 0.5},
        RoundedCase{"helios-demo", "helios-demo/logprobs.json", 1536, 4, 0.008, 0.08}));

class Float16Golden : public ::testing::TestWithParam<RoundedCase> {};

// F16 has three more bits than BF16, so an eighth of its tolerances; what F16's subnormals lose (numbers below 6e-5, by
// 3e-8 at most) is nothing beside the rounding of the others.
TEST_P(Float16Golden, StaysWithinAnEighthOfBFloat16sTolerance) {
  expect_within(GetParam(), ComputeDtype::kFloat16, KvCacheDtype::kAuto, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Float16Golden,
    ::testing::Values(
        RoundedCase{"stories260k/bf16", "stories260k/bf16.json", 512, 1, 0.05 / 8, 0.5 / 8},
        RoundedCase{"tiny-random/qwen3-qknorm-bf16", "tiny-random/qwen3-qknorm-bf16.json", 517, 1, 0.05 / 8, 0.5 / 8},
        RoundedCase{"tiny-random/mistral-window-f16", "tiny-random/mistral-window-f16.json", 515, 1, 0.05 / 8, 0.5 / 8},
        RoundedCase{"helios-demo", "helios-demo/logprobs.json", 1536, 4, 0.008 / 8, 0.08 / 8}));

class Bf16CacheGolden : public ::testing::TestWithParam<RoundedCase> {};

// --kv-cache-dtype bfloat16 alone.
TEST_P(Bf16CacheGolden, RoundsKeysAndValuesAndNothingElse) {
  expect_within(GetParam(), ComputeDtype::kFloat32, KvCacheDtype::kBFloat16, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Bf16CacheGolden,
    ::testing::Values(RoundedCase{"stories260k/bf16", "stories260k/bf16.json", 512, 1, 0.05, 0.5},
                      RoundedCase{"helios-demo", "helios-demo/logprobs.json", 1536, 4, 0.008, 0.08}));

}  // namespace
}  // namespace helios::testing
