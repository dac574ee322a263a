// Fork-join with a generation counter: run() publishes a body and raises the generation, helpers take their piece, run
// it and count `pending` down. The caller takes the pieces that nobody has begun when its own is done: a helper that
// was asleep, or whose core another process or guest had, would not finish them sooner.
//
// A waiter spins for a few microseconds, because the next piece of a step usually comes at once. Then it offers its
// core to others, again and again, and waits on for as long as nobody takes it: to wake a sleeping core of a virtual
// machine takes 50 us and more, the thread that was woken then keeps the other waiting until that one sleeps too, and
// so a step sleeps at every fork (measured: 0.58 instead of 0.88 of the read bandwidth for one row). As soon as
// somebody does take the core it sleeps on a futex, at this wait and for many more, because a machine with more ranks
// than cores makes no progress while its waiters burn the cores. Threads: any one caller, and the helpers owned here.
#include "kernels/base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "common/base/check.h"

namespace helios {
namespace {

constexpr auto kSpin = std::chrono::microseconds(8);
constexpr auto kOffer = std::chrono::microseconds(500);  // covers what is done between the steps of a decode
constexpr auto kTaken = std::chrono::microseconds(30);   // a yield that took so long let somebody run
constexpr int kShared = 32;  // waits without an offer after that: each would cost a time slice for as long as it lasts

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits awake until done(), for as long as the core is not wanted; true when done.
template <class Done>
bool spin_until(const Done& done) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto now = start;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
    now = Clock::now();
  } while (now < start + kSpin);
  thread_local int shared = 0;
  if (shared > 0) return --shared, done();
  while (now < start + kOffer) {
    sched_yield();
    const auto back = Clock::now();
    if (back - now > kTaken) shared = kShared;
    if (done()) return true;
    if (shared > 0) return false;
    now = back;
  }
  return done();
}

}  // namespace

struct ThreadPool::Impl {
  /// One thread's piece of each run, and the last run of which it was taken: always this one's or the one's before.
  struct alignas(64) Piece {
    std::atomic<uint32_t> taken{0};
    /// True for one of those who ask. A success means that run `generation` cannot end before the taker is done.
    bool take(uint32_t generation) {
      uint32_t before = generation - 1;
      return taken.compare_exchange_strong(before, generation, std::memory_order_acq_rel, std::memory_order_relaxed);
    }
  };

  explicit Impl(int threads) : num_threads(threads) {
    helpers.reserve(threads - 1);
    pieces = std::make_unique<Piece[]>(static_cast<size_t>(threads));
    for (int t = 1; t < threads; ++t) helpers.emplace_back([this, t] { help(t); });
  }

  ~Impl() {
    stop = true;
    publish();
    for (auto& helper : helpers) helper.join();
  }

  void publish() {
    generation.fetch_add(1);
    // Sequentially consistent with the sleeper's own increment: either it is seen here, or the sleeper sees the new
    // generation and does not sleep.
    if (sleepers.load() > 0) futex_wake_all(generation);
  }

  void help(int thread) {
    pthread_setname_np(pthread_self(), "helios-compute");
    uint32_t seen = 0;
    for (;;) {
      const auto called = [&] { return generation.load(std::memory_order_acquire) != seen; };
      if (!spin_until(called)) {
        sleepers.fetch_add(1);
        while (generation.load() == seen) futex_wait(generation, seen);
        sleepers.fetch_sub(1);
      }
      seen = generation.load(std::memory_order_acquire);  // maybe more than one ahead: others ran the piece meanwhile
      if (stop.load(std::memory_order_relaxed)) return;
      if (!pieces[thread].take(seen)) continue;
      (*body)(thread, num_threads);
      if (pending.fetch_sub(1) == 1 && caller_sleeps.load()) futex_wake_all(pending);
    }
  }

  /// Of the run that is under way, and only by its caller.
  void run_what_nobody_began() {
    const uint32_t now = generation.load(std::memory_order_relaxed);
    for (int t = 1; t < num_threads; ++t) {
      if (!pieces[t].take(now)) continue;
      (*body)(t, num_threads);
      pending.fetch_sub(1);
    }
  }

  void wait_for_helpers() {
    if (spin_until([this] { return pending.load(std::memory_order_acquire) == 0; })) return;
    caller_sleeps.store(true);
    for (uint32_t left; (left = pending.load()) != 0;) futex_wait(pending, left);
    caller_sleeps.store(false);
  }

  const int num_threads;
  const std::function<void(int, int)>* body = nullptr;  // published by `generation`
  std::atomic<bool> stop{false};                        // likewise; a helper may look late
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint32_t> pending{0};
  std::atomic<bool> caller_sleeps{false};
  std::unique_ptr<Piece[]> pieces;
  std::vector<std::thread> helpers;
};

ThreadPool::ThreadPool(int num_threads) {
  HELIOS_CHECK(num_threads >= 1, num_threads);
  impl_ = std::make_unique<Impl>(num_threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::num_threads() const { return impl_->num_threads; }

void ThreadPool::run(const std::function<void(int, int)>& body) {
  Impl& impl = *impl_;
  if (impl.num_threads == 1) return body(0, 1);
  impl.body = &body;
  impl.pending.store(static_cast<uint32_t>(impl.num_threads - 1), std::memory_order_relaxed);
  impl.publish();
  body(0, impl.num_threads);
  impl.run_what_nobody_began();
  impl.wait_for_helpers();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::min<int64_t>(num_threads(), (count + grain - 1) / grain);
  if (pieces <= 1) return body(0, count);
  struct Split {
    int64_t count, pieces;
    const std::function<void(int64_t, int64_t)>& body;
  } const split{count, pieces, body};
  run([&split](int thread, int) {  // one captured reference: std::function allocates nothing
    if (thread >= split.pieces) return;
    split.body(split.count * thread / split.pieces, split.count * (thread + 1) / split.pieces);
  });
}

}  // namespace helios
