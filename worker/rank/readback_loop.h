// Waits for each frame in flight to reach host memory and hands its completion to the link. Thread: readback, its own.
#pragma once

#include <functional>
#include <thread>

#include "common/base/bounded_queue.h"
#include "common/contract/completion.h"
#include "common/contract/submission.h"
#include "worker/rank/rank_vitals.h"
#include "worker/replay/executor.h"

namespace helios {

class ReadbackLoop {
 public:
  /// A submission that the executor has taken.
  struct InFlight {
    uint32_t incarnation = 0;
    Sequence sequence;
    FrameIndex frame;
  };
  /// `publish` and `fail` are called on the readback thread; `fail` at most once, and nothing follows it.
  ReadbackLoop(Executor& executor, Rank rank, RankVitals& vitals, std::function<void(const Completion&)> publish,
               std::function<void(const std::string&)> fail);
  /// Collects what is in flight, then joins.
  ~ReadbackLoop();

  /// Rank thread, after the executor has taken it. False when more are in flight than there are frames.
  bool expect(InFlight in_flight);
  /// Rank thread: no more will come; returns when everything in flight was published or has failed.
  void finish();

 private:
  void run();
  /// Empty when the completion is of this submission, else what differs.
  std::string mismatch(const InFlight& expected, const Completion& completion) const;

  Executor& executor_;
  const Rank rank_;
  RankVitals& vitals_;
  const std::function<void(const Completion&)> publish_;
  const std::function<void(const std::string&)> fail_;
  BoundedQueue<InFlight> in_flight_;
  std::thread thread_;
};

}  // namespace helios
