// The real helios-bench on a small checkpoint: figures, exit codes, and a rank killed under it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/tiny_checkpoint.h"

namespace helios::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 90s;  // a run takes a few seconds; shared machines are slow

struct Ended {
  int code = -1;  // 128 + signal; -1: had to be killed
  std::string out, err;
};

/// A running helios-bench with its output in files.
class Bench {
 public:
  explicit Bench(std::vector<std::string> flags) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    (void)!std::freopen((files_.path() + "/out").c_str(), "w", stdout);
    (void)!std::freopen((files_.path() + "/err").c_str(), "w", stderr);
    std::vector<char*> argv = {const_cast<char*>(HELIOS_BENCH_BINARY)};
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  /// Its children, once there are `count`.
  std::vector<pid_t> children(size_t count) const {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < limit) {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
      std::vector<pid_t> pids;
      for (pid_t pid; file >> pid;) pids.push_back(pid);
      if (pids.size() == count) return pids;
      std::this_thread::sleep_for(5ms);
    }
    return {};
  }

  Ended wait() {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status, 0);
        return {-1, read("/out"), read("/err")};
      }
      std::this_thread::sleep_for(5ms);
    }
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("/out"), read("/err")};
  }

 private:
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(files_.path() + name).rdbuf();
    return text.str();
  }

  TemporaryDirectory files_;
  pid_t pid_ = -1;
};

class BenchProcess : public ::testing::Test {
 protected:
  BenchProcess() { write_tiny_checkpoint(model_.path()); }
  const TemporaryDirectory model_;
};

TEST_F(BenchProcess, PrintsOneJsonObjectALineForOneRankAndForTwo) {
  for (const char* ranks : {"1", "2"}) {
    const Ended run =
        Bench({"--model", model_.path(), "--nproc", ranks, "--threads", "1", "--rounds", "2", "--json"}).wait();
    ASSERT_EQ(run.code, 0) << run.err;
    std::istringstream lines(run.out);
    std::set<std::string> works;
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const boost::json::object object = boost::json::parse(line).as_object();
      works.insert(std::string(object.at("work").as_string()));
      EXPECT_EQ(object.at("ranks").as_int64(), std::stoi(ranks));
      EXPECT_EQ(object.at("threads").as_int64(), 1);
      EXPECT_GT(object.at("tokens").as_int64(), 0);
      EXPECT_GT(object.at("batch").as_int64(), 0);
      EXPECT_GE(object.at("logprobs").as_int64(), 0);
      for (const char* key : {"tokens_per_s", "bytes_per_token", "share_of_bandwidth", "share_of_fma"}) {
        EXPECT_GE(object.at(key).to_number<double>(), 0.0) << key;
      }
      EXPECT_GT(object.at("tokens_per_s").to_number<double>(), 0.0);
      const double sampler_words = object.at("sampler_words_per_token").to_number<double>();
      EXPECT_GE(object.at("words_per_token").to_number<double>(), sampler_words);
      if (object.at("work").as_string() != "decode") continue;
      if (*ranks == '1') {
        EXPECT_EQ(sampler_words, 0.0);
      } else if (object.at("sampling").as_string() == "greedy") {
        EXPECT_EQ(sampler_words, 4.0) << "an offer a token (X3)";
      } else {
        EXPECT_GT(sampler_words, 8.0);
        EXPECT_LE(sampler_words, 8.0 + 12 * 512) << "twelve rounds of 256 bins at most, whatever the vocabulary (X3)";
      }
    }
    EXPECT_EQ(count, 10);  // a context of 128: one prompt, three batches without and with logprobs, and sampled
    EXPECT_EQ(works, (std::set<std::string>{"prefill", "decode"}));
  }
}

TEST_F(BenchProcess, PrintsATableByDefault) {
  const Ended run = Bench({"--model", model_.path(), "--threads", "2", "--rounds", "1"}).wait();
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("1 rank, 2 threads each, medians of 1 rounds"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("GFLOP/s FP32 FMA"), std::string::npos);
  EXPECT_NE(run.out.find("tokens/s"), std::string::npos);
  EXPECT_NE(run.out.find("words/token"), std::string::npos);
}

TEST_F(BenchProcess, ComparesScoredWithOrdinaryPrefill) {
  const Ended run =
      Bench({"--model", model_.path(), "--nproc", "2", "--threads", "1", "--rounds", "1", "--prompt-logprobs"}).wait();
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\nscored prefill of 128 tokens: "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("decode"), std::string::npos) << run.out;
}

TEST_F(BenchProcess, RanksAndOneProcessTakeTurns) {
  const Ended run = Bench({"--model", model_.path(), "--nproc", "2", "--threads", "1", "--rounds", "3", "--paired",
                           "--only", "decode-4", "--plain", "--json"})
                        .wait();
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  const boost::json::object pair = boost::json::parse(run.out).as_object();
  EXPECT_EQ(pair.at("batch").as_int64(), 4);
  EXPECT_EQ(pair.at("pairs").as_int64(), 3);
  EXPECT_GT(pair.at("one_tokens_per_s").to_number<double>(), 0.0);
  EXPECT_GT(pair.at("ranks_tokens_per_s").to_number<double>(), 0.0);
  const double low = pair.at("ratio_low_quartile").to_number<double>(), middle = pair.at("ratio").to_number<double>();
  EXPECT_GT(low, 0.0);
  EXPECT_LE(low, middle);
  EXPECT_LE(middle, pair.at("ratio_high_quartile").to_number<double>());
}

TEST_F(BenchProcess, SaysWhenNothingIsLeftToMeasure) {
  const Ended run = Bench({"--model", model_.path(), "--only", "prefill-512"}).wait();
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("positions and --only prefill-512 leaves nothing to measure\n"), std::string::npos) << run.err;
}

TEST_F(BenchProcess, AKilledRankEndsTheRunWithItsName) {
  Bench bench({"--model", model_.path(), "--nproc", "2", "--threads", "1", "--rounds", "1000"});
  const std::vector<pid_t> ranks = bench.children(2);
  ASSERT_EQ(ranks.size(), 2u);
  std::this_thread::sleep_for(200ms);
  ::kill(ranks[1], SIGKILL);
  const Ended run = bench.wait();
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.err, "helios-bench: rank 1: pid " + std::to_string(ranks[1]) + " was killed by signal 9 (Killed)\n");
  EXPECT_EQ(run.out, "");
  for (const pid_t pid : ranks) EXPECT_NE(::kill(pid, 0), 0) << "a rank was left behind";
}

TEST_F(BenchProcess, SaysInOneLineWhyAModelCannotBeRun) {
  const Ended missing = Bench({"--model", model_.path() + "/nothing"}).wait();
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.err.find("nothing"), std::string::npos) << missing.err;
  write_file(model_.path() + "/model.safetensors", "short");
  const Ended broken = Bench({"--model", model_.path(), "--nproc", "2", "--threads", "1"}).wait();
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.err.find("model.safetensors"), std::string::npos) << broken.err;
  EXPECT_EQ(std::count(broken.err.begin(), broken.err.end(), '\n'), 1) << broken.err;
}

TEST(BenchUsage, UnknownFlagsAreOneLineAndExitCodeTwo) {
  const Ended run = Bench({"--model", "m", "--fast"}).wait();
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_NE(run.err.find("--fast"), std::string::npos);
  const Ended help = Bench({"--help"}).wait();
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--nproc"), std::string::npos);
}

}  // namespace
}  // namespace helios::testing
