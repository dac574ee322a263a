// Signals and parents: each case in a process of its own.
#include "worker/rank/drain.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "common/net/zmq_socket.h"

namespace helios {
namespace {

TEST(TerminationDeathTest, TheFirstSignalAsksAndWakesTheSecondEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [] {
    WakeEvent wake;
    TerminationSignals signals(wake, false);
    if (TerminationSignals::requested()) std::_Exit(1);
    ::raise(SIGTERM);
    if (!TerminationSignals::requested()) std::_Exit(2);
    uint64_t woken = 0;
    if (::read(wake.fd(), &woken, sizeof woken) != sizeof woken) std::_Exit(3);
    ::raise(SIGTERM);
    std::_Exit(4);
  };
  EXPECT_EXIT(twice(), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(TerminationDeathTest, InterruptIsATerminationUnlessAParentSupervises) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto interrupted = [](bool ignore) {
    WakeEvent wake;
    TerminationSignals signals(wake, ignore);
    ::raise(SIGINT);
    std::_Exit(TerminationSignals::requested() ? 10 : 11);
  };
  EXPECT_EXIT(interrupted(false), ::testing::ExitedWithCode(10), "");
  EXPECT_EXIT(interrupted(true), ::testing::ExitedWithCode(11), "");
}

TEST(DieWithParent, TheKernelTerminatesUsWhenTheParentEnds) {
  int alive[2];  // open as long as the grandchild lives
  ASSERT_EQ(::pipe(alive), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    int ready[2];
    if (::pipe(ready) != 0) ::_exit(1);
    if (::fork() == 0) {
      ::close(alive[0]);
      const char yes = die_with_parent() ? 'y' : 'n';
      (void)!::write(ready[1], &yes, 1);
      while (true) ::pause();
    }
    char answer = 0;
    ::_exit(::read(ready[0], &answer, 1) == 1 && answer == 'y' ? 0 : 1);
  }
  ::close(alive[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char none;
  EXPECT_EQ(::read(alive[0], &none, 1), 0) << "end of file: the grandchild is gone";
  ::close(alive[0]);
}

}  // namespace
}  // namespace helios
