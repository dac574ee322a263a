// What a rank shows of itself while it works: written by the rank, readback and link threads, read by heartbeats and
// the status pages. No lock is held while anything is computed: a stuck step must not keep anyone from saying that it
// is stuck.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "common/contract/control.h"
#include "worker/replay/executor.h"

namespace helios {

class RankVitals {
 public:
  using Clock = std::chrono::steady_clock;

  RankState state() const { return state_; }
  /// States only follow each other: a rank that leaves does not become ready any more.
  void advance_state(RankState state) {
    RankState seen = state_;
    while (seen < state && !state_.compare_exchange_weak(seen, state)) {
    }
  }

  uint32_t incarnation() const { return incarnation_; }
  void set_incarnation(uint32_t incarnation) { incarnation_ = incarnation; }

  double load_progress() const { return load_progress_; }
  void set_load_progress(double progress) { load_progress_ = progress; }

  /// Rank thread, before the executor takes the submission: a submission that hangs counts as in flight.
  void step_begins(Sequence sequence) {
    std::lock_guard lock(mutex_);
    last_sequence_ = sequence;
    if (begun_++ == ended_) oldest_since_ = Clock::now();
  }
  /// Readback thread: the oldest step in flight has been collected.
  void step_ends() {
    std::lock_guard lock(mutex_);
    ++ended_;
    oldest_since_ = Clock::now();
  }

  struct Steps {
    Sequence last_sequence;
    uint64_t begun = 0;
    uint64_t ended = 0;
    std::chrono::milliseconds busy_for{0};  // 0 when nothing is in flight
  };
  Steps steps() const {
    std::lock_guard lock(mutex_);
    Steps steps{last_sequence_, begun_, ended_, {}};
    if (begun_ != ended_) {
      steps.busy_for = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - oldest_since_);
    }
    return steps;
  }

  /// The link thread, each turn; and when it last heard from the coordinator.
  void link_turns() { link_turn_ = Clock::now().time_since_epoch().count(); }
  void coordinator_heard() { coordinator_heard_ = Clock::now().time_since_epoch().count(); }
  Clock::duration since_link_turn() const { return since(link_turn_); }
  Clock::duration since_coordinator_heard() const { return since(coordinator_heard_); }

  /// The executor's counters as the rank thread last saw them, so that no other thread calls the executor.
  void publish_counters(std::vector<Executor::Counter> counters) {
    std::lock_guard lock(mutex_);
    counters_ = std::move(counters);
  }
  std::vector<Executor::Counter> counters() const {
    std::lock_guard lock(mutex_);
    return counters_;
  }

  std::atomic<uint64_t> submissions_dropped{0};  // of another incarnation
  std::atomic<uint64_t> messages_refused{0};     // bytes that are no message of ours
  std::atomic<uint64_t> completions_sent{0};
  std::atomic<uint64_t> heartbeats_sent{0};

 private:
  static Clock::duration since(const std::atomic<Clock::rep>& then) {
    return Clock::now().time_since_epoch() - Clock::duration(then.load());
  }

  std::atomic<RankState> state_{RankState::kStarting};
  std::atomic<uint32_t> incarnation_{0};
  std::atomic<double> load_progress_{0.0};
  std::atomic<Clock::rep> link_turn_{Clock::now().time_since_epoch().count()};
  std::atomic<Clock::rep> coordinator_heard_{Clock::now().time_since_epoch().count()};

  mutable std::mutex mutex_;
  Sequence last_sequence_;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  Clock::time_point oldest_since_{};
  std::vector<Executor::Counter> counters_;
};

/// Resident set of this process, from /proc/self/statm; 0 when it cannot be read.
int64_t resident_bytes();

}  // namespace helios
