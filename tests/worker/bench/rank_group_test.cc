// Forked ranks: what they say arrives, and whoever is lost is named, at once.
#include "worker/bench/rank_group.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace helios {
namespace {

std::string failure_of(RankGroup& group) {
  try {
    int rank = 0;
    for (RankMessage message; group.next(&rank, &message);) {
    }
    return "none";
  } catch (const RankGroupError& error) {
    return error.what();
  }
}

TEST(RankGroup, MessagesArriveFromEveryRankUntilAllAreDone) {
  RankGroup group(3, [](int rank, const RankGroup::Say& say) {
    for (int i = 0; i < 100; ++i) say({.kind = RankMessage::kTimed, .work = i, .value = rank + 0.5});
    say({.kind = RankMessage::kDone});
  });
  std::vector<int> next(3, 0);
  int rank = 0;
  for (RankMessage message; group.next(&rank, &message);) {
    if (message.kind == RankMessage::kDone) continue;
    EXPECT_EQ(message.work, next.at(static_cast<size_t>(rank))++);
    EXPECT_EQ(message.value, rank + 0.5);
  }
  EXPECT_EQ(next, (std::vector<int>{100, 100, 100}));
}

TEST(RankGroup, AnExceptionIsTheRanksOwnWords) {
  RankGroup group(2, [](int rank, const RankGroup::Say& say) {
    if (rank == 1) throw std::runtime_error("model.safetensors: truncated");
    say({.kind = RankMessage::kReady});
    ::pause();
  });
  EXPECT_EQ(failure_of(group), "rank 1: model.safetensors: truncated");
}

TEST(RankGroup, AKilledRankIsNamedAndNothingHangs) {
  RankGroup group(3, [](int, const RankGroup::Say& say) {
    say({.kind = RankMessage::kReady});
    for (;;) ::pause();
  });
  const pid_t victim = group.pid(2);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(failure_of(group), "rank 2: pid " + std::to_string(victim) + " was killed by signal 9 (Killed)");
}

TEST(RankGroup, TheKilledRankIsNamedNotTheOneThatComplains) {
  RankGroup group(2, [](int rank, const RankGroup::Say& say) {
    say({.kind = RankMessage::kReady});
    if (rank == 1) ::raise(SIGKILL);
    ::usleep(20000);
    throw std::runtime_error("rank 1 has ended");
  });
  EXPECT_NE(failure_of(group).find("rank 1: pid"), std::string::npos);
}

TEST(RankGroup, ARankThatEndsBeforeItIsDoneIsAFailure) {
  RankGroup group(1, [](int, const RankGroup::Say&) { ::_exit(7); });
  const std::string failure = failure_of(group);
  EXPECT_NE(failure.find("exit code 7 before it was done"), std::string::npos) << failure;
}

TEST(RankGroup, LeavesNoProcessBehind) {
  pid_t pid = -1;
  {
    RankGroup group(1, [](int, const RankGroup::Say&) {
      for (;;) ::pause();
    });
    pid = group.pid(0);
    ASSERT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);  // killed and reaped
}

}  // namespace
}  // namespace helios
