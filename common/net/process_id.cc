#include "common/net/process_id.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "common/base/check.h"

namespace helios {
namespace {

std::atomic<pid_t> remembered{0};  // 0: not remembered

pid_t ask() { return static_cast<pid_t>(::syscall(SYS_getpid)); }

}  // namespace

void remember_process_id() {
  [[maybe_unused]] static const bool registered = [] {
    const int error = pthread_atfork(nullptr, nullptr, [] { remembered.store(ask(), std::memory_order_relaxed); });
    HELIOS_CHECK(error == 0, "pthread_atfork", error);
    remembered.store(ask(), std::memory_order_relaxed);
    return true;
  }();
}

}  // namespace helios

/// Takes the place of the C library's, for ZeroMQ too: symbols are looked up in the program first.
extern "C" pid_t getpid() noexcept {
  const pid_t known = helios::remembered.load(std::memory_order_relaxed);
  return known != 0 ? known : helios::ask();
}
