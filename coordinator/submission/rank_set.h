// The life of a rank set: gathering Hellos, loading, open; and what happens when one of its ranks is lost.
//
//   gathering --all ranks here--> loading --all Ready, same core--> open --drain()--> draining
//       ^                            |                                |
//       +---------- broken: a rank died, is silent or hung, a fault, a mismatch
//
// A broken set is not repaired. Its ranks are told to leave, those of our own host are ended for certain, and the next
// incarnation starts from new Hellos; whatever an earlier one still sends is recognised by identity and incarnation.
// Knows no socket and reads no clock: messages and times come in, sends go out through a function. Thread: engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/contract/control.h"
#include "common/contract/core_manifest.h"
#include "coordinator/submission/bootstrap_store.h"
#include "coordinator/submission/process_watch.h"

namespace helios {

struct RankSetConfig {
  int world_size = 1;
  std::string collective = "auto";  // auto: shm when all ranks share a host key, else gloo
  int32_t num_proposals = 0;                        // what the ranks must be able to verify a lane
  std::chrono::milliseconds heartbeat_limit{3000};  // a rank silent for longer is lost
  std::chrono::milliseconds step_limit{60000};      // a rank busy in one step for longer is hung
  std::chrono::milliseconds abort_grace{2000};      // what a rank of our host has to leave after Abort, before SIGKILL
};

class RankSet {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Send = std::function<Status(const std::string& identity, const ControlMessage& message)>;
  enum class Phase { kGathering, kLoading, kOpen, kDraining };

  struct Event {
    enum class Kind { kOpened, kBroken } kind;
    std::string reason;  // of kBroken
  };

  /// What is known of one rank, for whoever shows it.
  struct View {
    Rank rank;
    int64_t pid = 0;
    RankState state = RankState::kStarting;
    std::string device, host_name, status_url;
    TimePoint last_seen{};  // zero: never
    int64_t resident_bytes = 0;
    double load_progress = 0.0;
    MemoryReport memory;
    std::vector<CounterValue> counters;  // of the rank's last heartbeat
  };

  /// `host_key`: our own; ranks that show the same are watched by pid.
  RankSet(RankSetConfig config, std::string host_key, Send send);

  void on_message(const std::string& identity, const ControlMessage& message, TimePoint now);

  /// Looks for ended, silent and hung ranks. Call at least every 50 ms, after the messages that have arrived.
  void tick(TimePoint now);

  /// Breaks the set for a reason found elsewhere (records disagree, a rank cannot be reached); `lost` is to blame, if
  /// known.
  void fail(const std::string& reason, std::optional<Rank> lost, TimePoint now);

  /// Tells the ranks to finish and leave. From now on a rank that goes is not a loss.
  void drain(TimePoint now);
  /// Tells the ranks to leave at once; those of our own host that stay are ended after the grace.
  void abort_all(const std::string& reason, TimePoint now);
  /// True when no rank that was told to leave is left, as far as its pid or its connection tells.
  bool all_gone();
  /// Ends what is left on our own host, without waiting for any grace.
  void kill_local();

  /// What happened since the last call, oldest first.
  std::optional<Event> next_event();

  Phase phase() const { return phase_; }
  uint32_t incarnation() const { return incarnation_; }
  /// The core of the last set that opened; null before the first.
  const Capabilities* capabilities() const { return capabilities_ ? &*capabilities_ : nullptr; }
  /// The rank behind an identity of the current incarnation; empty for everybody else.
  std::optional<Rank> rank_of(const std::string& identity) const;
  /// By rank; complete while loading or open.
  const std::vector<std::string>& identities() const { return identities_; }
  /// Why the set is not open; empty when it is.
  std::string reason() const;
  /// One entry a rank of the set, present or not.
  const std::vector<View>& views() const { return views_; }
  /// Grows with every change of what views(), phase() or reason() say.
  uint64_t version() const { return version_; }

 private:
  struct Member {
    std::string identity;  // empty: not here
    Hello hello;
    ProcessWatch watch;
    TimePoint last_seen{};
    std::optional<CoreManifest> manifest;
    std::optional<TimePoint> leaving_since;  // in order, by its own word
    bool gone = false;                       // while draining
    bool here() const { return !identity.empty(); }
  };
  struct Leaver {  // told to leave, at once
    std::string identity;
    ProcessWatch watch;
    TimePoint deadline;
  };

  void on_hello(const std::string& identity, const Hello& hello, TimePoint now);
  void on_ready(Member& member, const Ready& ready, TimePoint now);
  void on_heartbeat(Member& member, const Heartbeat& heartbeat, TimePoint now);
  void answer_from_store(Result<std::vector<BootstrapStore::Answer>> answers, TimePoint now);
  void refuse(const std::string& identity, const Hello& hello, const std::string& why, bool abort);
  void welcome_all(TimePoint now);
  void on_leaving(Member& member, RankState state, TimePoint now);
  void on_fault(Rank rank, const Fault& fault, TimePoint now);
  std::string choose_collective() const;
  void open_if_agreed(TimePoint now);
  void break_set(const std::string& reason, const std::vector<Rank>& lost, TimePoint now);
  void let_go(Member& member, TimePoint now);
  bool is_gone(const std::string& identity, const ProcessWatch& watch);
  void end_leavers(TimePoint now);
  void look_for_losses(TimePoint now);
  Member* find(const std::string& identity);
  int num_here() const;

  const RankSetConfig config_;
  const std::string host_key_;
  const Send send_;

  Phase phase_ = Phase::kGathering;
  uint32_t incarnation_ = 0;
  std::vector<Member> members_;          // [world]
  std::vector<std::string> identities_;  // [world], empty while gathering
  std::vector<View> views_;              // [world]
  std::vector<Leaver> leavers_;
  std::unordered_set<std::string> former_;   // identities of broken sets: they never enter another
  std::unordered_set<std::string> refused_;  // said once in the log
  Welcome welcome_;                          // of this incarnation
  BootstrapStore store_;
  std::optional<Capabilities> capabilities_;
  std::string last_failure_;
  std::deque<Event> events_;
  TimePoint last_tick_{};
  uint64_t version_ = 1;
};

}  // namespace helios
