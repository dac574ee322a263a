// Who multiplies what while it lasts: each thread takes from the front of its own share, in address order, and when
// that is done from the back of the fullest. On a shared machine cores are not equally fast, and a helper may wake
// late.
//
// Units are independent, so that who takes them changes no bit. A taker gets half of what is left, up to `most`: the
// last pieces are single units, and nobody waits long for anybody. Threads: set() before the fork, take() on any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

namespace helios {

class WorkShares {
 public:
  /// Units [begin, end) of `owner`'s share; none when everything is taken.
  struct Units {
    int64_t owner = 0, begin = 0, end = 0;
    explicit operator bool() const { return begin < end; }
  };

  static int64_t bytes(int64_t num_threads) { return num_threads * static_cast<int64_t>(sizeof(Share)); }

  WorkShares() = default;
  /// `memory`: bytes() long, 64-byte aligned, outlives this.
  WorkShares(void* memory, int64_t num_threads) : shares_(static_cast<Share*>(memory)), num_threads_(num_threads) {}

  /// A thread's share: `count` units, of which those taken together never cross a multiple of `run`.
  void set(int64_t thread, int64_t count, int64_t run) { new (shares_ + thread) Share{pack(0, count), run}; }

  Units take(int64_t thread, int64_t most) const {
    if (const Units own = take_from(thread, most, true)) return own;
    while (true) {
      int64_t fullest = 0, left = 0;
      for (int64_t t = 0; t < num_threads_; ++t) {
        const uint64_t share = shares_[t].left.load(std::memory_order_relaxed);
        if (end_of(share) - begin_of(share) > left) fullest = t, left = end_of(share) - begin_of(share);
      }
      if (left == 0) return {};
      if (const Units taken = take_from(fullest, most, false)) return taken;
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> left;  // begin, and above it end
    int64_t run;
  };
  static uint64_t pack(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin | end << 32); }
  static int64_t begin_of(uint64_t share) { return static_cast<int64_t>(share & 0xffffffffu); }
  static int64_t end_of(uint64_t share) { return static_cast<int64_t>(share >> 32); }

  Units take_from(int64_t owner, int64_t most, bool front) const {
    Share& share = shares_[owner];
    uint64_t seen = share.left.load(std::memory_order_relaxed);
    while (true) {
      const int64_t begin = begin_of(seen), end = end_of(seen), count = std::min(most, (end - begin + 1) / 2);
      if (count == 0) return {};
      const Units units = front
                              ? Units{owner, begin, std::min(begin + count, begin / share.run * share.run + share.run)}
                              : Units{owner, std::max(end - count, (end - 1) / share.run * share.run), end};
      const uint64_t rest = front ? pack(units.end, end) : pack(begin, units.begin);
      if (share.left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) return units;
    }
  }

  Share* shares_ = nullptr;
  int64_t num_threads_ = 0;
};

}  // namespace helios
