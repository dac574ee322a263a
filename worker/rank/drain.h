// How a rank process is told to stop, and how it ends.
//
// SIGTERM (and SIGINT, unless a parent supervises us) asks for an orderly end within a second; a second signal ends the
// process at once. The handler only counts and wakes the link thread.
#pragma once

#include "common/net/wake_event.h"

namespace helios {

/// What the launcher sees. Also in --help and in common/contract/control.h.
enum ExitCode {
  kExitDrained = 0,      // told to stop, and stopped in order
  kExitCannotServe = 1,  // this model or configuration: starting again would not help
  kExitUsage = 2,        // unknown or contradictory flag
  kExitRestart = 75,     // the set is broken: a fault, an abort, a silent coordinator
};

/// Installs the handlers for its lifetime; one a process. `ignore_interrupt`: Ctrl-C reaches the whole process group,
/// and the parent decides what it means. Construct before any thread starts.
class TerminationSignals {
 public:
  TerminationSignals(WakeEvent& wake, bool ignore_interrupt);
  ~TerminationSignals();
  TerminationSignals(const TerminationSignals&) = delete;
  TerminationSignals& operator=(const TerminationSignals&) = delete;

  /// Any thread.
  static bool requested() noexcept;
};

/// Has the kernel send SIGTERM when the thread that started us ends. False when the parent is gone already.
bool die_with_parent();

}  // namespace helios
