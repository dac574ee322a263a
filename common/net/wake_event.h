// An eventfd that other threads, or a signal handler, set to end a thread's zmq_wait().
#pragma once

namespace helios {

class WakeEvent {
 public:
  WakeEvent();
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  int fd() const { return fd_; }
  /// Any thread; safe in a signal handler. Set until the next zmq_wait() sees it.
  void notify() noexcept;

 private:
  int fd_;
};

}  // namespace helios
