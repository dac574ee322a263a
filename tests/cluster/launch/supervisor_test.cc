// helios-launch as a process, over stand-ins for the two programs: shell scripts that start, log and end as a test
// needs.
//
// What they stand in for (crashes at every moment, ranks that ignore signals) real ranks do not do on request; the real
// programs have their own cluster tests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace helios {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{30000};

const char* const kIdle = "while :; do sleep 0.05; done\n";
const char* const kReadyCoordinator =
    "trap 'echo coordinator-drains >> $LOG; exit 0' TERM\n"
    "trap 'echo coordinator-interrupted >> $LOG' INT\n"
    "echo 'ready http://127.0.0.1:1'; echo 'ready http://127.0.0.1:1'; echo something else\n";
const char* const kWorker = "trap 'exit 0' TERM\n";

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool wait_until(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

class Launch : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "launch-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    for (const char* name : {"bin", "model", "tmp"}) fs::create_directory(dir_ / name);
    program("helios-coordinator", std::string(kReadyCoordinator) + kIdle);
    program("helios-worker", std::string(kWorker) + kIdle);
  }
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    // Nothing is left running in any path: the stand-ins carry this directory in their environment.
    EXPECT_TRUE(wait_until([&] { return num_left() == 0; })) << num_left() << " processes left";
    fs::remove_all(dir_);
  }

  void program(const std::string& name, const std::string& body) {
    const fs::path path = dir_ / "bin" / name;
    std::ofstream(path) << "#!/bin/sh\nLOG=" << (dir_ / "log").string() << "\n"
                        << "echo \"start " << name << " $$ $HELIOS_LOCAL_RANK $*\" >> $LOG\n"
                        << body;
    fs::permissions(path, fs::perms::owner_all);
  }

  void launch(const std::vector<std::string>& flags) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    ::setenv("HELIOS_BIN_DIR", (dir_ / "bin").c_str(), 1);
    ::setenv("TMPDIR", (dir_ / "tmp").c_str(), 1);
    const int out = ::open((dir_ / "stdout").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    const int err = ::open((dir_ / "stderr").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(err, 2);
    std::vector<std::string> words = {HELIOS_LAUNCH, "--model", (dir_ / "model").string()};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(HELIOS_LAUNCH, pointers.data());
    ::_exit(126);
  }

  /// Exit code, 128 + signal, or -1 when it does not end.
  int wait_for_exit() {
    int status = 0;
    if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  struct Start {
    std::string program;
    pid_t pid = 0;
    std::string rest;
  };
  std::vector<Start> starts(const std::string& program) {
    std::vector<Start> found;
    std::istringstream lines(read_file(dir_ / "log"));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word;
      Start start;
      if (words >> word >> start.program >> start.pid && word == "start" && start.program == program) {
        std::getline(words, start.rest);
        found.push_back(start);
      }
    }
    return found;
  }
  bool wait_for_starts(const std::string& program, size_t count) {
    return wait_until([&] { return starts(program).size() >= count; });
  }
  bool is_ready() {
    return wait_until([&] { return !read_file(dir_ / "stdout").empty(); });
  }

  static bool runs(pid_t pid) {
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t end = stat.rfind(')');
    return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
  }
  int num_left() {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || std::stoi(name) == ::getpid()) continue;
      count += read_file(entry.path() / "environ").find(dir_.string()) != std::string::npos && runs(std::stoi(name));
    }
    return count;
  }
  std::string logged() { return read_file(dir_ / "stderr"); }

  fs::path dir_;
  pid_t pid_ = 0;
};

TEST_F(Launch, ServesPrintsOneLineAndDrainsOnSigterm) {
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  EXPECT_FALSE(fs::is_empty(dir_ / "tmp")) << "the private directory of the rank socket";
  ASSERT_TRUE(wait_until([&] { return logged().find("something else") != std::string::npos; }));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
  EXPECT_EQ(read_file(dir_ / "stdout"), "ready http://127.0.0.1:1\n");
  EXPECT_NE(read_file(dir_ / "log").find("coordinator-drains"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(dir_ / "tmp"));
  EXPECT_EQ(starts("helios-coordinator").size(), 1u);
  EXPECT_EQ(starts("helios-worker").size(), 2u);
}

TEST_F(Launch, CtrlCReachesOnlyTheLauncher) {
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  ::kill(-pid_, SIGINT);  // what a terminal does
  EXPECT_EQ(wait_for_exit(), 0);
  EXPECT_EQ(read_file(dir_ / "log").find("coordinator-interrupted"), std::string::npos);
  EXPECT_NE(read_file(dir_ / "log").find("coordinator-drains"), std::string::npos);
}

TEST_F(Launch, ALostRankRestartsTheWholeSetButNotTheCoordinator) {
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  const std::vector<Start> first = starts("helios-worker");
  ::kill(first[0].pid, SIGKILL);
  ASSERT_TRUE(wait_for_starts("helios-worker", 4));
  EXPECT_FALSE(runs(first[1].pid));
  const pid_t coordinator = starts("helios-coordinator").at(0).pid;
  EXPECT_TRUE(runs(coordinator));
  EXPECT_EQ(starts("helios-coordinator").size(), 1u);
  ::kill(starts("helios-worker")[3].pid, SIGTERM);  // it exits 0, which is no less a loss
  ASSERT_TRUE(wait_for_starts("helios-worker", 6));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, RestartsComeSlowerAndSlower) {
  program("helios-worker", "sleep 0.3; exit 1\n");  // a load error after the set was ready once is not final
  launch({"--nproc", "1"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 4));
  const std::string log = logged();
  size_t at = 0;
  for (const char* delay : {"delay_ms=0 ", "delay_ms=500 ", "delay_ms=1000 "}) {
    at = log.find(delay, at);
    ASSERT_NE(at, std::string::npos) << delay << log;
  }
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, AModelThatCannotBeLoadedEndsEverything) {
  program("helios-coordinator", std::string("trap 'exit 0' TERM\n") + kIdle);
  for (const int code : {1, 2}) {
    program("helios-worker",
            std::string(kWorker) + "[ $HELIOS_LOCAL_RANK = 1 ] && exit " + std::to_string(code) + "\n" + kIdle);
    launch({"--nproc", "2"});
    EXPECT_EQ(wait_for_exit(), code);
    EXPECT_NE(logged().find("rank 1 could not start"), std::string::npos);
    EXPECT_EQ(read_file(dir_ / "stdout"), "");
  }
}

TEST_F(Launch, ASetThatNeverGetsReadyIsGivenUp) {
  program("helios-coordinator", std::string("trap 'exit 0' TERM\n") + kIdle);
  program("helios-worker", "kill -9 $$\n");
  launch({"--nproc", "1"});
  EXPECT_EQ(wait_for_exit(), 1);
  EXPECT_EQ(starts("helios-worker").size(), 5u);
}

TEST_F(Launch, TheCoordinatorsExitIsTheLaunchers) {
  program("helios-coordinator", "echo 'ready x'; sleep 0.3; exit 7\n");
  launch({"--nproc", "2"});
  EXPECT_EQ(wait_for_exit(), 7);
}

TEST_F(Launch, AKilledCoordinatorEndsEverything) {
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  ::kill(starts("helios-coordinator").at(0).pid, SIGKILL);
  EXPECT_EQ(wait_for_exit(), 128 + SIGKILL);
}

TEST_F(Launch, ARankThatIgnoresSigtermIsKilled) {
  program("helios-worker", std::string("trap '' TERM\n") + kIdle);
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, ASecondSignalEndsAtOnce) {
  program("helios-coordinator", std::string("trap 'echo coordinator-drains >> $LOG' TERM\necho 'ready x'\n") + kIdle);
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  ::kill(pid_, SIGTERM);
  ASSERT_TRUE(wait_until([&] { return read_file(dir_ / "log").find("coordinator-drains") != std::string::npos; }));
  EXPECT_EQ(::waitpid(pid_, nullptr, WNOHANG), 0) << "it waits for the coordinator";
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 128 + SIGTERM);
}

TEST_F(Launch, AStoppedRankIsAHang) {
  launch({"--nproc", "1"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 1));
  const pid_t stopped = starts("helios-worker")[0].pid;
  ::kill(stopped, SIGSTOP);
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  EXPECT_FALSE(runs(stopped));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, ARankThatWasStoppedBrieflyGoesOn) {
  launch({"--nproc", "1"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 1));
  const pid_t stopped = starts("helios-worker")[0].pid;
  ::kill(stopped, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(200));
  ::kill(stopped, SIGCONT);
  std::this_thread::sleep_for(milliseconds(3500));  // longer than the launcher's patience with a stopped rank
  EXPECT_TRUE(runs(stopped));
  EXPECT_EQ(starts("helios-worker").size(), 1u);
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, ChildrenDieWithAKilledLauncher) {
  program("helios-worker", std::string("trap '' TERM\n") + kIdle);
  launch({"--nproc", "2"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(wait_for_exit(), 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return num_left() == 0; }));
}

TEST_F(Launch, AnotherNodeRunsOnlyItsRanks) {
  launch({"--nproc", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", "4567"});
  ASSERT_TRUE(wait_for_starts("helios-worker", 2));
  const std::string all = read_file(dir_ / "log");
  EXPECT_NE(all.find("--coordinator tcp://127.0.0.1:4567 --rank 2 --world-size 4"), std::string::npos) << all;
  EXPECT_NE(all.find("--rank 3 --world-size 4"), std::string::npos) << all;
  EXPECT_EQ(starts("helios-coordinator").size(), 0u);
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, TheApiKeyIsOnNoCommandLine) {
  program("helios-coordinator",
          std::string(kReadyCoordinator) + "echo \"coordinator-key $HELIOS_API_KEY\" >> $LOG\n" + kIdle);
  program("helios-worker", std::string(kWorker) + "echo \"worker-key <$HELIOS_API_KEY>\" >> $LOG\n" + kIdle);
  launch({"--api-key", "sesame"});
  ASSERT_TRUE(is_ready());
  ASSERT_TRUE(wait_until([&] { return read_file(dir_ / "log").find("worker-key <>") != std::string::npos; }));
  ASSERT_TRUE(wait_until([&] { return read_file(dir_ / "log").find("coordinator-key sesame") != std::string::npos; }));
  for (const pid_t pid : {pid_, starts("helios-coordinator").at(0).pid, starts("helios-worker").at(0).pid}) {
    EXPECT_EQ(read_file("/proc/" + std::to_string(pid) + "/cmdline").find("sesame"), std::string::npos);
  }
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(Launch, MissingPiecesAreNamed) {
  fs::remove(dir_ / "bin" / "helios-worker");
  launch({"--nproc", "2"});
  EXPECT_EQ(wait_for_exit(), 1);
  EXPECT_NE(logged().find("helios-worker: No such file"), std::string::npos) << logged();
  fs::remove_all(dir_ / "model");
  launch({});
  EXPECT_EQ(wait_for_exit(), 1);
  EXPECT_NE(logged().find("no such directory"), std::string::npos) << logged();
  launch({"--nproc", "3"});
  EXPECT_EQ(wait_for_exit(), 2);
  EXPECT_NE(logged().find("helios-launch: --nproc 3: expected 1, 2, 4 or 8"), std::string::npos) << logged();
}

}  // namespace
}  // namespace helios
