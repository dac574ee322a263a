#include "worker/collective/peer_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace helios {
namespace {

struct ProcStat {
  char state = '?';
  uint64_t start_ticks = 0;
};

// Fields 3 (state) and 22 (start time) of /proc/PID/stat. The command name, field 2, may hold spaces and brackets, so
// the count starts at the last ')'. False when the file cannot be read.
bool read_proc_stat(int64_t pid, ProcStat* stat) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t count = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (count <= 0) return false;
  text[count] = '\0';
  const char* field = std::strrchr(text, ')');
  if (!field) return false;
  unsigned long long start = 0;
  if (std::sscanf(field + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &stat->state, &start) != 2) {
    return false;
  }
  stat->start_ticks = start;
  return true;
}

}  // namespace

PeerProcess this_process() noexcept {
  PeerProcess self;
  self.pid = ::getpid();
  ProcStat stat;
  if (read_proc_stat(self.pid, &stat)) self.start_ticks = stat.start_ticks;
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) self.pid_namespace = info.st_ino;
  return self;
}

bool has_ended(const PeerProcess& peer, uint64_t own_pid_namespace) noexcept {
  if (peer.pid <= 0 || peer.pid_namespace == 0 || peer.pid_namespace != own_pid_namespace) return false;
  if (::kill(static_cast<pid_t>(peer.pid), 0) != 0 && errno == ESRCH) return true;
  ProcStat stat;
  if (!read_proc_stat(peer.pid, &stat)) return false;
  if (stat.state == 'Z' || stat.state == 'X') return true;
  return peer.start_ticks != 0 && stat.start_ticks != peer.start_ticks;
}

}  // namespace helios
