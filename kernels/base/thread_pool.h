// A rank's compute threads: fork-join over a fixed number of threads, the caller being thread 0.
//
// Work is split by thread index, and no thread shares an accumulator with another, so results do not depend on the
// number of threads, nor on which of them runs a piece: one that its own thread has not begun when the caller is done
// with its own is the caller's. Waiters stay awake for the length of a step's pauses while nobody else wants their
// core, then sleep on a futex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace helios {

class ThreadPool {
 public:
  /// `num_threads` >= 1, the caller included. Pins nothing.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls body(thread, num_threads) once for every thread and returns when all are done. `body` must not throw, nor
  /// wait for another thread's piece. Not re-entrant; one caller at a time.
  void run(const std::function<void(int thread, int num_threads)>& body);

  /// run() over [0, count) in contiguous pieces: body(begin, end) on each thread with a non-empty piece. Calls body
  /// directly when count is small enough for one piece of `grain`.
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
