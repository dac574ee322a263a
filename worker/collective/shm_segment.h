// The memory that the ranks of one host share: a header, a record a rank, and two data slots a rank.
//
// The name lives in /dev/shm only while the ranks attach: each of them removes it once all are there (or once it gives
// up), so neither a normal exit nor a later crash leaves anything behind. Ranks that are threads of one process may
// share one mapping. Thread: any; the users' protocol orders the accesses.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/ids.h"
#include "worker/collective/peer_process.h"

namespace helios {

inline constexpr int kMaxShmRanks = 64;
/// Larger payloads go in pieces of this size. Two slots of two ranks stay within a core's L2 cache.
inline constexpr size_t kShmSlotBytes = 128 * 1024;

/// What a rank says of itself. 128 bytes apart: adjacent-line prefetch would otherwise make neighbours share.
struct alignas(128) ShmRankRecord {
  enum State : uint32_t { kEmpty = 0, kAttached = 1, kLeft = 2 };
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> exchange;  // the last one at which this rank has arrived: names who is missing
  uint64_t payload_bytes[2];       // of the exchange in each slot; ranks compare them
  PeerProcess process;
};

/// All zero when fresh, which is a valid initial state for every field.
struct ShmHeader {
  // Arrivals at all exchanges so far, times two; bit 0 says that the group is broken. A rank comes to exchange n only
  // after all came to n - 1, so n is complete when the count reaches n * world_size: one word to watch, and its lower
  // half is the futex. 64 bits never wrap.
  alignas(128) std::atomic<uint64_t> arrivals;
  alignas(128) std::atomic<uint32_t> sleepers;  // ranks that wait in the kernel; nobody is woken while it is zero

  alignas(128) std::atomic<uint64_t> created;  // kShmMagic once the fields below are valid
  uint32_t world_size;
  uint64_t slot_bytes;

  std::atomic<uint32_t> reason_claimed;
  std::atomic<uint32_t> reason_written;
  char reason[256];
};

class ShmSegment {
 public:
  /// Rank 0 makes the segment, the others wait for it until `deadline`. `group_key` names it: unique among the groups
  /// of this host, at most 150 characters. Throws CollectiveError: exists already, no space, not there in time, or made
  /// for another world size.
  static std::shared_ptr<ShmSegment> create(const std::string& group_key, int world_size);
  static std::shared_ptr<ShmSegment> attach(const std::string& group_key, int world_size,
                                            std::chrono::milliseconds limit);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  /// Takes the name away; the memory lives on while somebody has it mapped. Harmless when repeated.
  void remove_name() noexcept;

  int world_size() const { return world_size_; }
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmRankRecord& record(int rank) const { return reinterpret_cast<ShmRankRecord*>(base_ + sizeof(ShmHeader))[rank]; }
  /// Slot `which` (0 or 1) of a rank: kShmSlotBytes bytes, 64-byte aligned.
  std::byte* slot(int rank, int which) const {
    return base_ + data_offset(world_size_) + (static_cast<size_t>(rank) * 2 + which) * kShmSlotBytes;
  }

  /// "/helios-" and the key, with everything but letters, digits and '-' written as _XX.
  static std::string name_for(const std::string& group_key);

 private:
  ShmSegment(std::string name, std::byte* base, int world_size)
      : name_(std::move(name)), base_(base), world_size_(world_size) {}
  static size_t data_offset(int world_size);
  static size_t total_bytes(int world_size);
  static std::byte* map(int fd, int world_size, const std::string& name);

  const std::string name_;
  std::byte* const base_;
  const int world_size_;
};

}  // namespace helios
