// How the engine's thread wakes connections: a flag each, and one visit to the I/O threads for all that it wakes at
// once.
//
// A step has something for every stream. Posting to each connection would wake an I/O thread over and over; the hub
// posts once, and that one visit runs them all, with those that come while it runs. It runs them twice: first each
// gathers what has come, then each writes. So code and caches are warm for the second and all that follow, and a client
// with several streams is woken once. notify() may come late, from an engine that still holds the callback of a
// connection or of a server long gone: close() makes it harmless and drops the executor, which must not outlive its
// io_context. Only for this room's Asio files.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
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
using WakeSignals = std::vector<std::shared_ptr<WakeSignal>>;

class WakeHub : public std::enable_shared_from_this<WakeHub> {
 public:
  explicit WakeHub(boost::asio::io_context& io) : io_(&io) {}

  /// Any thread. `signal` is woken on its strand, soon.
  void add(std::shared_ptr<WakeSignal> signal) {
    std::lock_guard lock(mutex_);
    if (!io_) return;
    signals_.push_back(std::move(signal));
    if (!visit_posted_ && num_visiting_ == 0) post_visit();
  }

  /// No I/O thread is asked for anything any more.
  void close() {
    std::lock_guard lock(mutex_);
    io_ = nullptr;
    signals_.clear();
  }

 private:
  /// So many are one thread's; for more another one helps.
  static constexpr size_t kSignalsAtOnce = 32;
  /// So often a visit looks for more, then other work of its thread has its turn.
  static constexpr int kRounds = 8;

  void post_visit() {  // locked
    visit_posted_ = true;
    boost::asio::post(*io_, [self = shared_from_this()] { self->visit(); });
  }
  void visit();
  bool take(WakeSignals* mine, int round);

  std::mutex mutex_;
  boost::asio::io_context* io_;  // null: closed
  WakeSignals signals_;
  bool visit_posted_ = false;
  int num_visiting_ = 0;
};

/// Those of one round that have gathered something and did not write it yet. Any thread: a strand that was busy comes
/// late, and finds it closed.
class WakeRound {
 public:
  bool add(const std::shared_ptr<WakeSignal>& signal) {
    std::lock_guard lock(mutex_);
    if (!closed_) signals_.push_back(signal);
    return !closed_;
  }
  WakeSignals close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::move(signals_);
  }

 private:
  std::mutex mutex_;
  WakeSignals signals_;
  bool closed_ = false;
};

/// What a coroutine leaves to be done while it waits, on its strand: most wake-ups need no more than this.
class WakeTarget {
 public:
  /// Takes what has come. True when there is something to flush().
  virtual bool gather() = 0;
  /// Writes what was gathered, if anything was. True when the coroutine has to go on.
  virtual bool flush() = 0;

 protected:
  ~WakeTarget() = default;
};

class WakeSignal : public std::enable_shared_from_this<WakeSignal> {
 public:
  WakeSignal(boost::asio::any_io_executor strand, std::shared_ptr<WakeHub> hub)
      : strand_(std::move(strand)), hub_(std::move(hub)) {}

  /// Any thread. Notifications that come before the target has run are one.
  void notify() {
    if (!pending_.exchange(true)) hub_->add(shared_from_this());
  }

  /// Strand. Returns when `target` says that its coroutine has to go on; it is asked after every notify().
  boost::asio::awaitable<void> wait(WakeTarget& target) {
    target_ = &target;
    if (gather() && target_->flush()) co_return;
    auto keep = [this](Waiter waiter) { waiter_.emplace(std::move(waiter)); };
    co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(keep,
                                                                                       boost::asio::use_awaitable);
  }

  /// An I/O thread: the first half of a wake-up, at once when nothing else runs on the strand.
  void wake(std::shared_ptr<WakeRound> round) {
    on_strand([round = std::move(round)](WakeSignal& self) {
      if (!self.waiter_ || !self.gather() || round->add(self.shared_from_this())) return;
      self.flush();
    });
  }

  /// An I/O thread: the second half.
  void finish_wake() {
    on_strand([](WakeSignal& self) {
      if (self.waiter_) self.flush();
    });
  }

  /// Strand; nothing waits any more.
  void close() {
    std::lock_guard lock(mutex_);
    strand_.reset();
  }

 private:
  using Waiter = boost::asio::async_result<boost::asio::use_awaitable_t<>, void()>::handler_type;

  template <class Action>
  void on_strand(Action action) {
    std::optional<boost::asio::any_io_executor> strand;
    {
      std::lock_guard lock(mutex_);
      strand = strand_;
    }
    if (!strand) return;
    boost::asio::dispatch(*strand, [self = shared_from_this(), action = std::move(action)] { action(*self); });
  }

  bool gather() {
    bool gathered = false;
    while (pending_.exchange(false)) gathered = target_->gather();
    return gathered;
  }

  void flush() {
    if (!target_->flush()) return;
    Waiter waiter = std::move(*waiter_);
    waiter_.reset();
    std::move(waiter)();
  }

  std::atomic<bool> pending_ = false;
  std::mutex mutex_;
  std::optional<boost::asio::any_io_executor> strand_;
  WakeTarget* target_ = nullptr;  // strand, while waiting
  std::optional<Waiter> waiter_;  // strand
  const std::shared_ptr<WakeHub> hub_;
};

/// False when there is nothing, or when others on this thread have waited long enough.
inline bool WakeHub::take(WakeSignals* mine, int round) {
  std::lock_guard lock(mutex_);
  if (round == 0) {
    visit_posted_ = false;
    ++num_visiting_;
  }
  const bool ends = signals_.empty() || round == kRounds;
  const size_t count = ends ? 0 : std::min(signals_.size(), kSignalsAtOnce);
  const auto end = signals_.begin() + static_cast<ptrdiff_t>(count);
  mine->assign(std::make_move_iterator(signals_.begin()), std::make_move_iterator(end));
  signals_.erase(signals_.begin(), end);
  if (ends) --num_visiting_;
  if (io_ && !signals_.empty() && !visit_posted_) post_visit();
  return !ends;
}

inline void WakeHub::visit() {
  WakeSignals mine;
  for (int round = 0; take(&mine, round); ++round) {
    const auto gathered = std::make_shared<WakeRound>();
    for (const auto& signal : mine) signal->wake(gathered);
    for (const auto& signal : gathered->close()) signal->finish_wake();
  }
}

}  // namespace helios
