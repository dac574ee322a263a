// One rank's part of a benchmark: the same submissions as every other rank's, made by hand, timed around the executor.
//
// Thread: the rank process's main thread; it submits and collects, two frames in flight during decode as in service.
#pragma once

#include <chrono>
#include <vector>

#include "worker/bench/bench_options.h"
#include "worker/bench/bench_plan.h"
#include "worker/replay/executor.h"

namespace helios {

/// The core that the plan needs of this model.
CoreConfig bench_core(const BenchOptions& options, const ModelConfig& config);

class RankSession {
 public:
  /// Fills the context of the slots that the plan decodes. Throws CollectiveError, std::runtime_error.
  RankSession(Executor& executor, Rank rank, const std::vector<BenchWork>& plan);

  struct Round {
    double seconds = 0;
    double words = 0;  // of 32 bits, sent by this rank
    double sampler_words = 0;
  };
  /// One round of the work. Throws CollectiveError, std::runtime_error.
  Round run(const BenchWork& work);

 private:
  Submission blank(Operation operation);
  void add_lane(Submission& submission, int slot, int start, int count, bool sampled = false);
  void submit(const Submission& submission);
  Completion collect(int emitting_lanes);
  Round prefill(const BenchWork& work);
  Round decode(const BenchWork& work);
  Round sent() const;
  Round round_since(std::chrono::steady_clock::time_point start, const Round& sent_before) const;

  Executor& executor_;
  const Rank rank_;
  const int blocks_a_slot_;
  uint64_t sequence_ = 0;
  std::vector<uint32_t> epochs_;
};

}  // namespace helios
