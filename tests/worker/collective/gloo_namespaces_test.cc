// Gloo between two hosts, as far as one machine can be two: a network namespace each, joined by a virtual cable.
//
// Needs root and `ip netns`; skipped loudly otherwise. Loopback is always tested, by the contract suite.
#include <fcntl.h>
#include <sched.h>

#include "tests/worker/collective/transports.h"

namespace helios::testing {
namespace {

class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string id = std::to_string(::getpid() % 100000);
    for (int i = 0; i < 2; ++i) {
      names_[i] = "helios" + id + "n" + std::to_string(i);
      cables_[i] = "hl" + id + "v" + std::to_string(i);
      addresses_[i] = "10.213.7." + std::to_string(i + 1);
    }
    if (::geteuid() != 0 || !run("ip netns add " + names_[0]) || !run("ip netns add " + names_[1])) {
      GTEST_SKIP() << "SKIPPED, NOT CHECKED: two network namespaces need root and `ip netns`";
    }
    if (!run("ip link add " + cables_[0] + " type veth peer name " + cables_[1])) {
      GTEST_SKIP() << "SKIPPED, NOT CHECKED: this kernel makes no veth pair";
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(run("ip link set " + cables_[i] + " netns " + names_[i]));
      ASSERT_TRUE(run("ip -n " + names_[i] + " addr add " + addresses_[i] + "/24 dev " + cables_[i]));
      ASSERT_TRUE(run("ip -n " + names_[i] + " link set " + cables_[i] + " up"));
    }
  }
  void TearDown() override {
    for (const std::string& name : names_) run("ip netns del " + name);
  }

  static bool run(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

  /// In a forked rank: move into its host, then join.
  std::unique_ptr<Communicator> join(int rank, milliseconds timeout) const {
    const int ns = ::open(("/run/netns/" + names_[rank]).c_str(), O_RDONLY | O_CLOEXEC);
    if (ns < 0 || ::setns(ns, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + names_[rank]);
    ::close(ns);
    CommunicatorConfig config;
    config.collective = "gloo";
    config.group_key = "two-hosts";
    config.rank = Rank(rank);
    config.world_size = 2;
    config.host_name = addresses_[rank];
    config.timeout = timeout;
    config.store_set = [this](const std::string& key, const std::string& value) { store_.set(key, value); };
    config.store_get = [this, timeout](const std::string& key) { return store_.get(key, timeout); };
    return make_communicator(config);
  }

  std::string names_[2], cables_[2], addresses_[2];
  DirectoryStore store_;
};

TEST_F(TwoHosts, ExchangeInOrder) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([this, rank] {
      const auto communicator = join(rank, milliseconds(20000));
      bool good = true;
      for (uint64_t round = 0; round < 100; ++round) {
        good = good && gather_and_check(*communicator, round * 53, round, round % 2);
      }
      return good && gather_and_check(*communicator, 2 << 20, 100, false);
    });
  }
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.wait(), 0);
}

TEST_F(TwoHosts, ACutCableIsNoticedAtTheLimit) {
  int joined[2];
  ASSERT_EQ(::pipe(joined), 0);
  int cut[2];
  ASSERT_EQ(::pipe(cut), 0);
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto communicator = join(rank, milliseconds(1500));
      communicator->barrier();
      char byte = 'x';
      if (::write(joined[1], &byte, 1) != 1 || ::read(cut[0], &byte, 1) != 1) return false;
      return throws_collective_error([&] { gather_and_check(*communicator, 64, 1, false); },
                                     "rank " + std::to_string(1 - rank) + " did not come within 1500 ms");
    });
  }
  char bytes[2];
  for (int i = 0; i < 2; ++i) ASSERT_EQ(::read(joined[0], bytes, 1), 1);
  ASSERT_TRUE(run("ip -n " + names_[0] + " link set " + cables_[0] + " down"));
  ASSERT_EQ(::write(cut[1], "xx", 2), 2);
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.wait(milliseconds(20000)), 0);
  for (const int fd : {joined[0], joined[1], cut[0], cut[1]}) ::close(fd);
}

}  // namespace
}  // namespace helios::testing
