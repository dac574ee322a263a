// One rank's part of a benchmark: the same submissions as every other rank's, made by hand, timed around the executor.
//
// Thread: the rank process's main thread; it submits and collects, two frames in flight during decode as in service.
#pragma once

#include <vector>

#include "worker/bench/bench_plan.h"
#include "worker/replay/executor.h"

namespace helios {

/// The core that the plan needs of this model.
CoreConfig bench_core(const std::string& model_dir, const ModelConfig& config, ComputeDtype dtype, int threads);

class RankSession {
 public:
  /// Fills every slot's context. Throws CollectiveError, std::runtime_error.
  RankSession(Executor& executor, Rank rank);

  /// One round of the work; seconds. Throws CollectiveError, std::runtime_error.
  double run(const BenchWork& work);

 private:
  Submission blank(Operation operation);
  void add_lane(Submission& submission, int slot, int start, int count);
  void submit(const Submission& submission);
  void collect(int lanes);
  double prefill(int tokens);
  double decode(int batch, bool logprobs);

  Executor& executor_;
  const Rank rank_;
  const int blocks_a_slot_;
  uint64_t sequence_ = 0;
  std::vector<uint32_t> epochs_;
};

}  // namespace helios
