// How the engine's thread wakes a connection: a flag and a timer on the connection's strand.
//
// notify() may come late, from an engine that still holds the callback of a connection long gone; close() makes it
// harmless and drops the executor, which must not outlive its io_context. Only for this room's Asio files.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace helios {

class WakeSignal : public std::enable_shared_from_this<WakeSignal> {
 public:
  explicit WakeSignal(boost::asio::any_io_executor executor) : executor_(executor), timer_(std::in_place, executor) {}

  /// Any thread. Notifications that come before the waiter has run are one.
  void notify() {
    if (pending_.exchange(true)) return;
    std::lock_guard lock(mutex_);
    if (!executor_) return;
    boost::asio::post(*executor_, [self = shared_from_this()] {
      if (self->timer_) self->timer_->cancel();
    });
  }

  /// Strand. Returns after a notify() that came since the last wait.
  boost::asio::awaitable<void> wait() {
    while (!pending_.exchange(false)) {
      timer_->expires_at(std::chrono::steady_clock::time_point::max());
      co_await timer_->async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }
  }

  /// Strand; nothing waits any more.
  void close() {
    std::lock_guard lock(mutex_);
    executor_.reset();
    timer_.reset();
  }

 private:
  std::atomic<bool> pending_ = false;
  std::mutex mutex_;
  std::optional<boost::asio::any_io_executor> executor_;
  std::optional<boost::asio::steady_timer> timer_;  // strand
};

}  // namespace helios
