// What every transport promises, with ranks as threads. TSan runs it over one shared mapping.
#include <atomic>
#include <ostream>

#include "tests/worker/collective/transports.h"

namespace helios::testing {
namespace {

struct Case {
  std::string transport;
  int world;
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.transport << " x " << one.world; }

class CommunicatorContract : public ::testing::TestWithParam<Case> {
 protected:
  bool is_gloo() const { return GetParam().transport == "gloo"; }
  /// Every rank joins, runs body(communicator) and leaves.
  void run(const std::function<void(Communicator&)>& body, milliseconds timeout = milliseconds(20000)) {
    const Group group(GetParam().transport, GetParam().world, timeout);
    run_threads(group.world(), [&](int rank) {
      const auto communicator = group.join(rank);
      body(*communicator);
    });
  }
};

TEST_P(CommunicatorContract, EveryRankGetsEveryPartInRankOrder) {
  const std::vector<size_t> sizes = {0,
                                     1,
                                     3,
                                     64,
                                     1000,
                                     4096,
                                     kShmSlotBytes - 1,
                                     kShmSlotBytes,
                                     kShmSlotBytes + 1,
                                     3 * kShmSlotBytes + 17,
                                     size_t{8 << 20} / static_cast<size_t>(GetParam().world)};
  std::atomic<int> wrong = 0;
  run([&](Communicator& communicator) {
    EXPECT_EQ(communicator.world_size(), GetParam().world);
    uint64_t round = 0;
    for (const size_t bytes : sizes) {
      for (const bool in_place : {false, true}) wrong += !gather_and_check(communicator, bytes, ++round, in_place);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(CommunicatorContract, SmallExchangesBackToBackNeverMix) {
  std::atomic<int> wrong = 0;
  run([&](Communicator& communicator) {
    const uint64_t rounds = is_gloo() ? 200 : 3000;
    for (uint64_t round = 0; round < rounds; ++round) {
      wrong += !gather_and_check(communicator, 8 + round % 3 * 60, round, round % 2);
      if (round % 17 == 0) communicator.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(CommunicatorContract, RanksMayComeAtAnyTime) {
  std::atomic<int> wrong = 0;
  run([&](Communicator& communicator) {
    for (int round = 0; round < 12; ++round) {
      // Each in turn is the late one: by nothing, by a spin, by a sleep, by longer than a liveness check.
      if (round % communicator.world_size() == communicator.rank().value) {
        std::this_thread::sleep_for(milliseconds(round * 11 % 130));
      }
      wrong += !gather_and_check(communicator, 100, round, false);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(CommunicatorContract, NobodyPassesABarrierBeforeTheLastHasCome) {
  std::atomic<int> arrived = 0, early = 0;
  run([&](Communicator& communicator) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      communicator.barrier();
      if (arrived < round * communicator.world_size()) ++early;
      communicator.barrier();
    }
  });
  EXPECT_EQ(early, 0);
}

TEST_P(CommunicatorContract, AMissingRankIsNamedAtTheTimeLimit) {
  const milliseconds limit(is_gloo() ? 1000 : 300);
  std::atomic<int> noticed = 0;
  const Group group(GetParam().transport, GetParam().world, limit);
  std::atomic<int> done = 0;
  run_threads(group.world(), [&](int rank) {
    const auto communicator = group.join(rank);
    communicator->barrier();
    if (rank == group.world() - 1) {  // stays in the group, but does not come
      while (done < group.world() - 1) std::this_thread::sleep_for(milliseconds(1));
      noticed += throws_collective_error([&] { communicator->barrier(); });
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string who = rank == 0 ? std::to_string(group.world() - 1) + " did not come within" : "";
    noticed += throws_collective_error([&] { gather_and_check(*communicator, 8, 1, false); }, who);
    EXPECT_GE(std::chrono::steady_clock::now() - start, limit - milliseconds(100));
    noticed += throws_collective_error([&] { communicator->barrier(); });  // the group stays broken
    ++done;
  });
  EXPECT_EQ(noticed, 2 * (group.world() - 1) + 1);
}

TEST_P(CommunicatorContract, AbortFromAnotherThreadWakesThisRankAndItsPeers) {
  std::atomic<int> noticed = 0, woken = 0;
  const Group group(GetParam().transport, GetParam().world, milliseconds(60000));
  const int last = group.world() - 1;
  run_threads(group.world(), [&](int rank) {
    const auto communicator = group.join(rank);
    communicator->barrier();
    std::thread other;
    if (rank == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(120));
        communicator->abort("the coordinator said so");
        communicator->abort("a later reason");
      });
    }
    // The last rank does not come until the others have been woken.
    while (rank == last && woken < last) std::this_thread::sleep_for(milliseconds(1));
    const bool knows_why = rank == 0 || !is_gloo();
    noticed += throws_collective_error([&] { communicator->barrier(); }, knows_why ? "the coordinator said so" : "");
    ++woken;
    if (other.joinable()) other.join();
    noticed +=
        throws_collective_error([&] { communicator->all_gather({}, {}); }, knows_why ? "the coordinator said so" : "");
  });
  EXPECT_EQ(noticed, 2 * group.world());
}

TEST_P(CommunicatorContract, DifferentSizesEndTheGroupInsteadOfMixingBytes) {
  std::atomic<int> noticed = 0;
  run(
      [&](Communicator& communicator) {
        communicator.barrier();
        const size_t bytes = communicator.rank().value == 0 ? 16 : 24;
        noticed += throws_collective_error([&] { gather_and_check(communicator, bytes, 0, false); });
      },
      milliseconds(500));
  EXPECT_EQ(noticed, GetParam().world);
}

TEST_P(CommunicatorContract, ARankThatNeverJoinsEndsTheOthersWait) {
  std::atomic<int> noticed = 0;
  const Group group(GetParam().transport, GetParam().world, milliseconds(400));
  run_threads(group.world() - 1, [&](int rank) { noticed += throws_collective_error([&] { group.join(rank); }); });
  EXPECT_EQ(noticed, group.world() - 1);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* transport : {"shm", "shm-one-mapping", "gloo"}) {
    for (const int world : {2, 4, 8}) all.push_back({transport, world});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorContract, ::testing::ValuesIn(cases()), [](const auto& one) {
  std::string name = one.param.transport + std::to_string(one.param.world);
  std::erase(name, '-');
  return name;
});

TEST(SingleRank, CopiesAndNeverWaits) {
  for (const char* transport : {"shm", "gloo"}) {
    const Group group(transport, 1);
    const auto communicator = group.join(0);
    EXPECT_EQ(communicator->world_size(), 1);
    EXPECT_TRUE(gather_and_check(*communicator, 0, 0, false));
    EXPECT_TRUE(gather_and_check(*communicator, 1000, 1, false));
    EXPECT_TRUE(gather_and_check(*communicator, 1000, 2, true));
    communicator->barrier();
  }
}

TEST(MakeCommunicator, RefusesWhatCannotBeAGroup) {
  CommunicatorConfig config;
  config.world_size = 2;
  config.group_key = "k";
  config.collective = "carrier-pigeon";
  EXPECT_TRUE(throws_collective_error([&] { make_communicator(config); }, "carrier-pigeon"));
  config.collective = "shm";
  config.rank = Rank(2);
  EXPECT_TRUE(throws_collective_error([&] { make_communicator(config); }, "rank 2"));
  config.rank = Rank(0);
  config.group_key = std::string(500, 'x');
  EXPECT_TRUE(throws_collective_error([&] { make_communicator(config); }, "group key"));
  config.collective = "gloo";
  EXPECT_TRUE(throws_collective_error([&] { make_communicator(config); }, "host_name"));
}

}  // namespace
}  // namespace helios::testing
