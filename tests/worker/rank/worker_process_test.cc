// The real helios-worker binary with the real model, driven over its coordinator socket.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "common/contract/completion_layout.h"
#include "tests/worker/rank/http_client.h"
#include "tests/worker/rank/test_coordinator.h"

namespace helios {
namespace {

using namespace testing;

/// A started worker: its stderr in a file, its end waited for.
class WorkerProcess {
 public:
  explicit WorkerProcess(std::vector<std::string> flags) {
    char pattern[] = "/tmp/helios-worker-test-XXXXXX";
    const int log = ::mkstemp(pattern);
    log_path_ = pattern;
    std::vector<char*> argv = {const_cast<char*>(HELIOS_WORKER_BINARY)};
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(log, STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(log);
  }
  ~WorkerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::unlink(log_path_.c_str());
  }

  pid_t pid() const { return pid_; }
  void signal(int number) { ::kill(pid_, number); }
  /// The exit code, 128 + signal, or -1 when it does not end.
  int wait() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(5ms);
    }
    return -1;
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_path_).rdbuf();
    return text.str();
  }

 private:
  pid_t pid_ = -1;
  std::string log_path_;
};

std::vector<std::string> flags_of(const TestCoordinator& coordinator, int rank, int world_size,
                                  const std::string& model = HELIOS_DEMO_MODEL) {
  return {"--model",
          model,
          "--coordinator",
          coordinator.endpoint(),
          "--rank",
          std::to_string(rank),
          "--world-size",
          std::to_string(world_size),
          "--max-num-seqs",
          "4",
          "--max-model-len",
          "256",
          "--threads-per-rank",
          "1"};
}

std::string http_get(const std::string& url, const std::string& path) {
  Client client(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  return client.read_all();
}

/// Starts `world_size` workers and welcomes them; returns when all are ready.
struct Set {
  explicit Set(int world_size) {
    for (int r = 0; r < world_size; ++r) {
      workers.push_back(std::make_unique<WorkerProcess>(flags_of(coordinator, r, world_size)));
    }
    identities.resize(world_size);
    hellos.resize(world_size);
    while (std::count(identities.begin(), identities.end(), "") > 0) {
      const auto [identity, hello] = coordinator.expect_control<Hello>();
      identities[hello.rank.value] = identity;
      hellos[hello.rank.value] = hello;
    }
    const std::string key = "worker-test-" + std::to_string(::getpid());
    for (const auto& identity : identities) coordinator.send(identity, Welcome{1, world_size, key, "shm"});
    for (int r = 0; r < world_size; ++r) manifest = coordinator.expect_control<Ready>().second.manifest;
  }
  void send(const Submission& submission) {
    for (const auto& identity : identities) coordinator.send(identity, submission);
  }

  TestCoordinator coordinator;
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  std::vector<std::string> identities;
  std::vector<Hello> hellos;
  CoreManifest manifest;
  std::map<Sequence, std::vector<Completion>> completions;  // by step
  uint64_t num_collected = 0;
};

Submission prefill(const CoreManifest& manifest, std::vector<TokenId> prompt) {
  Submission s;
  s.incarnation = 1;
  s.sequence = Sequence(1);
  s.operation = Operation::kPrefill;
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = 4;
  s.admissions = {{SlotIndex(0), Epoch(1), sampling}};
  BlockTableUpdate blocks{SlotIndex(0), 0, {}};
  for (int32_t b = 0; b * manifest.kv_block_size < 64; ++b) blocks.blocks.push_back(b);
  s.block_updates = {blocks};
  s.lanes = {{SlotIndex(0), Epoch(1), LaneRole::kPrefill, 0, true, std::move(prompt)}};
  s.logprob_requested.assign(manifest.slot_capacity, 0);
  s.logprob_token_id_counts.assign(manifest.slot_capacity, 0);
  s.logprob_requested[0] = 1;
  return s;
}

Submission decode(const CoreManifest& manifest, uint64_t sequence) {
  Submission s;
  s.incarnation = 1;
  s.sequence = Sequence(sequence);
  s.frame = FrameIndex(static_cast<int32_t>((sequence - 1) % 2));
  s.operation = Operation::kDecode;
  s.lanes = {{SlotIndex(0), Epoch(1), LaneRole::kDecode, -1, true, {}}};
  s.logprob_requested.assign(manifest.slot_capacity, 0);
  s.logprob_token_id_counts.assign(manifest.slot_capacity, 0);
  return s;
}

/// One completion of every rank for the next step; digests agree. Returns rank 0's. A rank may be a step ahead of its
/// peers: what it says of that one waits.
Completion collect(Set& set) {
  std::vector<Completion>& all = set.completions[Sequence(++set.num_collected)];
  while (all.size() < set.workers.size()) {
    Completion next = set.coordinator.expect_completion();
    set.completions[next.sequence].push_back(std::move(next));
  }
  for (const Completion& c : all) {
    EXPECT_EQ(c.record_digest, all[0].record_digest) << "R28: ranks agree on their records";
  }
  const auto rank0 = std::find_if(all.begin(), all.end(), [](const Completion& c) { return c.rank == Rank(0); });
  EXPECT_NE(rank0, all.end());
  return *rank0;
}

class WorkerRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, WorkerRanks, ::testing::Values(1, 2));

TEST_P(WorkerRanks, ServeARealStepOverTheSocketAndDrain) {  // D2, D3, D8
  Set set(GetParam());
  for (const Hello& hello : set.hellos) {
    EXPECT_EQ(hello.pid, set.workers[hello.rank.value]->pid());
    EXPECT_NE(hello.host_key.find('/'), std::string::npos);
    EXPECT_EQ(http_get(hello.status_url, "/livez").substr(0, 12), "HTTP/1.1 200");
  }
  set.send(prefill(set.manifest, {5, 6, 7}));
  const Completion first = collect(set);
  ASSERT_EQ(first.records.size(), static_cast<size_t>(record_words(first.token_capacity)));
  EXPECT_EQ(first.records[record_word::kAbi], kRecordAbi);
  EXPECT_EQ(first.records[record_word::kEmitted], 1);
  ASSERT_EQ(first.payloads.size(), 1u);
  EXPECT_EQ(first.payloads[0].words[kChosenId], first.records[record_word::kTokens]);
  EXPECT_LT(bits_float(first.payloads[0].words[kChosenBits]), 0.0f);

  set.send(decode(set.manifest, 2));
  set.send(decode(set.manifest, 3));  // two frames in flight
  EXPECT_EQ(collect(set).records[record_word::kEmitted], 1);
  EXPECT_EQ(collect(set).records[record_word::kEmitted], 1);

  for (const Hello& hello : set.hellos) {
    EXPECT_EQ(http_get(hello.status_url, "/readyz").substr(0, 12), "HTTP/1.1 200");
    EXPECT_NE(http_get(hello.status_url, "/metrics").find("\nhelios_rank_steps_completed_total{"), std::string::npos);
  }
  for (const auto& identity : set.identities) set.coordinator.send(identity, Drain{});
  for (const auto& worker : set.workers) EXPECT_EQ(worker->wait(), 0) << worker->log();
}

TEST_P(WorkerRanks, TerminationEndsThemInOrder) {
  Set set(GetParam());
  set.send(prefill(set.manifest, {5, 6, 7}));
  collect(set);
  for (const auto& worker : set.workers) worker->signal(SIGTERM);
  for (const auto& worker : set.workers) EXPECT_EQ(worker->wait(), 0) << worker->log();
}

TEST(WorkerProcess, ASubmissionThatDoesNotFitTheCoreIsAFault) {
  Set set(1);
  Submission bad = prefill(set.manifest, {5});
  bad.lanes[0].slot = SlotIndex(4);  // capacity is 4
  set.send(bad);
  EXPECT_NE(set.coordinator.expect_control<Fault>().second.message.find("slot"), std::string::npos);
  EXPECT_EQ(set.workers[0]->wait(), 75) << set.workers[0]->log();
}

TEST(WorkerProcess, ARankWhosePeerIsKilledLeavesItsExchange) {  // D8
  Set set(2);
  set.workers[1]->signal(SIGKILL);
  EXPECT_EQ(set.workers[1]->wait(), 128 + SIGKILL);
  set.coordinator.send(set.identities[0], prefill(set.manifest, {5, 6, 7}));
  set.coordinator.expect_control<Fault>();  // found by the exchange itself, without being told
  EXPECT_EQ(set.workers[0]->wait(), 75) << set.workers[0]->log();
}

TEST(WorkerProcess, AModelThatIsNotThereIsToldAndNotRestarted) {
  TestCoordinator coordinator;
  WorkerProcess worker(flags_of(coordinator, 0, 1, "/nonexistent/model"));
  const auto [identity, hello] = coordinator.expect_control<Hello>();
  coordinator.send(identity, Welcome{1, 1, "group", "shm"});
  const Fault fault = coordinator.expect_control<Fault>().second;
  EXPECT_NE(fault.message.find("/nonexistent/model"), std::string::npos) << fault.message;
  EXPECT_EQ(worker.wait(), 1);
  EXPECT_NE(worker.log().find("/nonexistent/model"), std::string::npos) << worker.log();
}

TEST(WorkerProcess, ACoordinatorThatDiesEndsItWithRestart) {
  auto coordinator = std::make_unique<TestCoordinator>();
  WorkerProcess worker(flags_of(*coordinator, 0, 1));
  coordinator->expect_control<Hello>();
  coordinator->expect_control<Heartbeat>();
  coordinator->expect_control<Heartbeat>();  // the first was echoed by now
  coordinator.reset();
  EXPECT_EQ(worker.wait(), 75) << worker.log();
}

TEST(WorkerProcess, WrongFlagsAreOneLineAndExitCodeTwo) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{}, {"--nonsense"}, {"--model", "m", "--rank", "5", "--world-size", "2"}}) {
    WorkerProcess worker(flags);
    EXPECT_EQ(worker.wait(), 2);
    const std::string log = worker.log();
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  }
}

TEST(WorkerProcess, CudaWithoutADeviceIsOneClearLine) {
  if (std::ifstream("/dev/nvidiactl").good()) GTEST_SKIP() << "SKIPPED, NOT CHECKED: this machine has a GPU driver";
  WorkerProcess worker({"--model", HELIOS_DEMO_MODEL, "--rank", "0", "--world-size", "1", "--device", "cuda"});
  EXPECT_EQ(worker.wait(), 1);
  const std::string log = worker.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("--device cuda"), std::string::npos) << log;
}

}  // namespace
}  // namespace helios
