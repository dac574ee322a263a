#include "coordinator/submission/process_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace helios {
namespace {

pid_t spawn_sleeper() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execlp("sleep", "sleep", "60", nullptr);
    ::_exit(127);
  }
  return pid;
}

bool ends_soon(const ProcessWatch& watch) {
  for (int i = 0; i < 2000 && !watch.ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return watch.ended();
}

TEST(ProcessWatch, SeesADeathBeforeAnybodyReapsIt) {
  const pid_t pid = spawn_sleeper();
  const ProcessWatch watch(pid);
  ASSERT_TRUE(watch.watching());
  EXPECT_FALSE(watch.ended());
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(ends_soon(watch));
  ::waitpid(pid, nullptr, 0);
}

TEST(ProcessWatch, EndsAStoppedProcess) {
  const pid_t pid = spawn_sleeper();
  ::kill(pid, SIGSTOP);
  const ProcessWatch watch(pid);
  watch.kill();
  EXPECT_TRUE(ends_soon(watch));
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  watch.kill();  // gone: harmless
}

TEST(ProcessWatch, NeverWatchesItselfInitOrNonsense) {
  EXPECT_FALSE(ProcessWatch(::getpid()).watching());
  for (const int64_t pid : {int64_t{0}, int64_t{-1}, int64_t{1}, int64_t{1} << 40}) {
    const ProcessWatch watch(pid);
    EXPECT_FALSE(watch.watching());
    EXPECT_FALSE(watch.ended());
    watch.kill();
  }
}

TEST(ProcessWatch, MovesItsDescriptor) {
  const pid_t pid = spawn_sleeper();
  ProcessWatch a(pid);
  ProcessWatch b = std::move(a);
  EXPECT_FALSE(a.watching());
  EXPECT_TRUE(b.watching());
  b.kill();
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace helios
