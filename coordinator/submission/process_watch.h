// Watches a process of this host through a pidfd: its death is seen at once, and it can be ended without hitting a
// stranger that inherited its number.
#pragma once

#include <cstdint>

namespace helios {

class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// Not watching when there is no such process, or when it is this one. `pid` is in our pid namespace.
  explicit ProcessWatch(int64_t pid);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;

  bool watching() const { return fd_ >= 0; }
  /// True once a watched process has ended. False when not watching.
  bool ended() const;
  /// SIGKILL. Nothing when not watching or already ended.
  void kill() const;

 private:
  int fd_ = -1;
};

}  // namespace helios
