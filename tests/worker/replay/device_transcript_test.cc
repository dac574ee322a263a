// One program, whatever the device: the tiny core's tokens and records are those of the checked-in transcript, and so
// are its logprobs, to the bit on the CPU and within a stated distance where another device adds in another order.
//
// The same body is linked with the CPU's kernels and with the CUDA sources on the emulator, whose graphs are captured
// once and whose memory the host cannot touch: what passes there is right except for what only a GPU can show.
// HELIOS_WRITE_TRANSCRIPT=1 on the CPU writes the file anew.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/test_cluster.h"
#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {
namespace {

// Norms, attention and exponentials add in another order, through two layers and the head: ten times what was seen.
constexpr float kTolerance = kGpuKernels ? 4e-5f : 0.0f;

std::vector<TokenId> prompt(int length, int step) {
  std::vector<TokenId> out;
  for (int i = 0; i < length; ++i) out.push_back((17 + i * step) % kTinyVocab);
  return out;
}

/// Prefill in chunks beside decoding lanes, so that prefill, decode and mixed graphs all run; greedy and sampled rows,
/// with natural alternatives, selected ids and nothing at all.
std::vector<TestSequence> sequences() {
  std::vector<TestSequence> out;
  out.push_back({.prompt = prompt(5, 3), .sampling = greedy(7), .logprobs = true});
  out.push_back({.prompt = prompt(40, 7),
                 .sampling = {.temperature = 0.9f, .top_p = 0.9f, .top_k = 40, .seed = 3, .max_tokens = 6},
                 .logprobs = true,
                 .selected = {250, 3, 77}});
  out.push_back(
      {.prompt = prompt(9, 11), .sampling = {.temperature = 0.7f, .min_p = 0.02f, .seed = 4, .max_tokens = 8}});
  SamplingParams stops = greedy(6);
  stops.min_tokens = 3;
  stops.eos_id = 2;
  stops.stop_ids = {5, 9};
  out.push_back({.prompt = prompt(33, 5), .sampling = stops, .logprobs = true});
  out.push_back({.prompt = prompt(3, 1), .sampling = {.seed = 5, .max_tokens = 5}, .logprobs = true});
  return out;
}

std::vector<TestSequence> run(int world) {
  const TemporaryDirectory directory;
  write_tiny_checkpoint(directory.path());
  TestCluster cluster(
      {.model_dir = directory.path(), .slot_capacity = 4, .prefill_chunk = 16, .kv_cache_tokens = 4 * kTinyContext},
      world);
  TestDriver driver(cluster);
  std::vector<TestSequence> out = sequences();
  driver.run(out, 12);
  return out;
}

const std::string kPath = std::string(HELIOS_SOURCE_DIR) + "/tests/golden/tiny_core_transcript.txt";

/// A line a sequence, then a line a token: its id and, when asked for, the packed words.
std::string print(const std::vector<TestSequence>& sequences) {
  std::ostringstream out;
  for (const TestSequence& s : sequences) {
    out << "sequence " << s.tokens.size() << ' ' << static_cast<int>(s.finish) << ' ' << s.kv_length << ' '
        << s.packed.size() << '\n';
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      out << s.tokens[t];
      if (t < s.packed.size()) {
        for (const int32_t word : s.packed[t]) out << ' ' << word;
      }
      out << '\n';
    }
  }
  return out.str();
}

std::vector<TestSequence> read_transcript() {
  std::ifstream file(kPath);
  EXPECT_TRUE(file.is_open()) << kPath;
  std::vector<TestSequence> out;
  std::string line, word;
  size_t tokens = 0, packed = 0;
  int finish = 0;
  for (int64_t kv_length = 0; file >> word >> tokens >> finish >> kv_length >> packed;) {
    TestSequence s{.finish = static_cast<FinishCode>(finish), .kv_length = kv_length};
    std::getline(file, line);
    for (size_t t = 0; t < tokens; ++t) {
      std::getline(file, line);
      std::istringstream words(line);
      TokenId token = 0;
      words >> token;
      s.tokens.push_back(token);
      if (t >= packed) continue;
      s.packed.emplace_back();
      for (int32_t w = 0; words >> w;) s.packed.back().push_back(w);
    }
    out.push_back(std::move(s));
  }
  return out;
}

void expect_same_position(const std::vector<int32_t>& found, const std::vector<int32_t>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t w = 0; w + 1 < found.size(); w += 2) {
    EXPECT_EQ(found[w], expected[w]) << "id of pair " << w / 2;
    const float a = bits_float(found[w + 1]), b = bits_float(expected[w + 1]);
    if (kGpuKernels) {
      EXPECT_NEAR(a, b, kTolerance) << "pair " << w / 2;
    } else {
      EXPECT_EQ(found[w + 1], expected[w + 1]) << "pair " << w / 2 << ": " << a << " and " << b;
    }
  }
}

class DeviceTranscript : public ::testing::TestWithParam<int> {};

// X1, X4: the same tokens and records at TP 1 and 2, on every device.
TEST_P(DeviceTranscript, X1_X4_TheTinyCoreSaysWhatItAlwaysSaid) {
  const std::vector<TestSequence> found = run(GetParam());
  if (HasFatalFailure()) return;
  if (!kGpuKernels && GetParam() == 1 && std::getenv("HELIOS_WRITE_TRANSCRIPT")) {
    std::ofstream(kPath) << print(found);
  }
  const std::vector<TestSequence> expected = read_transcript();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE("sequence " + std::to_string(i));
    EXPECT_EQ(found[i].tokens, expected[i].tokens);
    EXPECT_EQ(found[i].finish, expected[i].finish);
    EXPECT_EQ(found[i].kv_length, expected[i].kv_length);
    ASSERT_EQ(found[i].packed.size(), expected[i].packed.size());
    for (size_t t = 0; t < found[i].packed.size(); ++t) {
      SCOPED_TRACE("token " + std::to_string(t));
      expect_same_position(found[i].packed[t], expected[i].packed[t]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TP, DeviceTranscript, ::testing::Values(1, 2));

}  // namespace
}  // namespace helios::testing
