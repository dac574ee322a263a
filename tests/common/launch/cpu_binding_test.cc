// Where ranks run: lists as the kernel writes them, shares by node and core, and one clear line for what is wrong.
#include "common/launch/cpu_binding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "common/base/cpu_affinity.h"

namespace helios {
namespace {

using Lists = std::vector<std::vector<int>>;

std::string refusal(const std::string& text) {
  const Result<Lists> lists = parse_cpu_lists(text);
  return lists.ok() ? "accepted" : lists.error().message;
}

std::vector<HostCpu> plain_host(int cpus) {
  std::vector<HostCpu> host;
  for (int cpu = 0; cpu < cpus; ++cpu) host.push_back({.cpu = cpu, .node = 0, .core = cpu});
  return host;
}

/// Two sockets of four cores with two hyperthreads each, numbered as Linux usually does: 0-3 and 8-11 on node 0.
std::vector<HostCpu> two_sockets() {
  std::vector<HostCpu> host;
  for (int cpu = 0; cpu < 16; ++cpu) host.push_back({.cpu = cpu, .node = cpu % 8 / 4, .core = cpu % 8});
  return host;
}

TEST(CpuLists, AreReadAsTheKernelWritesThem) {
  EXPECT_EQ(*parse_cpu_lists("0"), (Lists{{0}}));
  EXPECT_EQ(*parse_cpu_lists("0-3,8"), (Lists{{0, 1, 2, 3, 8}}));
  EXPECT_EQ(*parse_cpu_lists("5,1|2-3"), (Lists{{5, 1}, {2, 3}})) << "the order is the operator's";
  EXPECT_EQ(print_cpu_list(std::vector<int>{0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(print_cpu_list(std::vector<int>{5, 1, 2}), "5,1-2");
  EXPECT_EQ(print_cpu_list({}), "");
}

TEST(CpuLists, WhatIsNoListIsRefusedInOneLine) {
  for (const char* text : {"", "|", "0|", "|0", "0,", ",0", "a", "0-", "-3", "3-1", "0--2", "0-1-2", "0 1", "0x1", "+1",
                           "65536", "99999999999999999999", "0;1", "0-3/2", "auto,1"}) {
    const std::string message = refusal(text);
    EXPECT_EQ(message,
              "'" + std::string(text) + "' is no list of CPUs: expected such as 0-3,8, and | between two ranks");
  }
  EXPECT_EQ(refusal("0-3,2"), "CPU 2 is named twice");
  EXPECT_EQ(refusal("0-3|3"), "CPU 3 is named twice");
}

// Whatever is accepted says again what was written, and no text does harm.
TEST(CpuLists, AcceptedTextsRoundTrip) {
  std::mt19937 random(20261);
  const std::string alphabet = "0123456789-,,--||";
  int accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (size_t length = random() % 10; text.size() < length;) text += alphabet[random() % alphabet.size()];
    const Result<Lists> lists = parse_cpu_lists(text);
    if (!lists.ok()) continue;
    ++accepted;
    std::string again;
    for (const std::vector<int>& list : *lists) {
      EXPECT_FALSE(list.empty()) << text;
      again += (again.empty() ? "" : "|") + print_cpu_list(list);
    }
    EXPECT_EQ(*parse_cpu_lists(again), *lists) << text;
  }
  EXPECT_GT(accepted, 150);
}

TEST(ShareCpus, GivesContiguousBlocksByNode) {
  EXPECT_EQ(share_cpus(plain_host(4), 2), (Lists{{0, 1}, {2, 3}}));
  EXPECT_EQ(share_cpus(plain_host(2), 2), (Lists{{0}, {1}}));
  EXPECT_EQ(share_cpus(plain_host(3), 2), (Lists{{0}, {1, 2}}));
  EXPECT_EQ(share_cpus(two_sockets(), 2), (Lists{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
  EXPECT_EQ(share_cpus(two_sockets(), 4), (Lists{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  std::vector<HostCpu> crossed = plain_host(4);  // nodes that alternate
  for (HostCpu& cpu : crossed) cpu.node = cpu.cpu % 2;
  EXPECT_EQ(share_cpus(crossed, 2), (Lists{{0, 2}, {1, 3}}));
}

TEST(ShareCpus, SplitsHyperthreadsOnlyWhereCoresDoNotSuffice) {
  std::vector<HostCpu> one_core = {{.cpu = 0, .core = 0}, {.cpu = 1, .core = 0}};
  EXPECT_EQ(share_cpus(one_core, 2), (Lists{{0}, {1}}));
  EXPECT_EQ(share_cpus(plain_host(1), 2), (Lists{{}, {0}}));
}

// Otherwise two servers on one host would lie on the same few CPUs.
TEST(ShareCpus, EveryCpuBelongsToOneRank) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::vector<HostCpu> host;
    for (int cpu = 0; cpu < static_cast<int>(1 + random() % 40); ++cpu) {
      host.push_back({.cpu = cpu, .node = static_cast<int>(random() % 3), .core = static_cast<int>(random() % 16)});
    }
    const Lists shares = share_cpus(host, 1 << random() % 4);
    std::set<int> seen;
    size_t least = host.size(), count = 0;
    for (const std::vector<int>& share : shares) {
      seen.insert(share.begin(), share.end());
      count += share.size();
      least = std::min(least, share.size());
    }
    EXPECT_EQ(count, host.size());
    EXPECT_EQ(seen.size(), host.size());
    if (host.size() >= shares.size()) {
      EXPECT_GT(least, 0u) << "a rank without a CPU";
    }
  }
}

TEST(HostCpus, ReadsNodesAndCoresAndDoesWithout) {
  std::string pattern = (std::filesystem::temp_directory_path() / "helios-cpus-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path sys = pattern;
  const auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((sys / name).parent_path());
    std::ofstream(sys / name) << text << "\n";
  };
  put("devices/system/node/node0/cpulist", "0-1,4-5");
  put("devices/system/node/node1/cpulist", "2-3,6-7");
  put("devices/system/node/node2/cpulist", "");  // memory alone
  put("devices/system/node/possible", "0-2");
  for (int cpu = 0; cpu < 7; ++cpu) {
    put("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  }
  const std::vector<int> allowed = {1, 3, 5, 7};
  const std::vector<HostCpu> host = host_cpus(allowed, sys.string()), bare = host_cpus(allowed, pattern + "/nothing");
  std::filesystem::remove_all(sys);
  ASSERT_EQ(host.size(), 4u);
  const int nodes[] = {0, 1, 0, 1}, cores[] = {1, 3, 1, 7};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(host[i].cpu, allowed[i]);
    EXPECT_EQ(host[i].node, nodes[i]);
    EXPECT_EQ(host[i].core, cores[i]) << "CPU 7 has no file: a core of its own";
    EXPECT_EQ(bare[i].node, 0);
    EXPECT_EQ(bare[i].core, allowed[i]);
  }
}

TEST(BindRank, NoneIsUnbound) {
  const CpuBinding binding = *bind_rank("none", 0, 2, 1, plain_host(2));
  EXPECT_TRUE(binding.cpus.empty());
  EXPECT_FALSE(binding.each_thread);
  EXPECT_EQ(binding.why_unbound, "");
}

TEST(BindRank, AutoHoldsThreadsOnlyWhenTheyFillTheShare) {
  CpuBinding binding = *bind_rank("auto", 1, 2, 2, plain_host(4));
  EXPECT_EQ(binding.cpus, (std::vector<int>{2, 3}));
  EXPECT_TRUE(binding.each_thread);
  binding = *bind_rank("auto", 1, 2, 1, plain_host(4));
  EXPECT_EQ(binding.cpus, (std::vector<int>{2, 3})) << "the whole share, not as many CPUs as threads";
  EXPECT_FALSE(binding.each_thread);
  binding = *bind_rank("auto", 0, 2, 3, plain_host(4));
  EXPECT_TRUE(binding.cpus.empty());
  EXPECT_EQ(binding.why_unbound, "2 ranks of 3 threads on 4 CPUs");
  EXPECT_TRUE(bind_rank("auto", 0, 8, 1, plain_host(4))->cpus.empty());
  EXPECT_EQ(bind_rank("auto", 2, 2, 1, plain_host(4)).error().message, "auto: this is number 2 of 2 ranks of its host");
}

TEST(BindRank, AListIsTakenAsItIs) {
  EXPECT_EQ(bind_rank("3,1", 5, 8, 2, plain_host(4))->cpus, (std::vector<int>{3, 1})) << "one list: this rank's own";
  EXPECT_TRUE(bind_rank("3,1", 0, 1, 0, plain_host(4))->each_thread);
  EXPECT_FALSE(bind_rank("3,1", 0, 1, 1, plain_host(4))->each_thread);
  EXPECT_EQ(bind_rank("0|2-3", 1, 2, 0, plain_host(4))->cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(bind_rank("0|1", 2, 4, 1, plain_host(4)).error().message,
            "2 lists, but this is number 2 of its host's ranks");
  EXPECT_EQ(bind_rank("0-4", 0, 1, 1, plain_host(4)).error().message,
            "this process may not use CPU 4: expected some of 0-3");
  EXPECT_EQ(bind_rank("0-1", 0, 1, 3, plain_host(4)).error().message,
            "0-1 is too few CPUs for --threads-per-rank 3");
}

TEST(CpuAffinity, AThreadIsWhereItWasBound) {
  const std::vector<int> before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  std::thread([&] {
    const std::vector<int> last = {before.back()};
    ASSERT_EQ(bind_this_thread(last), 0);
    EXPECT_EQ(allowed_cpus(), last);
  }).join();
  EXPECT_EQ(allowed_cpus(), before) << "other threads keep their place";
  EXPECT_NE(bind_this_thread(std::vector<int>{60000}), 0);
  EXPECT_NE(bind_this_thread({}), 0);
}

}  // namespace
}  // namespace helios
