// How the engine's thread wakes connections: a flag each, and one visit to the I/O threads for all that it wakes at
// once.
//
// A step has something for every stream. Posting to each connection would wake an I/O thread over and over; the hub
// posts once, when all are marked, and that one visit runs them all, with those that come while it runs: first each
// gathers what has come, then each writes. So code and caches are warm for the second and all that follow, and a client
// with several streams is woken once. A signal may be marked late, by an engine that still holds the callback of a
// connection or of a server long gone: close() makes it harmless and drops the executor, which must not outlive its
// io_context. Only for this room's Asio files.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace helios {

class WakeSignal;
using WakeSignals = std::vector<std::shared_ptr<WakeSignal>>;
using ConnectionStrand = boost::asio::strand<boost::asio::io_context::executor_type>;

class WakeHub : public std::enable_shared_from_this<WakeHub> {
 public:
  explicit WakeHub(boost::asio::io_context& io) : io_(&io) {}

  /// Any thread. `signal` is woken on its strand, soon after ask_for_visit().
  void add(std::shared_ptr<WakeSignal> signal) {
    std::lock_guard lock(mutex_);
    if (io_) signals_.push_back(std::move(signal));
  }

  /// Any thread, after add().
  void ask_for_visit() {
    std::lock_guard lock(mutex_);
    if (!signals_.empty() && !visit_posted_ && num_visiting_ == 0) post_visit();
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

/// Those that a visit wakes together. Each strand is entered once: it is held while those before it are entered, one
/// within the other, and on the way back each writes what it has gathered, the first first. A strand that was busy
/// comes late, on any thread, and wakes its signal alone.
class WakeRound : public std::enable_shared_from_this<WakeRound> {
 public:
  explicit WakeRound(WakeSignals signals) : left_(std::move(signals)) {}

  void run() {
    while (!left_.empty()) enter();
  }

 private:
  void enter();
  void wake(WakeSignal& signal);

  const std::thread::id visitor_ = std::this_thread::get_id();
  WakeSignals left_;                      // visitor
  const WakeSignal* entering_ = nullptr;  // visitor: its strand runs within this call, or later
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
  WakeSignal(ConnectionStrand strand, std::shared_ptr<WakeHub> hub)
      : strand_(std::move(strand)), hub_(std::move(hub)) {}

  /// Any thread. Marks that come before the target has run are one; wake() after them.
  void mark() {
    if (!pending_.exchange(true)) hub_->add(shared_from_this());
  }
  void wake() { hub_->ask_for_visit(); }
  void notify() {
    mark();
    wake();
  }

  /// Strand. Returns when `target` says that its coroutine has to go on; it is asked after every notify().
  boost::asio::awaitable<void> wait(WakeTarget& target) {
    target_ = &target;
    if (gather() && target_->flush()) co_return;
    auto keep = [this](Waiter waiter) { waiter_.emplace(std::move(waiter)); };
    co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(keep,
                                                                                       boost::asio::use_awaitable);
  }

  /// Strand; nothing waits any more.
  void close() {
    std::lock_guard lock(mutex_);
    strand_.reset();
  }

 private:
  friend class WakeRound;
  using Waiter = boost::asio::async_result<boost::asio::use_awaitable_t<>, void()>::handler_type;

  /// Any thread; at once when it is an I/O thread and nothing else runs on the strand.
  template <class Action>
  void on_strand(Action action) {
    std::optional<ConnectionStrand> strand;
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
    if (!waiter_ || !target_->flush()) return;
    Waiter waiter = std::move(*waiter_);
    waiter_.reset();
    std::move(waiter)();
  }

  std::atomic<bool> pending_ = false;
  std::mutex mutex_;
  std::optional<ConnectionStrand> strand_;
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
  for (int round = 0; take(&mine, round); ++round) std::make_shared<WakeRound>(std::move(mine))->run();
}

inline void WakeRound::enter() {
  const std::shared_ptr<WakeSignal> signal = std::move(left_.back());
  left_.pop_back();
  entering_ = signal.get();
  signal->on_strand([round = shared_from_this()](WakeSignal& self) { round->wake(self); });
  entering_ = nullptr;
}

inline void WakeRound::wake(WakeSignal& signal) {
  const bool at_once = std::this_thread::get_id() == visitor_ && std::exchange(entering_, nullptr) == &signal;
  if (!signal.waiter_ || !signal.gather()) return;
  if (at_once) run();
  signal.flush();
}

}  // namespace helios
