// What coordinator and ranks say to each other besides submissions and completions.
//
//   rank -> coordinator   Hello, Ready, Heartbeat, Fault, StoreSet, StoreGet
//   coordinator -> rank   Welcome, Heartbeat echo, Drain, Abort, StoreValue
//
// A rank says Hello until it is welcomed. When every rank of the set has said Hello, the coordinator gives the set an
// incarnation number and a group key and welcomes them all at once; each rank then builds its communicator, loads,
// prepares and says Ready with its manifest. When all are ready and agree, the coordinator opens.
//
// What the two sides may rely on:
//   life       A process serves one incarnation. Its socket identity is "rank-R-LIFE" (LIFE in hex), never used again.
//   Hello      Every 200 ms until welcomed. From a rank that was welcomed already, it says that the Welcome was lost:
//              the same Welcome is sent again. A second equal Welcome changes nothing; one of another incarnation ends
//              the process.
//   Heartbeat  Every 100 ms from the first Hello on, incarnation 0 until welcomed. The coordinator sends each one back
//              at once, also to a rank that still waits for its place. A rank that hears nothing for 5 s, or 60 s
//              before it has heard anything, aborts its exchanges and ends with code 75.
//   leaving    After Drain or SIGTERM the state is kDraining: submissions that arrive later are not taken, those before
//              are finished. The last word of a rank that leaves in order is a Heartbeat with state kLost.
//   sequence   A submission of another incarnation is dropped. One whose sequence is not the last plus one is a Fault.
//   store      StoreGet is repeated every 500 ms until it is answered; a repeated one is answered again.
//   exit code  0 drained or terminated; 1 this model or configuration cannot be served, do not restart; 2 wrong flags;
//              75 the set is broken (Fault, Abort, silence): restart me.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/core_manifest.h"

namespace helios {

/// `host_key` names a kernel and pid namespace: ranks with the coordinator's own key can be watched by pid.
struct Hello {
  Rank rank;
  int32_t world_size = 0;
  uint64_t life = 0;  // random, chosen by the process at start
  int64_t pid = 0;
  std::string host_key;
  std::string host_name;    // reachable by the other ranks, for Gloo
  std::string device;       // "cpu" or "cuda"
  std::string status_url;   // http://host:port of the rank's own /livez, /readyz, /metrics; empty when off
  friend bool operator==(const Hello&, const Hello&) = default;
};

/// `collective`: how the hosts of the ranks exchange, "shm" or "gloo"; GPU ranks only introduce themselves to NCCL so.
/// `group_key`: random, names this incarnation's exchange.
struct Welcome {
  uint32_t incarnation = 0;
  int32_t world_size = 0;
  std::string group_key;
  std::string collective;
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Ready {
  uint32_t incarnation = 0;
  CoreManifest manifest;
};

enum class RankState : int32_t { kStarting = 0, kLoading = 1, kReady = 2, kDraining = 3, kLost = 4 };
std::string_view to_string(RankState state);

/// One of a rank's own counters, as its /metrics names it.
struct CounterValue {
  std::string name;  // helios_..., at most 64 of a-z, 0-9 and _
  double value = 0.0;
  friend bool operator==(const CounterValue&, const CounterValue&) = default;
};
inline constexpr int kMaxCounters = 64;

/// Every 100 ms from each rank, also while it loads. `busy_for_ms`: how long the oldest step in flight has been the
/// oldest; 0 when idle. `last_sequence`: the last submission that the rank has taken.
struct Heartbeat {
  uint32_t incarnation = 0;
  RankState state = RankState::kStarting;
  Sequence last_sequence;
  int64_t busy_for_ms = 0;
  int64_t resident_bytes = 0;
  double load_progress = 0.0;  // 0..1 while loading
  std::vector<CounterValue> counters;  // of its steps, not older than half a second; at most kMaxCounters
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// The rank cannot go on. `message` is one line for a person.
struct Fault {
  uint32_t incarnation = 0;
  std::string message;
  friend bool operator==(const Fault&, const Fault&) = default;
};

/// Finish the frames in flight, then exit 0.
struct Drain {
  friend bool operator==(const Drain&, const Drain&) = default;
};

/// The set is broken: leave any exchange at once and exit.
struct Abort {
  std::string reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};

// Key-value store for the communicators' own bootstrap (Gloo addresses, NCCL's unique id).
struct StoreSet {
  std::string key, value;
  friend bool operator==(const StoreSet&, const StoreSet&) = default;
};
/// Answered with StoreValue as soon as the key exists.
struct StoreGet {
  std::string key;
  friend bool operator==(const StoreGet&, const StoreGet&) = default;
};
struct StoreValue {
  std::string key, value;
  friend bool operator==(const StoreValue&, const StoreValue&) = default;
};

using ControlMessage =
    std::variant<Hello, Welcome, Ready, Heartbeat, Fault, Drain, Abort, StoreSet, StoreGet, StoreValue>;

}  // namespace helios
