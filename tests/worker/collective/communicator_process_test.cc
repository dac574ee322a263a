// Ranks as processes: they die, stop, and are more than there are cores.
#include <sched.h>

#include <algorithm>

#include "tests/worker/collective/transports.h"

namespace helios::testing {
namespace {

constexpr milliseconds kLongLimit(30000);

int helios_names_in_dev_shm(const std::string& key) {
  int count = 0;
  if (!std::filesystem::exists("/dev/shm")) return 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    count += entry.path().filename().string().find(key) != std::string::npos;
  }
  return count;
}

class CommunicatorProcesses : public ::testing::TestWithParam<const char*> {};

TEST_P(CommunicatorProcesses, ExchangeInOrderAtEveryWorldSize) {
  for (const int world : {2, 4, 8}) {
    const Group group(GetParam(), world);
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&group, rank] {
        const auto communicator = group.join(rank);
        bool good = true;
        for (uint64_t round = 0; round < 50; ++round) {
          good = good && gather_and_check(*communicator, round * 97, round, round % 2);
        }
        return good && gather_and_check(*communicator, 1 << 20, 50, false);
      });
    }
    for (RankProcess& rank : ranks) EXPECT_EQ(rank.wait(), 0);
    EXPECT_EQ(helios_names_in_dev_shm(group.key()), 0);
  }
}

TEST_P(CommunicatorProcesses, AKilledRankIsNoticedLongBeforeTheLimit) {
  const Group group(GetParam(), 4, kLongLimit);
  const std::string unused_key = group.key();
  std::vector<RankProcess> ranks;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&group, rank, &ready] {
      const auto communicator = group.join(rank);
      communicator->barrier();
      // All are out of the first barrier before one is killed: what it sent may die with its connection.
      (void)!::write(ready[1], "x", 1);
      if (rank == 3) ::pause();
      // Shared memory names the dead; a closed connection is all that Gloo sees.
      return throws_collective_error([&] { communicator->barrier(); });
    });
  }
  char byte;
  for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto start = std::chrono::steady_clock::now();
  ranks[3].signal(SIGKILL);  // not reaped before the end: a zombie keeps its pid
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLongLimit / 2);
  EXPECT_EQ(ranks[3].wait(), 128 + SIGKILL);
  EXPECT_EQ(helios_names_in_dev_shm(unused_key), 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_P(CommunicatorProcesses, AStoppedRankIsNoticedAtTheLimit) {
  const milliseconds limit(700);
  const Group group(GetParam(), 2, limit);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  RankProcess stopped([&] {
    const auto communicator = group.join(1);
    communicator->barrier();
    (void)!::write(ready[1], "x", 1);
    ::raise(SIGSTOP);
    // Continued after the others gave up: it learns that the group is gone.
    return throws_collective_error([&] { communicator->barrier(); });
  });
  RankProcess waiting([&] {
    const auto communicator = group.join(0);
    communicator->barrier();
    const auto start = std::chrono::steady_clock::now();
    const bool noticed = throws_collective_error([&] { gather_and_check(*communicator, 64, 1, false); },
                                                 "rank 1 did not come within 700 ms");
    return noticed && std::chrono::steady_clock::now() - start > limit - milliseconds(200);
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(waiting.wait(milliseconds(20000)), 0);
  stopped.signal(SIGCONT);
  EXPECT_EQ(stopped.wait(), 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_P(CommunicatorProcesses, ARankThatLeavesAfterTheLastExchangeTakesNothingAway) {
  const Group group(GetParam(), 2, kLongLimit);
  RankProcess quick([&] {
    const auto communicator = group.join(1);
    return gather_and_check(*communicator, 3 << 20, 7, false);
  });
  RankProcess slow([&] {
    const auto communicator = group.join(0);
    std::this_thread::sleep_for(milliseconds(100));
    return gather_and_check(*communicator, 3 << 20, 7, false);
  });
  EXPECT_EQ(quick.wait(), 0);
  EXPECT_EQ(slow.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorProcesses, ::testing::Values("shm", "gloo"),
                         [](const auto& one) { return std::string(one.param); });

TEST(ShmProcesses, EightRanksOnTwoCoresMakeProgress) {
  const Group group("shm", 8);
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.emplace_back([&group, rank] {
      cpu_set_t allowed, two;
      CPU_ZERO(&allowed);
      CPU_ZERO(&two);
      ::sched_getaffinity(0, sizeof allowed, &allowed);
      for (int cpu = 0, taken = 0; cpu < CPU_SETSIZE && taken < 2; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &two), ++taken;
      }
      ::sched_setaffinity(0, sizeof two, &two);
      const auto communicator = group.join(rank);
      bool good = true;
      for (uint64_t round = 0; round < 2000; ++round) good = good && gather_and_check(*communicator, 256, round, false);
      return good;
    });
  }
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.wait(), 0);
}

TEST(ShmProcesses, ARankKilledInsideAnExchangeLeavesNoNameBehind) {
  const Group group("shm", 2, kLongLimit);
  RankProcess alone([&] {
    group.join(0);
    return true;
  });
  {
    const auto segment = ShmSegment::attach(group.key(), 2, kLongLimit);
    while (segment->record(0).exchange.load() == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(helios_names_in_dev_shm(group.key()), 1);
  // Rank 0 waits for rank 1 and dies, which no cleanup of its own can follow.
  alone.signal(SIGKILL);
  EXPECT_EQ(alone.wait(), 128 + SIGKILL);
  RankProcess late([&] {
    const auto communicator = group.join(1);  // it did arrive at the first exchange
    return throws_collective_error([&] { communicator->barrier(); }, "rank 0 (pid ");
  });
  EXPECT_EQ(late.wait(), 0);
  EXPECT_EQ(helios_names_in_dev_shm(group.key()), 0);
}

}  // namespace
}  // namespace helios::testing
