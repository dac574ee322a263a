// Takes submissions in order and launches them: the only thread that calls the executor's submit().
//
// A rank may enter an exchange only if all others will. So a submission of another incarnation is dropped, and one that
// does not follow its predecessor is a fault, never launched. While steps run this thread waits for the next
// submission, and so asks the group, several times a second, whether it still stands. Thread: rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/collective/communicator.h"
#include "worker/rank/coordinator_link.h"
#include "worker/rank/rank_vitals.h"
#include "worker/replay/executor.h"

namespace helios {

class RankLoop {
 public:
  /// `group`: what the steps' exchanges go through.
  RankLoop(Executor& executor, Communicator& group, uint32_t incarnation, CoordinatorLink& link, RankVitals& vitals);

  /// Until the link says to leave and what was taken is finished. A fault (of the executor, an exchange, the sequence)
  /// is reported through the link, which is then leaving as broken.
  void run();

 private:
  /// What is wrong with taking this submission next; empty when nothing is.
  std::string out_of_step(const Submission& submission) const;
  /// Each turn; at its interval publishes counters and checks the group. Throws CollectiveError.
  void look_round();

  Executor& executor_;
  Communicator& group_;
  const Rank rank_;
  const uint32_t incarnation_;
  CoordinatorLink& link_;
  RankVitals& vitals_;
  Sequence last_;
  RankVitals::Clock::time_point next_look_{};
};

}  // namespace helios
