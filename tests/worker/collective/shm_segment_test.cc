#include "worker/collective/shm_segment.h"

#include <cstring>

#include "tests/worker/collective/transports.h"

namespace helios::testing {
namespace {

TEST(ShmSegment, NamesAreDistinctForDistinctKeys) {
  EXPECT_EQ(ShmSegment::name_for("a1-B"), "/helios-a1-B");
  EXPECT_EQ(ShmSegment::name_for("a/b"), "/helios-a_2fb");
  EXPECT_EQ(ShmSegment::name_for("a_2fb"), "/helios-a_5f2fb");
  EXPECT_THROW(ShmSegment::name_for(""), CollectiveError);
  EXPECT_THROW(ShmSegment::name_for(std::string(201, 'a')), CollectiveError);
}

TEST(ShmSegment, AKeyInUseIsRefusedAndAnotherKeyIsNotDisturbed) {
  const std::string key = fresh_group_key();
  const auto first = ShmSegment::create(key, 2);
  EXPECT_TRUE(throws_collective_error([&] { ShmSegment::create(key, 2); }, key));
  const auto other = ShmSegment::create(fresh_group_key(), 2);
  other->remove_name();
  first->remove_name();
}

TEST(ShmSegment, ASegmentForAnotherWorldSizeIsRefused) {
  const std::string key = fresh_group_key();
  const auto segment = ShmSegment::create(key, 4);
  EXPECT_TRUE(throws_collective_error([&] { ShmSegment::attach(key, 2, milliseconds(100)); }, "world size"));
  EXPECT_TRUE(throws_collective_error([&] { ShmSegment::attach(key, 8, milliseconds(100)); }, "world size 8"));
  segment->remove_name();
}

TEST(ShmSegment, SlotsLieApartAndAreShared) {
  const std::string key = fresh_group_key();
  const auto here = ShmSegment::create(key, 3);
  const auto there = ShmSegment::attach(key, 3, milliseconds(1000));
  here->remove_name();
  for (int rank = 0; rank < 3; ++rank) {
    for (int which = 0; which < 2; ++which) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(here->slot(rank, which)) % 64, 0u);
      std::memset(here->slot(rank, which), rank * 2 + which + 1, kShmSlotBytes);
    }
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (int which = 0; which < 2; ++which) {
      EXPECT_EQ(there->slot(rank, which)[0], std::byte(rank * 2 + which + 1));
      EXPECT_EQ(there->slot(rank, which)[kShmSlotBytes - 1], std::byte(rank * 2 + which + 1));
    }
    EXPECT_EQ(there->record(rank).process.pid, 0);
  }
}

TEST(PeerProcess, AZombieAReusedPidAndAMissingOneHaveEnded) {
  const PeerProcess self = this_process();
  EXPECT_GT(self.start_ticks, 0u);
  EXPECT_FALSE(has_ended(self, self.pid_namespace));

  PeerProcess reused = self;
  reused.start_ticks += 1;
  EXPECT_TRUE(has_ended(reused, self.pid_namespace));
  EXPECT_FALSE(has_ended(reused, self.pid_namespace + 1)) << "a pid of another namespace says nothing";

  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  PeerProcess other = self;
  other.pid = child;
  other.start_ticks = 0;  // unknown: only the state speaks
  EXPECT_FALSE(has_ended(other, self.pid_namespace));
  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(other, self.pid_namespace)) << "dead, but not reaped";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(other, self.pid_namespace));
}

}  // namespace
}  // namespace helios::testing
