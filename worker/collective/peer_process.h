// Identifies a process so that another one can tell, later and cheaply, whether it still lives.
//
// A pid alone is not enough: it is reused, it stays while a killed process waits to be reaped, and it means nothing in
// another pid namespace. Thread: any.
#pragma once

#include <cstdint>

namespace helios {

/// Plain words, so that it can lie in shared memory.
struct PeerProcess {
  int64_t pid = 0;
  uint64_t start_ticks = 0;    // since boot, from /proc/PID/stat
  uint64_t pid_namespace = 0;  // inode of the namespace in which `pid` counts; 0 when unknown
};

/// This process. Reads /proc once a call; never throws (unknown fields stay 0).
PeerProcess this_process() noexcept;

/// True when `peer` has certainly ended: no such pid, another process under its pid, or a zombie. A peer in another
/// pid namespace, or one that cannot be read, counts as alive: only a time limit notices its end.
bool has_ended(const PeerProcess& peer, uint64_t own_pid_namespace) noexcept;

}  // namespace helios
