#include "worker/collective/shm_communicator.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kBroken = 1;       // bit 0 of the arrivals
constexpr uint64_t kOneArrival = 2;   // the count lies above it
constexpr uint64_t kBarrier = ~0ull;  // payload size of an exchange without a payload

// About 2 us of pauses for a peer on another core, then 50 yields for one that wants this core, then sleep. Measured:
// long spinning costs milliseconds as soon as there are more ranks than cores. A yield that took long let somebody else
// have a time slice, who will want more of them: the next waits sleep at once, and a sleeper that is woken gets its
// core back at once (a small model on two ranks, beside two busy processes on two cores: 600 tokens/s instead of 30).
constexpr int kPauses = 100;
constexpr int kYields = 50;
constexpr std::chrono::microseconds kTaken{30};
constexpr int kWaitsWithoutYield = 256;
// How often a sleeping rank looks whether the missing ones still live.
constexpr std::chrono::milliseconds kLivenessInterval{50};

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// In portions, because memcpy() turns to `rep movsb` from 2 or 4 KB on, which is slow for lines that lie in another
// core's cache. Measured in turn between two cores, for a whole exchange: 4 KB 2.6 us instead of 6.4, 16 KB 8.7 instead
// of 22.
void copy_in_portions(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kPortion = 1024;
  for (size_t done = 0; done < bytes; done += kPortion) {
    size_t portion = std::min(kPortion, bytes - done);
    asm("" : "+r"(portion));  // a bound that the compiler knows would make it write out `rep movs` itself
    std::memcpy(to + done, from + done, portion);
  }
}

// The kernel compares 32 bits: the lower half of the count, which changes with every arrival and with bit 0.
static_assert(std::endian::native == std::endian::little);
uint32_t* futex_word(std::atomic<uint64_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

// Not FUTEX_PRIVATE: the waiters are other processes, with other addresses for the same page.
void futex_wait(std::atomic<uint64_t>& word, uint64_t seen, std::chrono::nanoseconds limit) {
  timespec wait{};
  wait.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  wait.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  ::syscall(SYS_futex, futex_word(word), FUTEX_WAIT, static_cast<uint32_t>(seen), &wait, nullptr, 0);
}
void futex_wake_all(std::atomic<uint64_t>& word) {
  ::syscall(SYS_futex, futex_word(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct CountedSleeper {
  explicit CountedSleeper(std::atomic<uint32_t>& counter) : sleepers(counter) { sleepers.fetch_add(1); }
  ~CountedSleeper() { sleepers.fetch_sub(1); }
  std::atomic<uint32_t>& sleepers;
};

}  // namespace

std::unique_ptr<ShmCommunicator> ShmCommunicator::join(const std::string& group_key, Rank rank, int world_size,
                                                       std::chrono::milliseconds timeout) {
  if (world_size < 1 || world_size > kMaxShmRanks || rank.value < 0 || rank.value >= world_size) {
    throw CollectiveError(fmt::format("rank {} of world size {} cannot join: world size must be 1 to {}", rank.value,
                                      world_size, kMaxShmRanks));
  }
  std::shared_ptr<ShmSegment> segment =
      rank.value == 0 ? ShmSegment::create(group_key, world_size) : ShmSegment::attach(group_key, world_size, timeout);
  try {
    auto communicator = std::make_unique<ShmCommunicator>(segment, rank, timeout);
    segment->remove_name();  // by everyone: the first to be here may be the only one that lives on
    return communicator;
  } catch (...) {
    segment->remove_name();
    throw;
  }
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<ShmSegment> segment, Rank rank, std::chrono::milliseconds timeout)
    : segment_(std::move(segment)), rank_(rank), timeout_(timeout), self_(this_process()) {
  HELIOS_CHECK(rank_.value >= 0 && rank_.value < segment_->world_size(), rank_.value, segment_->world_size());
  ShmRankRecord& record = segment_->record(rank_.value);
  if (record.process.pid != 0) {
    throw CollectiveError(fmt::format("rank {} is already in the group, as pid {}", rank_.value, record.process.pid));
  }
  record.process = self_;
  record.state.store(ShmRankRecord::kAttached, std::memory_order_release);
  barrier();
}

ShmCommunicator::~ShmCommunicator() {
  segment_->record(rank_.value).state.store(ShmRankRecord::kLeft, std::memory_order_release);
  futex_wake_all(segment_->header().arrivals);
}

void ShmCommunicator::gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) {
  const int world = world_size();
  const size_t bytes = in.size();
  std::byte* own = out + rank_.value * rank_stride;
  size_t begin = 0;
  do {  // once also for an empty payload: the ranks stay in step
    const size_t piece = std::min(bytes - begin, kShmSlotBytes);
    const int which = static_cast<int>((exchange_ + 1) & 1);
    check_not_broken();
    copy_in_portions(segment_->slot(rank_.value, which), in.data() + begin, piece);
    arrive(bytes);
    if (own != in.data()) copy_in_portions(own + begin, in.data() + begin, piece);  // while the others come
    wait_for_peers();
    for (int step = 1; step < world; ++step) {
      const int peer = (rank_.value + step) % world;
      check_same_payload(peer, bytes);
      copy_in_portions(out + peer * rank_stride + begin, segment_->slot(peer, which), piece);
    }
    begin += piece;
  } while (begin < bytes);
}

void ShmCommunicator::barrier() {
  check_not_broken();
  arrive(kBarrier);
  wait_for_peers();
  for (int peer = 0; peer < world_size(); ++peer) check_same_payload(peer, kBarrier);
}

// Before every write: in a broken group nothing says that the peers have finished reading what would be overwritten.
void ShmCommunicator::check_not_broken() const {
  if (segment_->header().arrivals.load(std::memory_order_acquire) & kBroken) [[unlikely]]
    throw_broken();
}

void ShmCommunicator::arrive(uint64_t payload_bytes) {
  ShmHeader& header = segment_->header();
  ShmRankRecord& record = segment_->record(rank_.value);
  ++exchange_;
  record.payload_bytes[exchange_ & 1] = payload_bytes;
  record.exchange.store(exchange_, std::memory_order_release);
  // Releases this rank's payload. Whoever reads the complete count acquires every rank's: each arrival is a
  // read-modify-write, so it carries the earlier ones along. The order between the count and `sleepers` matters too (a
  // sleeper counts itself in before the kernel looks at the count): both are sequentially consistent.
  const uint64_t before = header.arrivals.fetch_add(kOneArrival);
  const bool last = before + kOneArrival == exchange_ * world_size() * kOneArrival;
  if (last && header.sleepers.load() > 0) futex_wake_all(header.arrivals);
}

bool ShmCommunicator::is_complete(uint64_t complete, uint64_t* seen) const {
  *seen = segment_->header().arrivals.load(std::memory_order_acquire);
  if (*seen & kBroken) [[unlikely]]
    throw_broken();
  return *seen >= complete;
}

void ShmCommunicator::wait_for_peers() {
  const uint64_t complete = exchange_ * world_size() * kOneArrival;
  uint64_t seen = 0;
  for (int i = 0; i < kPauses; ++i) {
    if (is_complete(complete, &seen)) return;
    cpu_pause();
  }
  if (waits_without_yield_ > 0) {
    --waits_without_yield_;
    return sleep_for_peers(complete);
  }
  Clock::time_point before = Clock::now();
  for (int i = 0; i < kYields && waits_without_yield_ == 0; ++i) {
    ::sched_yield();
    const Clock::time_point after = Clock::now();
    if (after - before > kTaken) waits_without_yield_ = kWaitsWithoutYield;
    before = after;
    if (is_complete(complete, &seen)) return;
  }
  sleep_for_peers(complete);
}

void ShmCommunicator::sleep_for_peers(uint64_t complete) {
  ShmHeader& header = segment_->header();
  const Clock::time_point start = Clock::now();
  Clock::time_point next_check = start + kLivenessInterval;
  const CountedSleeper counted(header.sleepers);
  uint64_t seen = 0;
  while (!is_complete(complete, &seen)) {
    const Clock::time_point now = Clock::now();
    if (now >= start + timeout_) {
      // One that comes at this very moment is still late: whoever gives up breaks the group for all.
      break_group(fmt::format("{} did not come within {} ms", missing_ranks(), timeout_.count()));
    }
    if (now >= next_check) {
      check_peers(exchange_);
      next_check = now + kLivenessInterval;
    }
    futex_wait(header.arrivals, seen, std::min(next_check, start + timeout_) - now);
  }
}

// A peer that arrived and then died or left is no obstacle to this exchange; only a missing one is.
void ShmCommunicator::check_peers(uint64_t exchange) {
  for (int peer = 0; peer < world_size(); ++peer) {
    const ShmRankRecord& record = segment_->record(peer);
    const uint32_t state = record.state.load(std::memory_order_acquire);
    if (state == ShmRankRecord::kEmpty) continue;
    const bool left = state == ShmRankRecord::kLeft;
    const bool gone = left || has_ended(record.process, self_.pid_namespace);
    // Read after the state: a peer may arrive, and only then end.
    if (!gone || record.exchange.load(std::memory_order_acquire) >= exchange) continue;
    break_group(fmt::format("rank {} (pid {}) {}", peer, record.process.pid, left ? "left the group" : "has ended"));
  }
}

void ShmCommunicator::check_same_payload(int peer, uint64_t payload_bytes) {
  const uint64_t found = segment_->record(peer).payload_bytes[exchange_ & 1];
  if (found == payload_bytes) [[likely]]
    return;
  const auto name = [](uint64_t bytes) {
    return bytes == kBarrier ? std::string("a barrier") : fmt::format("{} bytes", bytes);
  };
  break_group(fmt::format("exchange {}: rank {} brought {}, rank {} {}", exchange_, peer, name(found), rank_.value,
                          name(payload_bytes)));
}

std::string ShmCommunicator::missing_ranks() const {
  std::string list;
  int count = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (segment_->record(peer).exchange.load(std::memory_order_acquire) >= exchange_) continue;
    list += fmt::format("{}{}", count++ ? ", " : "", peer);
  }
  if (count == 0) return "a rank";  // one that stopped between the two halves of its arrival
  return (count == 1 ? "rank " : "ranks ") + list;
}

void ShmCommunicator::throw_broken() const {
  const ShmHeader& header = segment_->header();
  if (header.reason_written.load(std::memory_order_acquire)) throw CollectiveError(header.reason);
  throw CollectiveError("the group was aborted");
}

void ShmCommunicator::break_group(const std::string& reason) {
  abort(reason);
  throw CollectiveError(reason);
}

void ShmCommunicator::abort(const std::string& reason) noexcept {
  ShmHeader& header = segment_->header();
  if (header.reason_claimed.exchange(1) == 0) {  // the first reason is the one that explains the others
    const size_t length = std::min(reason.size(), sizeof header.reason - 1);
    std::memcpy(header.reason, reason.data(), length);
    header.reason[length] = '\0';
    header.reason_written.store(1, std::memory_order_release);
  }
  header.arrivals.fetch_or(kBroken);
  futex_wake_all(header.arrivals);
}

}  // namespace helios
