// The shares of a product: every unit once, whoever takes it, and a thread that never comes holds nobody up.
#include "kernels/transformer/matmul_shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/thread_pool.h"

namespace helios {
namespace {

struct Shares {
  explicit Shares(const std::vector<int64_t>& counts, int64_t run)
      : memory(static_cast<size_t>(WorkShares::bytes(static_cast<int64_t>(counts.size())))),
        shares(memory.data(), static_cast<int64_t>(counts.size())) {
    for (size_t t = 0; t < counts.size(); ++t) shares.set(static_cast<int64_t>(t), counts[t], run);
  }
  AlignedBuffer memory;
  WorkShares shares;
};

TEST(WorkShares, EveryUnitIsTakenOnceByThreadsInARace) {
  ThreadPool pool(4);
  for (const int64_t most : {1, 8}) {
    for (const int64_t run : {1, 7, 1000}) {
      const std::vector<int64_t> counts = {997, 0, 3, 250};
      const Shares s(counts, run);
      std::vector<std::vector<std::atomic<int>>> taken(4);
      for (size_t t = 0; t < 4; ++t) taken[t] = std::vector<std::atomic<int>>(static_cast<size_t>(counts[t]));
      pool.run([&](int thread, int) {
        while (const WorkShares::Units units = s.shares.take(thread, most)) {
          EXPECT_LE(units.end - units.begin, most);
          EXPECT_EQ(units.begin / run, (units.end - 1) / run);
          for (int64_t u = units.begin; u < units.end; ++u) ++taken[units.owner][u];
        }
      });
      for (const auto& share : taken) {
        for (const auto& times : share) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(WorkShares, OnesOwnInOrderThenTheBackOfTheFullest) {
  const Shares s({4, 2, 9}, 100);
  std::vector<std::pair<int64_t, int64_t>> order;
  while (const WorkShares::Units units = s.shares.take(0, 2)) {
    order.emplace_back(units.owner, units.begin);
    if (order.size() > 20) break;
  }
  const std::vector<std::pair<int64_t, int64_t>> expected = {{0, 0}, {0, 2}, {0, 3}, {2, 7}, {2, 5},
                                                             {2, 3}, {2, 1}, {1, 1}, {1, 0}, {2, 0}};
  EXPECT_EQ(order, expected);
}

}  // namespace
}  // namespace helios
