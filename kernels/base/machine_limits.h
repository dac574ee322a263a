// What this machine can do at most: the two limits that a step's time is compared with.
//
// Measured, not looked up: a virtual machine's share of bandwidth and clock is not on any data sheet, and changes with
// its neighbours. Compare only with figures of the same run.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/thread_pool.h"

namespace helios {

struct MachineLimits {
  double read_gb_per_s = 0;    // 10^9 bytes a second, all threads of the pool together, from memory far beyond L3
  double fma_gflop_per_s = 0;  // 10^9 FP32 operations a second (an FMA is two), all threads together
};

/// Measures again and again over one buffer, so that limits and work can take turns.
class LimitMeter {
 public:
  /// `buffer_bytes` is read in equal contiguous parts, one a thread; 0 chooses 1 GiB, or a quarter of free memory if
  /// that is less. Borrows the pool. Throws std::bad_alloc.
  explicit LimitMeter(ThreadPool& pool, int64_t buffer_bytes = 0);

  /// Each limit is the median of at least three passes that together take about `time_each`.
  MachineLimits measure(std::chrono::milliseconds time_each);

 private:
  ThreadPool& pool_;
  const int64_t floats_each_;
  AlignedBuffer buffer_;
};

/// Once, with a buffer of its own. Throws std::bad_alloc.
MachineLimits measure_machine_limits(ThreadPool& pool, std::chrono::milliseconds time_each, int64_t buffer_bytes = 0);

}  // namespace helios
