// How the engine's thread wakes connections: a flag each, and one visit to the I/O threads for all that it wakes at
// once.
//
// A step has something for every stream. Posting to each connection would wake an I/O thread over and over; the hub
// posts once, and that one visit runs them all. notify() may come late, from an engine that still holds the callback of
// a connection or of a server long gone: close() makes it harmless and drops the executor, which must not outlive its
// io_context. Only for this room's Asio files.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace helios {

class WakeSignal;

class WakeHub : public std::enable_shared_from_this<WakeHub> {
 public:
  explicit WakeHub(boost::asio::io_context& io) : io_(&io) {}

  /// Any thread. `signal` is resumed on its strand, soon.
  void add(std::shared_ptr<WakeSignal> signal) {
    std::lock_guard lock(mutex_);
    if (!io_) return;
    signals_.push_back(std::move(signal));
    if (!std::exchange(visit_posted_, true)) post_visit();
  }

  /// No I/O thread is asked for anything any more.
  void close() {
    std::lock_guard lock(mutex_);
    io_ = nullptr;
    signals_.clear();
  }

 private:
  /// So many are one thread's; the next visit, perhaps on another, takes as many more.
  static constexpr size_t kSignalsAVisit = 32;

  void post_visit() {  // locked
    boost::asio::post(*io_, [self = shared_from_this()] { self->visit(); });
  }
  void visit();

  std::mutex mutex_;
  boost::asio::io_context* io_;  // null: closed
  std::vector<std::shared_ptr<WakeSignal>> signals_;
  bool visit_posted_ = false;
};

class WakeSignal : public std::enable_shared_from_this<WakeSignal> {
 public:
  WakeSignal(boost::asio::any_io_executor strand, std::shared_ptr<WakeHub> hub)
      : strand_(std::move(strand)), hub_(std::move(hub)) {}

  /// Any thread. Notifications that come before the waiter has run are one.
  void notify() {
    if (!pending_.exchange(true)) hub_->add(shared_from_this());
  }

  /// Strand. Returns after a notify() that came since the last wait.
  boost::asio::awaitable<void> wait() {
    while (!pending_.exchange(false)) {
      auto keep = [this](Waiter waiter) { waiter_.emplace(std::move(waiter)); };
      co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(keep,
                                                                                         boost::asio::use_awaitable);
    }
  }

  /// An I/O thread: at once when nothing else runs on the strand.
  void resume() {
    std::optional<boost::asio::any_io_executor> strand;
    {
      std::lock_guard lock(mutex_);
      strand = strand_;
    }
    if (!strand) return;
    boost::asio::dispatch(*strand, [self = shared_from_this()] {
      if (!self->waiter_) return;
      Waiter waiter = std::move(*self->waiter_);
      self->waiter_.reset();
      std::move(waiter)();
    });
  }

  /// Strand; nothing waits any more.
  void close() {
    std::lock_guard lock(mutex_);
    strand_.reset();
  }

 private:
  using Waiter = boost::asio::async_result<boost::asio::use_awaitable_t<>, void()>::handler_type;

  std::atomic<bool> pending_ = false;
  std::mutex mutex_;
  std::optional<boost::asio::any_io_executor> strand_;
  std::optional<Waiter> waiter_;  // strand
  const std::shared_ptr<WakeHub> hub_;
};

inline void WakeHub::visit() {
  std::vector<std::shared_ptr<WakeSignal>> mine;
  {
    std::lock_guard lock(mutex_);
    const size_t count = std::min(signals_.size(), kSignalsAVisit);
    mine.assign(std::make_move_iterator(signals_.begin()), std::make_move_iterator(signals_.begin() + count));
    signals_.erase(signals_.begin(), signals_.begin() + static_cast<ptrdiff_t>(count));
    visit_posted_ = io_ && !signals_.empty();
    if (visit_posted_) post_visit();
  }
  for (const auto& signal : mine) signal->resume();
}

}  // namespace helios
