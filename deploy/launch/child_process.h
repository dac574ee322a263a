// One child of the launcher: never outlives it, never shares its process group.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/result.h"

namespace helios {

struct ChildSpec {
  std::vector<std::string> command;      // the program's path first
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  int stdout_fd = 2;                     // what the child gets as stdout
};

/// A running child, or none. Ending it for good is the destructor's last resort: SIGKILL and reap.
/// Thread: the one that started it, since the kernel ties the parent-death signal to that thread.
class ChildProcess {
 public:
  /// The child has its own process group (Ctrl-C reaches only the launcher), default signal handling, stdin from
  /// /dev/null, and SIGKILL as soon as this process ends. Errors: kInternal, when the program cannot be executed.
  static Result<ChildProcess> start(const ChildSpec& spec);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  /// To its whole process group.
  void signal(int number) const;
  /// The owner has reaped it.
  void mark_ended() { pid_ = 0; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
};

/// "exit code 3" or "signal 9 (Killed)".
std::string describe_exit(int wait_status);
/// The exit code, or 128 + signal.
int exit_code_of(int wait_status);

}  // namespace helios
