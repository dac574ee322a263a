// Fork-join: every index once, results visible to the caller, sleeping helpers woken, more threads than cores.
#include "kernels/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace helios {
namespace {

TEST(ThreadPool, RunsEveryThreadIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(threads, 0);  // plain ints: run() must order the helpers' writes before its return
      pool.run([&](int thread, int num_threads) {
        ASSERT_EQ(num_threads, threads);
        ++calls[thread];
      });
      for (const int count : calls) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, TheCallerIsThreadZeroAndTheOthersHaveTheirOwn) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  pool.run([&](int thread, int) {
    ids[thread] = std::this_thread::get_id();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // long enough for each to begin
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[1]);
}

TEST(ThreadPool, ThePieceOfAThreadThatSleepsIsTheCallers) {
  constexpr int kRounds = 50;
  ThreadPool pool(2);
  int taken_over = 0;
  std::atomic<int> pieces{0};
  for (int round = 0; round < kRounds; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the helper sleeps: to wake takes longer than nothing
    std::thread::id id;
    pool.run([&](int thread, int) {
      if (thread == 0) return;
      id = std::this_thread::get_id();
      ++pieces;
      std::this_thread::sleep_for(std::chrono::microseconds(300));  // it wakes meanwhile, and finds nothing to do
    });
    taken_over += id == std::this_thread::get_id();
  }
  EXPECT_EQ(pieces, kRounds);
  EXPECT_GT(taken_over, 0);
}

TEST(ThreadPool, WakesHelpersThatSleep) {
  ThreadPool pool(4);
  int total = 0;
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spin
    std::atomic<int> count{0};
    pool.run([&](int, int) { ++count; });
    total += count;
  }
  EXPECT_EQ(total, 80);
}

TEST(ThreadPool, TheCallerSleepsThroughALongPieceOfAnotherThread) {
  ThreadPool pool(2);
  for (int round = 0; round < 10; ++round) {
    bool done = false;
    pool.run([&](int thread, int) {
      if (thread == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      done = true;
    });
    ASSERT_TRUE(done);
  }
}

TEST(ThreadPool, ManyPoolsOnFewCoresAllProgress) {
  constexpr int kRanks = 8, kRounds = 300;
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      ThreadPool pool(3);
      for (int round = 0; round < kRounds; ++round) pool.run([&](int, int) { total.fetch_add(1); });
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(total, int64_t{kRanks} * kRounds * 3);
}

TEST(ThreadPool, ParallelForCoversTheRangeOnceInContiguousPieces) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 4, 5, 7, 64, 1001}) {
      for (const int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(count);
        std::atomic<int> pieces{0};
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          ASSERT_LT(begin, end);
          ++pieces;
          for (int64_t i = begin; i < end; ++i) ++seen[i];
        });
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(seen[i], 1) << i << " of " << count;
        EXPECT_LE(pieces, threads);
        if (grain >= count) {
          EXPECT_LE(pieces, 1);
        }
      }
    }
  }
}

TEST(ThreadPool, ASmallParallelForStaysOnTheCaller) {
  ThreadPool pool(4);
  std::thread::id id;
  pool.parallel_for(8, 8, [&](int64_t, int64_t) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

}  // namespace
}  // namespace helios
