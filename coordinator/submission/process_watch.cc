#include "coordinator/submission/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <utility>

namespace helios {

ProcessWatch::ProcessWatch(int64_t pid) {
  if (pid <= 1 || pid > std::numeric_limits<pid_t>::max() || pid == ::getpid()) return;
  fd_ = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));  // close-on-exec by definition
}

ProcessWatch::~ProcessWatch() {
  if (fd_ >= 0) ::close(fd_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

bool ProcessWatch::ended() const {
  if (fd_ < 0) return false;
  pollfd descriptor{.fd = fd_, .events = POLLIN, .revents = 0};
  return ::poll(&descriptor, 1, 0) == 1;
}

void ProcessWatch::kill() const {
  if (fd_ >= 0) ::syscall(SYS_pidfd_send_signal, fd_, SIGKILL, nullptr, 0);
}

}  // namespace helios
