// X1: a token and its logprobs have one value, to the bit, whatever the tensor-parallel degree, the batch and the
// chunks.
//
// Sequences of different lengths, some greedy, some sampled, some with natural alternatives, some with selected ids,
// some without logprobs (R9), run in every combination and are compared with a run alone, on one rank, in one chunk.
#include <gtest/gtest.h>

#include "kernels/base/dtype.h"
#include "tests/support/test_cluster.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {
namespace {

constexpr int kSequences = 32;

std::vector<TestSequence> make_sequences(int64_t vocab) {
  std::vector<TestSequence> out;
  uint64_t state = 12345;
  const auto random = [&state](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
  };
  for (int i = 0; i < kSequences; ++i) {
    TestSequence q;
    // Lengths on both sides of the cache's block boundaries at 32 and 64.
    const int64_t length = i == 0 ? 67 : i == 1 ? 32 : i == 2 ? 33 : 1 + random(48);
    for (int64_t t = 0; t < length; ++t) q.prompt.push_back(static_cast<TokenId>(random(vocab)));
    q.sampling.max_tokens = 6;
    q.sampling.seed = static_cast<uint64_t>(i) * 77 + 5;
    q.sampling.temperature = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1.0f : 0.7f;
    if (i % 3 == 2) q.sampling.top_p = 0.9f;
    if (i % 5 == 4) q.sampling.top_k = 7;
    if (i % 7 == 6) q.sampling.min_p = 0.05f;
    q.logprobs = i % 4 != 3;
    if (i % 4 == 1) q.selected = {static_cast<TokenId>(vocab - 1), 0, static_cast<TokenId>(7 + i), 3};
    out.push_back(std::move(q));
  }
  return out;
}

void expect_same(const TestSequence& a, const TestSequence& b, bool compare_packed) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.kv_length, b.kv_length);
  if (compare_packed) {
    EXPECT_EQ(a.packed, b.packed);
  }
}

std::vector<TestSequence> run(TestCluster& cluster, std::vector<TestSequence> sequences, int batch, int chunk) {
  TestDriver driver(cluster);
  // A batch is what shares submissions; the driver runs what it is given at once.
  for (size_t begin = 0; begin < sequences.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(sequences.size(), begin + static_cast<size_t>(batch));
    std::vector<TestSequence> part(sequences.begin() + static_cast<long>(begin),
                                   sequences.begin() + static_cast<long>(end));
    driver.run(part, chunk);
    std::move(part.begin(), part.end(), sequences.begin() + static_cast<long>(begin));
  }
  return sequences;
}

CoreConfig config_for(const std::string& model_dir, int prefill_chunk, ComputeDtype dtype = ComputeDtype::kAuto) {
  return {.model_dir = model_dir,
          .dtype = dtype,
          .slot_capacity = kSequences,
          .max_model_len = 128,
          .prefill_chunk = prefill_chunk,
          .kv_cache_tokens = kSequences * 128};
}

/// The whole matrix for one model.
void check_matrix(const std::string& model_dir, int64_t vocab, ComputeDtype dtype = ComputeDtype::kAuto) {
  const std::vector<TestSequence> sequences = make_sequences(vocab);
  std::vector<TestSequence> expected;
  {
    TestCluster alone(config_for(model_dir, 512, dtype), 1);
    expected = run(alone, sequences, 1, 0);
    for (const TestSequence& q : expected) ASSERT_EQ(q.tokens.size(), 6u);
  }
  for (const int world : {1, 2, 4, 8}) {
    TestCluster cluster(config_for(model_dir, 512, dtype), world);
    for (const int batch : {1, 7, 32}) {
      for (const int chunk : {1, 3, 16, 64, 0}) {
        SCOPED_TRACE("TP " + std::to_string(world) + " batch " + std::to_string(batch) + " chunk " +
                     std::to_string(chunk));
        // Alone, every sequence takes its own submissions; a third of them tells as much as all.
        const size_t count = batch == 1 ? 4 : batch == 7 ? 14 : sequences.size();
        const std::vector<TestSequence> some(sequences.begin(), sequences.begin() + static_cast<long>(count));
        const std::vector<TestSequence> got = run(cluster, some, batch, chunk);
        for (size_t i = 0; i < got.size(); ++i) {
          SCOPED_TRACE("sequence " + std::to_string(i));
          expect_same(got[i], expected[i], true);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(BitEquality, TinyCheckpointOverDegreesBatchesAndChunks) {
  TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  check_matrix(directory.path(), kTinyVocab);
}

struct ModelCase {
  const char* model;
  int64_t vocab;
  ComputeDtype dtype = ComputeDtype::kAuto;
};
void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.model << (c.dtype == ComputeDtype::kFloat16 ? " in F16" : "");
}

class ModelBitEquality : public ::testing::TestWithParam<ModelCase> {};

TEST_P(ModelBitEquality, OverDegreesBatchesAndChunks) {
  HELIOS_NEED_TEST_DATA(model, std::string("models/") + GetParam().model);
  check_matrix(model, GetParam().vocab, GetParam().dtype);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelBitEquality,
                         ::testing::Values(ModelCase{"tiny-random/llama-gqa-bf16", 515},
                                           ModelCase{"tiny-random/qwen2-bias-f32", 515},
                                           ModelCase{"tiny-random/qwen3-qknorm-bf16", 517},
                                           ModelCase{"tiny-random/mistral-window-f16", 515},
                                           ModelCase{"tiny-random/llama3-rope-bias-f32", 515},
                                           ModelCase{"tiny-random/llama-gqa-bf16", 515, ComputeDtype::kFloat16}));

/// The tiny checkpoint's numbers rounded to F16, in F16 where `halves(i)` of the i-th tensor, else in F32.
void write_halves(const std::string& directory, bool (*halves)(int)) {
  write_tiny_checkpoint(directory);
  std::vector<TinyTensor> tensors = tiny_tensors();
  int index = 0;
  for (TinyTensor& t : tensors) {
    const bool half = halves(index++);
    std::vector<std::byte> bytes;
    for (size_t at = 0; at < t.bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, &t.bytes[at], sizeof value);
      const uint16_t code = float_to_f16(value);
      value = f16_to_float(code);
      const auto* from = half ? reinterpret_cast<const std::byte*>(&code) : reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), from, from + (half ? sizeof code : sizeof value));
    }
    t.bytes = std::move(bytes);
    if (half) t.dtype = "F16";
  }
  write_file(directory + "/model.safetensors", safetensors_bytes(tensors));
}

// F16 weights take half the memory of the same numbers in FP32, and change no bit; nor do matrices of which a part only
// is F16, which are FP32.
TEST(BitEquality, AnF16CheckpointIsItsNumbersInFp32) {
  std::vector<TestSequence> expected;
  int64_t wide = 0;
  for (const auto halves : {+[](int) { return false; }, +[](int) { return true; }, +[](int i) { return i % 2 == 0; }}) {
    TemporaryDirectory directory;
    write_halves(directory.path(), halves);
    for (const int world : {1, 2}) {
      TestCluster cluster(config_for(directory.path(), 64), world);
      const std::vector<TestSequence> got = run(cluster, make_sequences(kTinyVocab), 32, 16);
      if (expected.empty()) expected = got, wide = cluster.manifest().memory.weights_bytes;
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i], true);
      if (world == 1 && halves(0) && halves(1)) {
        EXPECT_LT(cluster.manifest().memory.weights_bytes * 100, wide * 55);
      }
    }
  }
}

// R9: asking changes nothing about what is sampled.
TEST(BitEquality, TokensAreTheSameWithAndWithoutLogprobs) {
  TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  TestCluster cluster(config_for(directory.path(), 64), 2);
  std::vector<TestSequence> with = make_sequences(kTinyVocab), without = with;
  for (TestSequence& q : with) q.logprobs = true;
  for (TestSequence& q : without) q.logprobs = false, q.selected.clear();
  with = run(cluster, with, 32, 16);
  without = run(cluster, without, 32, 16);
  for (size_t i = 0; i < with.size(); ++i) {
    expect_same(with[i], without[i], false);
    EXPECT_EQ(with[i].packed.size(), with[i].tokens.size());
  }
}

// A BF16 cache is rounded where it is stored, which no batch, chunk or degree can see.
TEST(BitEquality, ABf16CacheOverDegreesBatchesAndChunks) {
  TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  CoreConfig config = config_for(directory.path(), 512);
  config.kv_cache_dtype = KvCacheDtype::kBFloat16;
  TestCluster alone(config, 1);
  const std::vector<TestSequence> expected = run(alone, make_sequences(kTinyVocab), 1, 0);
  for (const int world : {2, 8}) {
    TestCluster cluster(config, world);
    for (const auto& [batch, chunk] : {std::pair{32, 1}, {7, 16}, {32, 0}}) {
      const std::vector<TestSequence> got = run(cluster, make_sequences(kTinyVocab), batch, chunk);
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i], true);
    }
  }
}

// --dtype bfloat16 stores rounded keys and values: as BF16 they are the same numbers.
TEST(BitEquality, RoundedKeysAndValuesLoseNothingAsBf16) {
  TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  CoreConfig config = config_for(directory.path(), 64);
  config.dtype = ComputeDtype::kBFloat16;
  TestCluster narrow(config, 1);
  config.kv_cache_dtype = KvCacheDtype::kFloat32;
  TestCluster wide(config, 1);
  const std::vector<TestSequence> a = run(narrow, make_sequences(kTinyVocab), 32, 16);
  const std::vector<TestSequence> b = run(wide, make_sequences(kTinyVocab), 32, 16);
  for (size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i], true);
}

// Decoding threads inside a rank split work, never sums.
TEST(BitEquality, ThreadCountDoesNotMatter) {
  TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  CoreConfig config = config_for(directory.path(), 64);
  TestCluster one(config, 1);
  config.num_threads = 3;
  TestCluster three(config, 1);
  const std::vector<TestSequence> a = run(one, make_sequences(kTinyVocab), 32, 16);
  const std::vector<TestSequence> b = run(three, make_sequences(kTinyVocab), 32, 16);
  for (size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i], true);
}

}  // namespace
}  // namespace helios::testing
