#include "worker/rank/drain.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "common/base/check.h"

namespace helios {
namespace {

// Signal handlers have no other way to reach an object. Written before the handlers are installed.
std::atomic<WakeEvent*> g_wake{nullptr};
std::atomic<int> g_signals{0};
static_assert(std::atomic<WakeEvent*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (g_signals.fetch_add(1) > 0) ::_exit(128 + signal);
  if (WakeEvent* wake = g_wake.load()) wake->notify();
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  HELIOS_CHECK(sigaction(signal, &action, nullptr) == 0, signal);
}

}  // namespace

TerminationSignals::TerminationSignals(WakeEvent& wake, bool ignore_interrupt) {
  HELIOS_CHECK(g_wake.exchange(&wake) == nullptr, "one a process");
  g_signals = 0;
  handle(SIGTERM, on_signal);
  handle(SIGINT, ignore_interrupt ? SIG_IGN : on_signal);
  handle(SIGPIPE, SIG_IGN);
}

TerminationSignals::~TerminationSignals() {
  handle(SIGTERM, SIG_DFL);
  handle(SIGINT, SIG_DFL);
  g_wake = nullptr;
}

bool TerminationSignals::requested() noexcept { return g_signals.load() > 0; }

bool die_with_parent() {
  const pid_t parent = ::getppid();
  HELIOS_CHECK(::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
  return ::getppid() == parent;  // it may have ended before the kernel knew what we want
}

}  // namespace helios
