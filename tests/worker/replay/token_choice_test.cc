// What requests ask of their tokens, through the executor: each token is worked out again from the raw logprobs that
// were reported beside it, and is the same alone, in company, on any number of ranks, reported or not, and after
// readmission.
#include "worker/replay/token_choice.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/sampling/reference.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {
namespace {

class TokenChoiceTest : public ::testing::Test {
 protected:
  TokenChoiceTest() { write_tiny_checkpoint(directory_.path()); }

  CoreConfig config() const {
    return {
        .model_dir = directory_.path(), .slot_capacity = 4, .prefill_chunk = 32, .kv_cache_tokens = 4 * kTinyContext};
  }
  /// Runs all in one cluster, in company; `depth` frames in flight.
  void run(std::vector<TestSequence>& sequences, int world, int depth = 2) const {
    TestCluster cluster(config(), world);
    TestDriver driver(cluster, depth);
    driver.run(sequences, 5);
  }

  const TemporaryDirectory directory_;
};

std::vector<TokenId> ids_from(TokenId first, int count) {
  std::vector<TokenId> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

/// Requests that use everything, differently.
std::vector<TestSequence> demanding_sequences() {
  std::vector<TestSequence> sequences;
  for (int i = 0; i < 6; ++i) {
    SamplingParams p{.temperature = i % 3 == 0 ? 0.0f : 0.7f + 0.2f * static_cast<float>(i),
                     .top_p = i % 2 ? 0.9f : 1.0f,
                     .top_k = i == 4 ? 40 : 0,
                     .min_p = i == 5 ? 0.01f : 0.0f,
                     .seed = 1000u + static_cast<uint64_t>(i),
                     .max_tokens = 12,
                     .min_tokens = i,
                     .eos_id = 3};
    if (i != 1) p.logit_bias = {{17, 1.5f}, {200, -3.0f}, {90 + i, 2.0f}};
    if (i % 2 == 0) p.allowed_ids = ids_from(10 * i, 128);
    if (i != 2) {
      p.repetition_penalty = 1.0f + 0.2f * static_cast<float>(i % 3);
      p.frequency_penalty = 0.5f * static_cast<float>(i % 4);
      p.presence_penalty = i == 3 ? -0.5f : 0.7f;
      p.prompt_ids = {1, 5, static_cast<TokenId>(20 + i)};
    }
    sequences.push_back({.prompt = {1, 5, static_cast<TokenId>(20 + i), 5, 1, 5, 5}, .sampling = p});
  }
  return sequences;
}

std::vector<std::vector<TokenId>> tokens_of(const std::vector<TestSequence>& sequences) {
  std::vector<std::vector<TokenId>> tokens;
  for (const TestSequence& s : sequences) tokens.push_back(s.tokens);
  return tokens;
}

// The allowed ids' raw logprobs are asked for, so the definition can choose among them. Adding the normaliser to every
// logit changes no choice, except where a repetition penalty looks at signs: that one stays out.
TEST_F(TokenChoiceTest, EveryTokenFollowsFromTheRawLogprobsAndTheDefinition) {
  constexpr int kPrompt = 7;
  std::vector<TestSequence> sequences = demanding_sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    SamplingParams& p = sequences[i].sampling;
    p.repetition_penalty = 1.0f;
    p.allowed_ids = ids_from(static_cast<TokenId>(3 * i), 128);
    p.stop_ids = {static_cast<TokenId>(60 + i), 299};
    p.min_tokens = 6;
    sequences[i].logprobs = true;
    sequences[i].selected = p.allowed_ids;
  }
  run(sequences, 2);
  for (const TestSequence& s : sequences) {
    const SamplingParams& p = s.sampling;
    reference::TransformDefinition transform{.logit_bias = p.logit_bias,
                                             .allowed_ids = p.allowed_ids,
                                             .frequency_penalty = p.frequency_penalty,
                                             .presence_penalty = p.presence_penalty};
    ASSERT_FALSE(s.tokens.empty());
    ASSERT_TRUE(s.tokens.size() >= 6);
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      std::vector<float> row(kTinyVocab, 0.0f);
      for (size_t i = 0; i < p.allowed_ids.size(); ++i) {
        row[static_cast<size_t>(p.allowed_ids[i])] =
            std::bit_cast<float>(s.packed[t][kFirstAlternative + kPairWords * i + 1]);
      }
      transform.forbidden_ids = p.stop_ids;
      transform.forbidden_ids.push_back(p.eos_id);
      if (t >= 6) transform.forbidden_ids.clear();
      const TokenId expected =
          reference::sampled_token(reference::transformed_logits(row, transform),
                                   {.temperature = p.temperature, .min_p = p.min_p, .top_k = p.top_k, .top_p = p.top_p},
                                   p.seed, static_cast<int32_t>(kPrompt + t));
      ASSERT_EQ(s.tokens[t], expected) << "token " << t;
      const auto known = std::find_if(transform.output_counts.begin(), transform.output_counts.end(),
                                      [&](const TokenCount& c) { return c.id == expected; });
      if (known != transform.output_counts.end()) {
        ++known->count;
      } else {
        transform.output_counts.push_back({expected, 1});
      }
    }
  }
}

std::vector<uint32_t> words_of(const std::vector<TokenId>& ids) {
  std::vector<uint32_t> words((kTinyVocab + 31) / 32);
  for (const TokenId id : ids) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  return words;
}

// A mask that does not change is a list of allowed ids, whatever else the slot asks for and whoever runs ahead beside.
TEST_F(TokenChoiceTest, AMaskOfEachLaneIsAListOfAllowedIdsThatMayChange) {  // X1
  std::vector<TestSequence> listed = demanding_sequences();
  run(listed, 1);
  for (const int world : {1, 2, 4}) {
    std::vector<TestSequence> masked = demanding_sequences();
    for (TestSequence& s : masked) {
      if (s.sampling.allowed_ids.empty()) continue;
      s.mask = [words = words_of(s.sampling.allowed_ids)](const std::vector<TokenId>&) { return words; };
      s.sampling.allowed_ids.clear();
      s.sampling.masks = true;
    }
    run(masked, world);
    EXPECT_EQ(tokens_of(masked), tokens_of(listed)) << world << " ranks";
  }

  // Two ids a step, another two at each: one of them comes out, and every value reported is the free row's.
  std::vector<TestSequence> sequences(2, {.prompt = {1, 5, 22}, .sampling = {.temperature = 0.9f, .seed = 5}});
  sequences[0].sampling.max_tokens = sequences[1].sampling.max_tokens = 6;
  sequences[0].sampling.masks = true;
  sequences[0].mask = [](const std::vector<TokenId>& tokens) {
    const auto t = static_cast<TokenId>(tokens.size());
    return words_of({40 * t, 299 - 7 * t});
  };
  sequences[0].logprobs = sequences[1].logprobs = true;
  run(sequences, 2);
  ASSERT_EQ(sequences[0].tokens.size(), 6u);
  for (TokenId t = 0; t < 6; ++t) {
    const TokenId token = sequences[0].tokens[static_cast<size_t>(t)];
    EXPECT_TRUE(token == 40 * t || token == 299 - 7 * t) << t << ": " << token;
  }
  // R2: the alternatives of the first position are those without a mask, bit for bit.
  for (int w = kFirstAlternative; w < packed_words(kMaxNaturalAlternatives); ++w) {
    EXPECT_EQ(sequences[0].packed[0][static_cast<size_t>(w)], sequences[1].packed[0][static_cast<size_t>(w)]) << w;
  }
}

TEST_F(TokenChoiceTest, TokensAreTheSameReportedOrNotOnAnyNumberOfRanks) {  // R9, X1
  std::vector<TestSequence> plain = demanding_sequences();
  run(plain, 1);
  for (const TestSequence& s : plain) EXPECT_GE(s.tokens.size(), 2u);
  for (const int world : {1, 2, 4}) {
    for (const bool reported : {false, true}) {
      std::vector<TestSequence> sequences = demanding_sequences();
      for (size_t i = 0; i < sequences.size(); ++i) {
        sequences[i].logprobs = reported;
        if (i % 2) sequences[i].selected = {7, 299, 0};
      }
      run(sequences, world, reported ? 1 : 2);
      EXPECT_EQ(tokens_of(sequences), tokens_of(plain)) << world << " ranks, reported " << reported;
    }
  }
}

TEST_F(TokenChoiceTest, ASlotsFormerTenantLeavesNothingBehind) {
  const std::vector<TestSequence> all = demanding_sequences();
  std::vector<std::vector<TokenId>> alone;
  for (const TestSequence& s : all) {
    std::vector<TestSequence> one{s};
    run(one, 1);
    alone.push_back(one[0].tokens);
  }
  // One slot, tenant after tenant, in several orders.
  for (const int shift : {0, 1, 4}) {
    TestCluster cluster(config(), 2);
    TestDriver driver(cluster);
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(shift)) % all.size();
      std::vector<TestSequence> one{all[at]};
      driver.run(one, 0);
      EXPECT_EQ(one[0].tokens, alone[at]) << at;
    }
  }
}

TEST_F(TokenChoiceTest, AReadmittedSequenceGoesOnAsIfItHadStayed) {
  for (TestSequence whole : demanding_sequences()) {
    whole.sampling.min_tokens = whole.sampling.max_tokens;  // stays to the end
    std::vector<TestSequence> once{whole};
    run(once, 1);
    ASSERT_EQ(once[0].tokens.size(), 12u);
    // Put out after five tokens: they come back as a prompt, and their counts with the admission.
    TestSequence again = whole;
    again.sampling.max_tokens = again.sampling.min_tokens = 7;
    for (size_t t = 0; t < 5; ++t) {
      const TokenId id = once[0].tokens[t];
      again.prompt.push_back(id);
      auto& counts = again.sampling.output_counts;
      const auto known = std::find_if(counts.begin(), counts.end(), [&](const TokenCount& c) { return c.id == id; });
      if (known != counts.end()) {
        ++known->count;
      } else {
        counts.push_back({id, 1});
      }
    }
    std::vector<TestSequence> rest{again};
    run(rest, 2);
    EXPECT_EQ(rest[0].tokens, std::vector<TokenId>(once[0].tokens.begin() + 5, once[0].tokens.end()));
  }
}

TEST_F(TokenChoiceTest, WordsOfEveryExchangeAreCounted) {  // X3
  for (const bool filters : {false, true}) {
    TestCluster cluster(config(), 2);
    TestDriver driver(cluster);
    std::vector<TestSequence> sequences(3, {.prompt = {1, 2}, .sampling = {.temperature = 1.0f, .max_tokens = 5}});
    for (TestSequence& s : sequences) {
      if (filters) s.sampling.top_p = 0.9f;
    }
    driver.run(sequences, 0);
    const double words = cluster.counter(0, "helios_sampler_exchange_words_total");
    EXPECT_EQ(words, cluster.counter(1, "helios_sampler_exchange_words_total"));
    const double tokens = cluster.counter(0, "helios_sampling_rows_total");
    EXPECT_GE(tokens, 15);
    if (filters) {
      EXPECT_GT(words, 8 * tokens);
      EXPECT_LE(words, (8 + 6 * 512) * tokens);
    } else {
      EXPECT_EQ(words, 4 * tokens);  // an offer a row
    }
  }
}

}  // namespace
}  // namespace helios::testing
