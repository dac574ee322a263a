// A set of rank processes with the model loaded, which works when it is told to and sleeps in between.
//
// Every rank waits in the kernel for the next word from the parent, and its compute threads on their futex, so two
// teams can take turns on one machine without costing each other anything but memory. Thread: main, single-threaded
// when a team is made.
#pragma once

#include "worker/bench/bench_options.h"
#include "worker/bench/bench_plan.h"
#include "worker/bench/bench_report.h"
#include "worker/bench/rank_group.h"

namespace helios {

class RankTeam {
 public:
  /// Forks `ranks` processes of `threads` compute threads, which load the model at once. `options` and `config` outlive
  /// the team.
  RankTeam(const BenchOptions& options, const ModelConfig& config, int ranks, int threads);

  /// Returns when every rank has loaded. Throws RankGroupError, as the others do.
  void wait_ready();

  struct Timed {
    double seconds = 0;
    BenchWords words;
  };
  /// One round of the plan's piece of work with this index, by rank 0's clock.
  Timed run(size_t work);

  /// Ends the ranks. Complete only now: peaks are a life's.
  BenchMemory finish();

  double weights_bytes() const { return memory_.weights_bytes * ranks_; }  // of all ranks

 private:
  const int ranks_;
  const Gate gate_;
  RankGroup group_;
  BenchMemory memory_;
};

}  // namespace helios
